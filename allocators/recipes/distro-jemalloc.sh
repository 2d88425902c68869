# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# jemalloc, as the distribution installs it, called by names that only it has.
# It is loaded after libc, so that only this glue calls it.
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
