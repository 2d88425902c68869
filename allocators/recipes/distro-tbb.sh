# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# oneTBB's scalable allocator, as the distribution installs it, called by names that only it has.
# It is loaded after libc, so that only this glue calls it.
version=installed
source=system:libtbbmalloc.so.2
glue=(tbb.c gated.h gated_keys.h wrapped_keys.h fork_gate.h thread_end.h)
libraries=(tbbmalloc)
hooks=(scalable_malloc scalable_free scalable_calloc scalable_realloc scalable_msize scalable_aligned_malloc scalable_allocation_command)
# Its thread data goes back in a key's destructor, which must run inside the gate (wrapped_keys.h).
exports=(pthread_key_create)
build_seconds=1

build()
{
    stub_library
    GLUE_DEFINES=(-DRAW_FREE_SETS_ERRNO=1 -DFORK_ORDER_WRAPS=scalable_malloc)
    link_library -L.
}
