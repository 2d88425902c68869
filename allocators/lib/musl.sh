# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What is different where an allocator is compiled for programs of musl (build.sh --musl). The recipes are the same. The
# products are in build/lib/imas/musl, behind whose guard (hook/musl.c) they are preloaded.

# Those that have been tried there. Of those in C++ snmalloc alone needs no libstdc++: Debian has none for musl.
MUSL_NAMES=(mimalloc jemalloc snmalloc)

# musl_prepare: compilers for musl that find the kernel's headers, which musl-gcc hides with those of glibc.
musl_prepare()
{
    local wrapper=musl-gcc headers=$WORK/musl/headers kernel=/usr/include asm machine
    asm=$kernel/$(gcc -print-multiarch)/asm
    machine=$("${CC:-gcc}" -dumpmachine)
    if [ "${machine%%-*}" != "$(uname -m)" ]; then
        musl_of_machine "$machine" || die "musl was not built for $machine" "the log is $WORK/musl/libc.log"
        wrapper=$WORK/musl/libc/bin/musl-gcc
        kernel=/usr/$machine/include # of Debian's cross compilers
        asm=$kernel/asm
    fi
    command -v "$wrapper" >/dev/null || die "musl-gcc is not installed" "apt-get install musl-tools"
    mkdir -p "$headers"
    ln -sfn "$kernel/linux" "$headers/linux"
    ln -sfn "$kernel/asm-generic" "$headers/asm-generic"
    ln -sfn "$asm" "$headers/asm"
    musl_compiler cxx "REALGCC=${CXX:-g++} exec $wrapper \"\$@\" -nostdinc++ -idirafter $headers"
    musl_compiler cc "exec $wrapper \"\$@\" -idirafter $headers"
    export CC=$WORK/musl/cc CXX=$WORK/musl/cxx
    WORK=$WORK/musl
    PRODUCTS=$PRODUCTS/musl
}

# musl_compiler NAME COMMAND: a file, because recipes and configure take one word.
musl_compiler()
{
    printf '#!/bin/sh\n%s\n' "$2" >"$WORK/musl/$1.part"
    chmod 755 "$WORK/musl/$1.part"
    mv "$WORK/musl/$1.part" "$WORK/musl/$1"
}

# musl_of_machine MACHINE: musl and its musl-gcc for another machine than this, for which Debian has no musl-tools. It
# is not shipped.
musl_of_machine()
{
    local folder=$WORK/musl/libc
    # What is installed last. It names its place: a folder that was moved is made anew.
    ! grep -qsF "$folder/" "$folder/bin/musl-gcc" || return 0
    rm -rf "$folder"
    mkdir -p "$folder/work"
    (cd "$folder/work" && musl_install "$1" "$folder") >"$WORK/musl/libc.log" 2>&1 || return 1
    rm -rf "$folder/work"
}

musl_install()
{
    local source
    source=$(fetch_source debian:musl=1.2.3-1) || return 1
    sh "$source/configure" "--target=$1" "--prefix=$2" "--syslibdir=$2/lib" --disable-static --enable-wrapper=gcc || return 1
    # Those of our own make are not for it: ARCH is one of its variables.
    MAKEFLAGS='' make -j"$JOBS" && MAKEFLAGS='' make DESTDIR= install
}

# musl_recipe: after a recipe was read.
musl_recipe()
{
    glue+=(musl_types.h ../lib/musl.sh) # parts of the stamp
    GLUE_FLAGS+=(-include "$ALLOCATORS/glue/musl_types.h")
    # The kernel's header and musl's both declare one structure.
    UPSTREAM_FLAGS+=(-D_LINUX_PRCTL_H)
    # For arm64 no program of configure links that has atomics: libgcc asks for a name that only our libraries define.
    export je_cv_c11_atomics=yes je_cv_gcc_atomic_atomics=yes je_cv_gcc_u8_atomic_atomics=yes
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

link_cxx_library()
{
    link_library "$@"
}

check_imports()
{
    refuse_if "$(readelf -VW "$1")" 'GLIBC_' "$1 was linked with glibc"
    refuse_if "$(readelf -rW "$1")" '__tls_get_addr|TLSDESC' "$1 reaches thread data through the loader"
}
