# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# gperftools' TCMalloc (minimal), as the distribution installs it, called by names that only it has.
# It is loaded after libc, so that only this glue calls it.
version=installed
source=system:libtcmalloc_minimal.so.4
glue=(distro-tcmalloc.c gated.h gated_keys.h wrapped_keys.h fork_gate.h thread_end.h)
libraries=(tcmalloc_minimal)
hooks=(tc_malloc tc_free tc_realloc tc_memalign tc_malloc_size tc_calloc MallocExtension_ReleaseFreeMemory)
# Its thread data goes back in a key's destructor, which must run inside the gate (wrapped_keys.h).
exports=(pthread_key_create)
build_seconds=1

build()
{
    stub_library
    link_library -L.
}
