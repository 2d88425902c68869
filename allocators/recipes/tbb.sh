# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# oneTBB's scalable allocator, without the rest of oneTBB.
version=2021.8.0
source=debian:onetbb=2021.8.0-2+deb12u1
glue=(tbb.c gated.h gated_keys.h fork_gate.h thread_end.h cxx_runtime.cpp)
hooks=(__TBB_malloc_proxy)
build_seconds=20

build()
{
    local folder=$SOURCE/src/tbbmalloc
    # -fno-strict-aliasing and the defines as upstream's CMakeLists.txt has them for Linux.
    compile_cxx -std=gnu++17 "${CXX_FLAGS[@]}" -fno-strict-aliasing $(for_machine x86_64 -mrtm) -D__TBBMALLOC_BUILD -D_XOPEN_SOURCE \
        -Dpthread_key_create=gated_key_create "-I$SOURCE/include" -- \
        "$folder"/{backend,backref,frontend,large_objects,tbbmalloc}.cpp
    link_cxx_library "${OBJECTS[@]}"
}
