// SPDX-License-Identifier: Apache-2.0
//
// family.h with a mallinfo2 that reports real figures, for the trials' split of memory (hook/allocator_stats.h) and for programs that call it.
// The glue defines, besides what family.h wants,
//
//   struct mallinfo2 raw_info(void)   uordblks: bytes in live blocks; fordblks: free ones; keepcost: of these, pages that
//                                     hold nothing live; what arena has beyond both: the allocator's own. All 0: not known.
//
// A separate header, because a change of family.h rebuilds every allocator. mallinfo reports zeros: its ints are too small.
#ifndef IMAS_FAMILY_INFO_H
#define IMAS_FAMILY_INFO_H

#include <malloc.h>

#define mallinfo2(arguments) family_silent_mallinfo2(arguments)
#include "family.h"
#undef mallinfo2

FAMILY_EXPORT struct mallinfo2 mallinfo2(void)
{
    int saved = errno;
    struct mallinfo2 info = raw_info();
    errno = saved;
    return info;
}

#endif
