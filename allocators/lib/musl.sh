# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What is different where an allocator is compiled for programs of musl (build.sh --musl). The recipes are the same. The
# products are in build/lib/imas/musl, behind whose guard (hook/musl.c) they are preloaded.

# Those in C that have been tried there. What is in C++ would need a libstdc++ for musl.
MUSL_NAMES=(mimalloc jemalloc)

# musl_prepare: a compiler for musl that finds the kernel's headers, which musl-gcc hides with those of glibc.
musl_prepare()
{
    local headers=$WORK/musl/headers folder
    command -v musl-gcc >/dev/null || die "musl-gcc is not installed" "apt-get install musl-tools"
    [ "$(gcc -dumpmachine)" = "$("${CC:-gcc}" -dumpmachine)" ] || die "for programs of musl there is a build for this machine alone"
    mkdir -p "$headers"
    for folder in linux asm-generic; do
        ln -sfn "/usr/include/$folder" "$headers/$folder"
    done
    ln -sfn "/usr/include/$(gcc -print-multiarch)/asm" "$headers/asm"
    # One word, because recipes and configure take it as one.
    printf '#!/bin/sh\nexec musl-gcc "$@" -idirafter %s\n' "$headers" >"$WORK/musl/cc.part"
    chmod 755 "$WORK/musl/cc.part"
    mv "$WORK/musl/cc.part" "$WORK/musl/cc"
    export CC=$WORK/musl/cc
    WORK=$WORK/musl
    PRODUCTS=$PRODUCTS/musl
}

# musl_recipe: after a recipe was read.
musl_recipe()
{
    glue+=(musl_types.h ../lib/musl.sh) # parts of the stamp
    GLUE_FLAGS+=(-include "$ALLOCATORS/glue/musl_types.h")
    # The kernel's header and musl's both declare one structure.
    UPSTREAM_FLAGS+=(-D_LINUX_PRCTL_H)
}

# A program of musl has one loader and one libc: nobody defines the functions in between that kernel.c is for, and no older
# libc will be met.
link_library()
{
    write_exports_map
    sed -i '/__register_atfork;/d' exports.map
    "$CC" "${COMMON_FLAGS[@]}" "${LTO_FLAGS[@]}" "${GLUE_FLAGS[@]}" -D_GNU_SOURCE \
        "-DIMAS_ALLOCATOR_NAME=\"$name $version\"" "-I$ALLOCATORS/glue" "${GLUE_DEFINES[@]}" \
        -c "$ALLOCATORS/glue/${glue[0]}" -o family.o
    "$CC" "${COMMON_FLAGS[@]}" "${LTO_FLAGS[@]}" "${LINK_FLAGS[@]}" -Wl,-soname,"lib$name.so" \
        family.o "$@" -o "lib$name.so"
    check_library "lib$name.so"
}

check_imports()
{
    refuse_if "$(readelf -VW "$1")" 'GLIBC_' "$1 was linked with glibc"
    refuse_if "$(nm -D --undefined-only "$1")" '__tls_get_addr' "$1 reaches thread data through the loader"
}
