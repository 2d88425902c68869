# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# mimalloc 2, the previous major version.
version=2.3.2
source=crate:libmimalloc-sys
glue=(mimalloc.c primitives.h mimalloc_unit.c mimalloc-unnamed.h)
build_seconds=7

build()
{
    local folder=$SOURCE/c_src/mimalloc/v2
    compile_c -std=gnu11 -DMI_BUILD_RELEASE -include "$ALLOCATORS/glue/mimalloc-unnamed.h" "-DMIMALLOC_SOURCE=\"$folder/src/static.c\"" "-I$folder/include" "-I$folder/src" -- "$ALLOCATORS/glue/mimalloc_unit.c"
    link_library "${OBJECTS[@]}"
}
