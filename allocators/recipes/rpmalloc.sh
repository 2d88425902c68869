# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# rpmalloc. Without ENABLE_VALIDATE_ARGS absurd sizes get a pointer.
version=1.4.3
source=crate:rpmalloc-sys
glue=(rpmalloc.c gated.h fork_gate.h thread_end.h apart.h)
build_seconds=2

build()
{
    compile_c -std=gnu11 -DENABLE_VALIDATE_ARGS=1 -- "$SOURCE/rpmalloc/rpmalloc/rpmalloc.c"
    link_library "${OBJECTS[@]}"
}
