# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Google's TCMalloc with the part of Abseil that it uses. The crate gives it no version of its own.
version=0.1.14
source=crate:libtcmalloc-sys
glue=(tcmalloc-google.c gated.h fork_gate.h thread_end.h cxx_runtime.cpp)
build_seconds=240

build()
{
    # The crate's build script knows which files belong together; its Rust bridge is not wanted.
    local files folder=$SOURCE/c_src
    mapfile -t files < <(grep -oE '"c_src/[^"]+\.(cc|S)"' "$SOURCE/build.rs" | tr -d '"' | grep -v bridge)
    # Upstream's optimisation; LTO of Abseil would take minutes more.
    LTO_FLAGS=()
    compile_cxx -O2 -std=gnu++17 "${CXX_FLAGS[@]}" -fno-omit-frame-pointer -DNOMINMAX -DTCMALLOC_INTERNAL_8K_PAGES \
        -DTCMALLOC_INTERNAL_METHODS_ONLY "-I$folder/abseil-cpp" "-I$folder/tcmalloc" \
        -- "${files[@]/#/$SOURCE/}" "$folder/tcmalloc/tcmalloc/tcmalloc.cc"
    link_cxx_library "${OBJECTS[@]}"
}
