// SPDX-License-Identifier: Apache-2.0
/* The compile-time parameters of the textbook allocators; every combination is built by the tests.
 *
 *   FIT_HEADER_BYTES   24: the free-list links stand in the header of every block
 *                       8: they stand in the payload of free blocks only
 *   FIT_MERGE           1: a freed block joins its free neighbours, 0: it stays as it is
 *   FIT_GRANULE_BYTES  alignment of every payload and unit of every size: 16 in the heap
 *                      (the x86-64 ABI), 8 in the 64 KiB arena (the free-list study)
 *   FIT_ADDRESS_ORDER   1: the free list is in address order, 0: last freed comes first
 *   IMAS_FIT_CHECK     defined: the invariant of block.h is walked after every operation
 */
#ifndef IMAS_FIT_CONFIG_H
#define IMAS_FIT_CONFIG_H

#ifndef FIT_HEADER_BYTES
#define FIT_HEADER_BYTES 8
#endif
#ifndef FIT_MERGE
#define FIT_MERGE 1
#endif
#ifndef FIT_GRANULE_BYTES
#define FIT_GRANULE_BYTES 16
#endif
#ifndef FIT_ADDRESS_ORDER
#define FIT_ADDRESS_ORDER 1
#endif

_Static_assert(FIT_HEADER_BYTES == 24 || FIT_HEADER_BYTES == 8, "FIT_HEADER_BYTES is 24 or 8");
_Static_assert(FIT_MERGE == 0 || FIT_MERGE == 1, "FIT_MERGE is 0 or 1");
_Static_assert(FIT_GRANULE_BYTES == 8 || FIT_GRANULE_BYTES == 16, "FIT_GRANULE_BYTES is 8 or 16");
_Static_assert(FIT_ADDRESS_ORDER == 0 || FIT_ADDRESS_ORDER == 1, "FIT_ADDRESS_ORDER is 0 or 1");

#endif
