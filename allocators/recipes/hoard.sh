# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Hoard. Its sources are headers: glue/hoard_heap.cpp composes the heap from them.
version=3.13
source=crate:hoard-sys
glue=(hoard.c primitives.h cxx_runtime.cpp hoard_heap.cpp hoard_heap.h hoard_fork.cpp hoard_layers.h apart.h)
build_seconds=10

build()
{
    # The headers name each other as "heaplayers.h" and as "Heap-Layers/heaplayers.h".
    local hoard=$SOURCE/Hoard/src/include
    compile_cxx -std=gnu++17 "${CXX_FLAGS[@]}" -include "$ALLOCATORS/glue/hoard_layers.h" \
        "-I$hoard" "-I$hoard/util" "-I$hoard/hoard" "-I$hoard/superblocks" "-I$SOURCE/Heap-Layers" "-I$SOURCE" \
        -- "$ALLOCATORS/glue/hoard_heap.cpp" "$ALLOCATORS/glue/hoard_fork.cpp"
    link_cxx_library "${OBJECTS[@]}"
}
