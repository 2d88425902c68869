// SPDX-License-Identifier: Apache-2.0
/* family.h - the functions of libc's malloc family that have to be looked up by name. The constructor sets
 * them. */
#ifndef IMAS_RECORD_FAMILY_H
#define IMAS_RECORD_FAMILY_H

#include <stddef.h>

#include "../hook/sys.h"

HIDDEN extern int (*family_posix_memalign)(void **block, size_t alignment, size_t size);
HIDDEN extern size_t (*family_usable_size)(void *block);
HIDDEN extern void *(*family_aligned_alloc)(size_t alignment, size_t size);

#endif
