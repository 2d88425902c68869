# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# musl's malloc since 1.2.1: small and hardened.
version=1.2.3
source=debian:musl=1.2.3-1
glue=(musl.c musl_port.h primitives.h)
build_seconds=3

build()
{
    local folder=$SOURCE/src/malloc/mallocng header
    mkdir stubs
    for header in atomic syscall libc lock dynlink; do
        : >"stubs/$header.h"
    done
    compile_c -std=gnu11 -include musl_port.h -Istubs "-I$folder" \
        -- "$folder"/{malloc,free,realloc,aligned_alloc,malloc_usable_size}.c
    link_library "${OBJECTS[@]}"
}
