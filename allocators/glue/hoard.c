// SPDX-License-Identifier: Apache-2.0
// Hoard, through hoard_heap.cpp.
#define NAME_MALLOC hoard_malloc
#define NAME_FREE hoard_free
#define NAME_REALLOC hoard_realloc
#define NAME_ALIGNED hoard_aligned
#define NAME_USABLE hoard_usable
#include "primitives.h"

#define RAW_NULL_FREE 1

#include "family.h"
