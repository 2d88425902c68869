# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Google's TCMalloc with the part of Abseil that it uses. The crate gives it no version of its own.
version=0.1.14
source=crate:libtcmalloc-sys
glue=(tcmalloc-google.c gated.h gated_keys.h fork_gate.h thread_end.h apart.h)
# Abseil and its own statistics use streams and locales.
libraries=(stdc++ m gcc_s)
# Its hand-written sequences ask the loader, which answers without malloc for a library loaded at start.
loader_tls=yes
hooks=(_ZN8tcmalloc17tcmalloc_internal18default_subreleaseEv
    _ZN8tcmalloc17tcmalloc_internal32default_want_legacy_size_classesEv
    _ZN8tcmalloc17tcmalloc_internal6subtle6percpu10VirtualCpu15TestSynchronizeEv
    _ZTHN8tcmalloc17tcmalloc_internal11ThreadCache18thread_local_data_E
    _ZTHN8tcmalloc17tcmalloc_internal6subtle6percpu16tcmalloc_samplerE default_want_disable_huge_region_more_often)
build_seconds=240

build()
{
    # The crate's build script knows which files belong together; its Rust bridge is not wanted.
    local files folder=$SOURCE/c_src flags
    mapfile -t files < <(grep -oE '"c_src/[^"]+\.cc"' "$SOURCE/build.rs" | tr -d '"' | grep -v bridge)
    # Upstream's optimisation; LTO of Abseil would take minutes more.
    LTO_FLAGS=()
    # Its weak free_sized, hidden as all is, would hide the glue's.
    flags=(-Dfree_sized=tcmalloc_free_sized -Dfree_aligned_sized=tcmalloc_free_aligned_sized
        -O2 -std=gnu++17 -w -fno-omit-frame-pointer -DNOMINMAX -DTCMALLOC_INTERNAL_8K_PAGES
        -DTCMALLOC_INTERNAL_METHODS_ONLY -Dpthread_key_create=gated_key_create
        "-I$folder/abseil-cpp" "-I$folder/tcmalloc")
    # No C declarations before an assembler file.
    compile_cxx "${flags[@]}" -DIMAS_KEEP_ERRNO_H -- "$folder/tcmalloc/tcmalloc/internal/percpu_rseq_asm.S"
    compile_cxx "${flags[@]}" -- "${files[@]/#/$SOURCE/}" "$folder/tcmalloc/tcmalloc/tcmalloc.cc"
    # From an archive, the half of Abseil that nothing refers to stays out.
    "${CC:-gcc}-ar" rcs all.a "${OBJECTS[@]}"
    link_library all.a
}
