# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# oneTBB's scalable allocator, as the distribution installs it, called by names that only it has.
# It is loaded after libc, so that only this glue calls it.
version=installed
source=system:libtbbmalloc.so.2
glue=(tbb.c gated.h fork_gate.h thread_end.h)
libraries=(tbbmalloc)
hooks=(scalable_malloc scalable_free scalable_calloc scalable_realloc scalable_msize scalable_aligned_malloc scalable_allocation_command)
build_seconds=1

build()
{
    stub_library
    GLUE_DEFINES=(-DRAW_FREE_SETS_ERRNO=1)
    link_library -L.
}
