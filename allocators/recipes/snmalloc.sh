# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# snmalloc: no C++ runtime, its own pieces of the standard library.
version=0.7.6
source=crate:snmalloc-sys
glue=(snmalloc.c primitives.h snmalloc_heap.cpp cxx_runtime.cpp)
build_seconds=25

build()
{
    # PTHREAD_DESTRUCTORS: the default ends threads through __cxa_thread_atexit_impl, which allocates.
    compile_cxx -std=gnu++20 "${CXX_FLAGS[@]}" $(for_machine x86_64 -mcx16) -DSNMALLOC_USE_SELF_VENDORED_STL \
        -DSNMALLOC_USE_PTHREAD_DESTRUCTORS -DSNMALLOC_USE_WAIT_ON_ADDRESS=1 -DSNMALLOC_PTHREAD_FORK_PROTECTION \
        -DSNMALLOC_PTHREAD_ATFORK_WORKS -DSNMALLOC_HAS_LINUX_FUTEX_H -DSNMALLOC_HAS_LINUX_RANDOM_H \
        -DSNMALLOC_PLATFORM_HAS_GETENTROPY "-I$SOURCE/upstream/src" -- "$ALLOCATORS/glue/snmalloc_heap.cpp"
    link_cxx_library "${OBJECTS[@]}"
}
