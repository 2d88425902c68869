# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# jemalloc. TLS 1,980 bytes: the launcher loads it, dlopen in a running process cannot.
version=5.3.1
source=crate:tikv-jemalloc-sys
glue=(jemalloc.c primitives.h jemalloc_info.h family_info.h)
needs=(make)
build_seconds=70

build()
{
    cp -r "$SOURCE/jemalloc/." "$SOURCE/configure/configure" .
    chmod -R u+w .
    # configure's own probes use the flags too, so only what does not change their answers. Bits of an address and
    # the size of a huge page are given, since it would take them from the machine that compiles.
    CFLAGS="-O3 -pipe -flto=auto -fvisibility=hidden -fno-semantic-interposition -I$ALLOCATORS/glue" \
        sh configure "--host=$("${CC:-gcc}" -dumpmachine)" --with-version="$version-0-g0" --with-jemalloc-prefix=je_ \
        $(for_machine x86_64 --with-lg-vaddr=57 --with-lg-hugepage=21) --disable-doc --disable-shared --disable-cxx
    # With a prefix it would read JE_MALLOC_CONF; people know, and the catalogue sets, MALLOC_CONF.
    sed -i -E '/^#define JEMALLOC_C?PREFIX/d' include/jemalloc/internal/jemalloc_internal_defs.h
    make -j"$JOBS" EXTRA_CFLAGS="-w -g0 -include $ALLOCATORS/glue/keep_errno.h" lib/libjemalloc_pic.a
    link_library lib/libjemalloc_pic.a
}
