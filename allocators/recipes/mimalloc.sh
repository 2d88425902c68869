# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# mimalloc 3, the current major version. Compiled as C: no libstdc++.
version=3.3.2
source=crate:libmimalloc-sys
glue=(mimalloc.c primitives.h mimalloc_unit.c mimalloc-unnamed.h)
build_seconds=8

build()
{
    local folder=$SOURCE/c_src/mimalloc/v3
    compile_c -std=gnu11 -DMI_BUILD_RELEASE -include "$ALLOCATORS/glue/mimalloc-unnamed.h" "-DMIMALLOC_SOURCE=\"$folder/src/static.c\"" "-I$folder/include" "-I$folder/src" -- "$ALLOCATORS/glue/mimalloc_unit.c"
    link_library "${OBJECTS[@]}"
}
