// SPDX-License-Identifier: Apache-2.0
//
// Hoard and fork. The thread that forks takes every heap lock first, so that the child's copy of the
// heaps is whole; the child, alone, releases them. Locks inside superblocks are too many to take: a
// thread may hold one while it waits for a heap's lock, and has changed nothing yet (RedirectFree::free).
// The child takes those over by their generation when it next needs them (hoard_layers.h).
#include "hoard_layers.h"

#include <pthread.h>
#include <unistd.h>

// Starts at 1: 0 in a lock word means that it is free.
std::atomic<uint32_t> hoard_fork_generation { 1 };
std::atomic<bool> hoard_fork_wanted { false };
__thread int hoard_locks_held;

namespace {

// Hoard has 128 small heaps with two locks each, 64 big heaps, the global heap, its source and the map.
enum { LOCKS = 512, SPINS_PER_LOCK = 4000, FIRST_PAUSE = 50, LONGEST_PAUSE = 20000 };

HL::SpinLockType *locks[LOCKS];
std::atomic<int> lockCount;
// The thread that forks holds it from the prepare handler to the last one.
pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;
// The locks that it has taken, the first of `locks`.
int taken;

bool takeWithin(HL::SpinLockType *lock, int spins)
{
    for (; spins > 0; spins--) {
        if (lock->didLock())
            return true;
        if (spins % 1000 == 0)
            sched_yield();
    }
    return false;
}

void releaseAll()
{
    while (taken > 0)
        locks[--taken]->giveBack();
}

// Whether all were taken. Otherwise none is held.
bool takeEach()
{
    for (int count = lockCount; taken < count; taken++) {
        if (!takeWithin(locks[taken], SPINS_PER_LOCK)) {
            releaseAll();
            return false;
        }
    }
    return true;
}

// Threads lock heaps in another order than this function. A thread may wait for a lock that is held here and hold
// one that is wanted here. So all locks are released after a while. The pauses grow: on a busy machine the waiting
// thread must get the processor before all locks are taken here again. The loop ends, because a thread that holds
// no lock takes none meanwhile.
void takeAll()
{
    pthread_mutex_lock(&forking);
    hoard_fork_wanted = true;
    for (useconds_t pause = FIRST_PAUSE; !takeEach(); pause = pause < LONGEST_PAUSE ? 2 * pause : pause)
        usleep(pause);
}

void releaseInParent()
{
    releaseAll();
    hoard_fork_wanted = false;
    pthread_mutex_unlock(&forking);
}

void releaseInChild()
{
    hoard_fork_generation++;
    releaseInParent();
}

} // namespace

// The bounds of this library's own zeroed data, set by the linker.
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

// Heaps live in static buffers, superblocks in mapped memory: the address tells their locks apart.
void hoard_register_lock(HL::SpinLockType *lock)
{
    char *place = reinterpret_cast<char *>(lock);
    if (place < __bss_start || place >= _end)
        return;
    int index = lockCount++;
    if (index < LOCKS)
        locks[index] = lock;
    else
        lockCount--;
}

void hoard_wait_for_fork()
{
    pthread_mutex_lock(&forking);
    pthread_mutex_unlock(&forking);
}

void hoard_install_fork_handlers()
{
    pthread_atfork(takeAll, releaseInParent, releaseInChild);
}

// xorshift64 (Marsaglia 2003); the low 31 bits, as lrand48 gives. Called under the heap manager's lock.
long hoard_random()
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<long>(state & 0x7fffffff);
}
