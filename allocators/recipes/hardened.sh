# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# hardened_malloc in its default configuration.
version=16.0.2026071503
source=crate:hardened-malloc-sys
glue=(hardened.c primitives.h)
build_seconds=4

build()
{
    local folder=$SOURCE/vendor/hardened-malloc defines
    mapfile -t defines < <(sed -n 's/^\([A-Z_]*=.*\)/-D\1/p' "$SOURCE/config-default.conf")
    # gcc 12 knows C2x, without its headerless bool, static_assert and alignas.
    compile_c -std=gnu2x -DH_MALLOC_PREFIX -include stdalign.h -include stdbool.h -include assert.h "${defines[@]}" \
        "-I$folder" "-I$folder/include" "-I$folder/third_party" \
        -- "$folder"/{chacha,h_malloc,memory,pages,random,util}.c
    link_library "${OBJECTS[@]}"
}
