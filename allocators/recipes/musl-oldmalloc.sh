# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# musl's malloc before 1.2.1.
version=1.2.3
source=debian:musl=1.2.3-1
glue=(musl.c musl_port.h primitives.h)
build_seconds=3

build()
{
    local folder=$SOURCE/src/malloc/oldmalloc header
    mkdir stubs
    for header in libc atomic pthread_impl fork_impl dynlink; do
        : >"stubs/$header.h"
    done
    compile_c -std=gnu11 -include musl_port.h -Istubs "-I$folder" -- "$folder"/malloc.c
    # These two call the allocator by names that malloc.c gives itself.
    compile_c -std=gnu11 -include musl_port.h -Dmalloc=__libc_malloc_impl -Drealloc=__libc_realloc -Istubs "-I$folder" \
        -- "$folder"/{aligned_alloc,malloc_usable_size}.c
    link_library "${OBJECTS[@]}"
}
