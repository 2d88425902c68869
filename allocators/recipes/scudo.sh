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
    # crc32_hw.cpp alone may use SSE 4.2; scudo asks the processor before it calls it.
    local flags=(-std=gnu++17 "${CXX_FLAGS[@]}" "-I$folder" "-I$folder/include")
    compile_cxx "${flags[@]}" -- "$folder"/{checksum,common,flags,flags_parser,linux,release,report,string_utils}.cpp \
        "$ALLOCATORS/glue/scudo_heap.cpp"
    compile_cxx "${flags[@]}" $(hardware_crc_flags) -- "$folder/crc32_hw.cpp"
    link_cxx_library "${OBJECTS[@]}"
}

hardware_crc_flags()
{
    case $(uname -m) in
    x86_64) echo -msse4.2 ;;
    aarch64) echo -march=armv8-a+crc ;;
    esac
}
