# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# gperftools' TCMalloc without its profilers (tcmalloc_minimal).
version=2.10
source=debian:google-perftools=2.10-1
glue=(tcmalloc.c primitives.h family_info.h cxx_runtime.cpp tcmalloc_override.h)
needs=(cmake make dpkg-source)
build_seconds=45

build()
{
    # cmake only to learn what this system has (config.h) and to fill in tcmalloc.h.
    cmake -S "$SOURCE" -B configured -Dgperftools_build_minimal=ON -DBUILD_TESTING=OFF
    local minimal=(common internal_logging system-alloc memfs_malloc central_freelist page_heap sampler span
        stack_trace_table static_vars symbolize thread_cache malloc_extension maybe_threads base/spinlock base/spinlock_internal
        base/atomicops-internals-x86 base/logging base/sysinfo tcmalloc)
    # -O2 as upstream builds it: -O3 spills registers in free.
    local flags=(-O2 -std=gnu++17 "${CXX_FLAGS[@]}" -DNO_TCMALLOC_SAMPLES -DNO_HEAP_CHECK
        -include "$ALLOCATORS/glue/tcmalloc_override.h" -Iconfigured "-I$SOURCE/src")
    local files=("${minimal[@]/#/$SOURCE/src/}")
    files=("${files[@]/%/.cc}")
    compile_cxx "${flags[@]}" -- "${files[@]}"
    compile_c "-I$SOURCE/src" -Iconfigured -- "$SOURCE/src/base/dynamic_annotations.c"
    # This one defines mmap and munmap itself, for the others to call.
    compile_cxx "${flags[@]}" -DIMAS_KEEP_ERRNO_H -- "$SOURCE/src/malloc_hook.cc"
    # Its reference to pthread_atfork is weak and would stay unresolved: no handlers, deadlock in children.
    link_cxx_library -Wl,-u,pthread_atfork "${OBJECTS[@]}"
}
