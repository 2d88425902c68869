# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# mimalloc, as the distribution installs it, called by names that only it has.
# It is loaded after libc, so that only this glue calls it.
version=installed
source=system:libmimalloc.so.2
glue=(mimalloc.c primitives.h)
libraries=(mimalloc)
hooks=(mi_malloc mi_calloc mi_realloc mi_free mi_malloc_aligned mi_usable_size mi_collect)
build_seconds=1

build()
{
    stub_library
    GLUE_DEFINES=(-DRAW_FREE_SETS_ERRNO=1)
    link_library -L.
}
