// SPDX-License-Identifier: Apache-2.0
// Put before gperftools' tcmalloc.cc in place of its own "libc_override.h": that one would define
// malloc and the rest, which are the glue's. What the rest of the file needs of it stands here.
#ifndef IMAS_TCMALLOC_OVERRIDE_H
#define IMAS_TCMALLOC_OVERRIDE_H

#define TCMALLOC_LIBC_OVERRIDE_INL_H_ 1
#define CPP_NOTHROW noexcept
#define CPP_BADALLOC

static inline void ReplaceSystemAlloc()
{
}

#endif
