# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# jemalloc, as the distribution installs it, reached by the names that are its alone. Loaded behind libc, so that it
# answers for nobody but this glue.
version=installed
source=system:libjemalloc.so.2
glue=(distro-jemalloc.c jemalloc_info.h family_info.h)
libraries=(jemalloc)
hooks=(mallocx rallocx dallocx sallocx mallctl)
build_seconds=1

build()
{
    stub_library
    link_library -L.
}
