# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Scudo standalone, LLVM's hardened allocator. Its thread data are mapped (scudo_threads.h).
version=14
source=crate:scudo-sys
glue=(scudo.c primitives.h scudo_heap.cpp scudo_threads.h cxx_runtime.cpp)
hooks=(__scudo_allocate_hook __scudo_deallocate_hook __scudo_default_options android_set_abort_message
    async_safe_write_log)
build_seconds=10

build()
{
    local folder=$SOURCE/scudo-standalone
    # crc32_hw.cpp alone may use the processor's own CRC; scudo asks the processor before it calls it.
    local flags=(-std=gnu++17 "${CXX_FLAGS[@]}" "-I$folder" "-I$folder/include")
    compile_cxx "${flags[@]}" -- "$folder"/{checksum,common,flags,flags_parser,linux,release,report,string_utils}.cpp \
        "$ALLOCATORS/glue/scudo_heap.cpp"
    compile_cxx "${flags[@]}" $(for_machine x86_64 -msse4.2) $(for_machine aarch64 -march=armv8-a+crc) -- "$folder/crc32_hw.cpp"
    link_cxx_library "${OBJECTS[@]}"
}
