// SPDX-License-Identifier: Apache-2.0
// rpmalloc, whose threads must announce themselves (upstream's own preload build interposes
// pthread_create for that) and which guards single spans by values in them: hence the gate.
#include <stddef.h>

extern int rpmalloc_initialize(void);
extern void rpmalloc_thread_initialize(void);
extern void rpmalloc_thread_finalize(int release_caches);

static inline void begin_thread(void)
{
    static int initialized;
    if (!initialized) {
        initialized = 1;
        rpmalloc_initialize();
    }
    rpmalloc_thread_initialize();
}

#define GATE_BEGIN_THREAD() begin_thread()
// The caches go to the shared heap: no thread of ours comes back for them.
#define GATE_END_THREAD() rpmalloc_thread_finalize(1)

// A thread past its end gets a heap for each single call.
#define GATE_BEGIN_ENDED() rpmalloc_thread_initialize()
#define GATE_LEAVE_ENDED() rpmalloc_thread_finalize(1)

extern void *rpmemalign(size_t alignment, size_t size);

#define NAME_MALLOC rpmalloc
#define NAME_FREE rpfree
#define NAME_CALLOC rpcalloc
#define NAME_REALLOC rprealloc
#define NAME_ALIGNED rpmemalign
#define NAME_USABLE rpmalloc_usable_size
#include "gated.h"

// ENABLE_VALIDATE_ARGS refuses absurd sizes, with EINVAL: the family refuses them first.
#include "family.h"
