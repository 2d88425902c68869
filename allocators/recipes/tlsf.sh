# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Two-Level Segregated Fit (Matthew Conte's), as lvgl carries it.
version=3.1
source=crate:lvgl-sys
glue=(tlsf.c heap_lock.h apart.h)
build_seconds=2

build()
{
    # lvgl's file asks for four of lvgl's headers; what it uses of them stands here.
    mkdir -p lvgl/misc
    cp "$SOURCE/vendor/lvgl/src/misc/lv_tlsf.c" "$SOURCE/vendor/lvgl/src/misc/lv_tlsf.h" lvgl/misc
    printf '#define LV_MEM_CUSTOM 0\n#define LV_MEM_SIZE (1ull << 36)\n' >lvgl/lv_conf_internal.h
    printf '#include <string.h>\n#define lv_memcpy memcpy\n#define LV_UNUSED(name) ((void)(name))\n' >lvgl/misc/lv_mem.h
    echo '#define LV_LOG_ERROR(...)' >lvgl/misc/lv_log.h
    echo '#define LV_ASSERT(expression)' >lvgl/misc/lv_assert.h
    compile_c -std=gnu11 -- lvgl/misc/lv_tlsf.c
    link_library "${OBJECTS[@]}"
}
