# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Doug Lea's malloc, as libffi carries it. brk stays glibc's.
version=2.8.6
source=crate:libffi-sys
glue=(dlmalloc.c primitives.h shifted_chunk.h)
build_seconds=2

build()
{
    compile_c -DUSE_DL_PREFIX=1 -DUSE_LOCKS=1 -DUSE_SPIN_LOCKS=0 -DLOCK_AT_FORK=1 -DHAVE_MORECORE=0 \
        -DMALLOC_ALIGNMENT=16 -DNO_MALLINFO=1 -DNO_MALLOC_STATS=1 -- "$SOURCE/libffi/src/dlmalloc.c"
    link_library "${OBJECTS[@]}"
}
