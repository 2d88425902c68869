// SPDX-License-Identifier: Apache-2.0
// snmalloc, through snmalloc_heap.cpp.
#define NAME_MALLOC sn_malloc
#define NAME_FREE sn_free
#define NAME_REALLOC sn_realloc
#define NAME_ALIGNED sn_memalign
#define NAME_USABLE sn_usable
#define NAME_CALLOC sn_calloc
#include "primitives.h"

#define RAW_NULL_FREE 1

#include "family.h"
