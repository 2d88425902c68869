// SPDX-License-Identifier: Apache-2.0
// Scudo's C wrappers under the prefix scudo_ (upstream's wrappers_c.cpp gives them no prefix).
#include "allocator_config.h"
#include "scudo_threads.h"
#include "wrappers_c.h"
#include "wrappers_c_checks.h"

#include <stdint.h>
#include <stdio.h>

#define SCUDO_PREFIX(name) scudo_##name
#define SCUDO_ALLOCATOR scudoAllocator

extern "C" void scudo_malloc_postinit();

// Upstream's configuration for Linux, but for where thread data are.
struct HeapConfig : scudo::DefaultConfig {
    template <class Allocator> using TSDRegistryT = MappedThreads<Allocator>;
};

SCUDO_REQUIRE_CONSTANT_INITIALIZATION
static scudo::Allocator<HeapConfig, scudo_malloc_postinit> scudoAllocator;

#include "wrappers_c.inc"

extern "C" void scudo_release_to_os()
{
    scudoAllocator.releaseToOS();
}
