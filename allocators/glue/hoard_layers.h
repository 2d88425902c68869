// SPDX-License-Identifier: Apache-2.0
//
// Put before Hoard's sources with -include. Hoard is built of layers; three of them are replaced here,
// by defining them first under the upstream's own include guards:
//
//   HL::MmapWrapper   upstream's prints to standard output when memory is refused
//   HL::SpinLockType  upstream's deadlocks the child of a fork when another thread held it
//   lrand48           upstream's heap choice must not advance the program's own random sequence
#ifndef IMAS_HOARD_LAYERS_H
#define IMAS_HOARD_LAYERS_H

#include "keep_errno.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

// The child of a fork raises it: a lock word of an earlier value belongs to a thread that does not exist here.
extern std::atomic<uint32_t> hoard_fork_generation;
// Whether a thread is about to fork. Who holds no lock then waits before taking one; else the thread that forks
// could look for a moment without holders for ever.
extern std::atomic<bool> hoard_fork_wanted;
// The locks that this thread holds.
extern __thread int hoard_locks_held;
// Returns when no thread is about to fork.
void hoard_wait_for_fork();

namespace HL {
class SpinLockType;
}
void hoard_register_lock(HL::SpinLockType *lock);
long hoard_random();

#define lrand48 hoard_random

#define HL_SPINLOCK_H
#include "threads/cpuinfo.h"

namespace HL {

class SpinLockType {
public:
    SpinLockType()
        : _holder(0)
    {
        hoard_register_lock(this);
    }

    inline void lock()
    {
        if (__builtin_expect(hoard_fork_wanted.load(std::memory_order_relaxed), 0) && hoard_locks_held == 0)
            hoard_wait_for_fork();
        if (!didLock())
            contendedLock();
        hoard_locks_held++;
    }

    // Taking over from an earlier generation is safe for a superblock's lock: what it guards changes
    // only under the owner heap's lock too, and fork holds all of those (see hoard_fork.cpp).
    inline bool didLock()
    {
        uint32_t mine = hoard_fork_generation.load(std::memory_order_relaxed);
        return _holder.exchange(mine, std::memory_order_acquire) != mine;
    }

    inline void unlock()
    {
        giveBack();
        hoard_locks_held--;
    }

    // After didLock(): the thread that forks does not count its locks.
    inline void giveBack()
    {
        _holder.store(0, std::memory_order_release);
    }

private:
    enum { SPINS_BEFORE_YIELD = 1000 };

    __attribute__((noinline)) void contendedLock()
    {
        for (int spins = 0; !didLock(); spins++) {
            if (spins >= SPINS_BEFORE_YIELD) {
                sched_yield();
                spins = 0;
            }
            while (_holder.load(std::memory_order_relaxed) != 0 && spins < SPINS_BEFORE_YIELD)
                spins++;
        }
    }

    // 0: free; otherwise the fork generation of the holder.
    std::atomic<uint32_t> _holder;
};

typedef SpinLockType SpinLock;

// Named by layers that Hoard does not use; upstream's throws, and there are no exceptions here.
#define HL_POSIXLOCK_H
typedef SpinLockType PosixLockType;

} // namespace HL

#define HL_MMAPWRAPPER_H

namespace HL {

class MmapWrapper {
public:
    enum { Size = 4 * 1024UL };
    enum { Alignment = 4 * 1024UL };

    // NULL when refused. size is in bytes.
    static void *map(size_t size)
    {
        if (size == 0)
            return nullptr;
        void *start = mmap(nullptr, roundUp(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return start == MAP_FAILED ? nullptr : start;
    }

    static void unmap(void *start, size_t size)
    {
        munmap(start, roundUp(size));
    }

    static void release(void *start, size_t size)
    {
        madvise(start, size, MADV_DONTNEED);
    }

private:
    static size_t roundUp(size_t size)
    {
        return (size + Size - 1) / Size * Size;
    }
};

} // namespace HL

#endif
