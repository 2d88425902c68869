// SPDX-License-Identifier: Apache-2.0
// Scudo's registry of thread data (its config names one): each thread has data of its own, as with upstream's exclusive
// registry, but in memory mapped for it. Upstream keeps these 11 KB in the thread's static TLS, which is taken from the
// thread's stack: pthread_create then refuses stacks of PTHREAD_STACK_MIN.
#ifndef IMAS_SCUDO_THREADS_H
#define IMAS_SCUDO_THREADS_H

#include <new>
#include <pthread.h>

#include "common.h"
#include "mutex.h"
#include "tsd.h"

template <class Allocator> class MappedThreads {
    using Data = scudo::TSD<Allocator>;

public:
    void init(Allocator *instance)
    {
        instance->init();
        CHECK_EQ(pthread_key_create(&key, end_of_thread), 0);
        shared.init(instance);
        initialized = true;
    }

    void initOnceMaybe(Allocator *instance)
    {
        scudo::ScopedLock lock(mutex);
        if (!initialized)
            init(instance);
    }

    // `minimal`: set up the allocator, leave the thread as it is.
    ALWAYS_INLINE void initThreadMaybe(Allocator *instance, bool minimal)
    {
        if (UNLIKELY(own == nullptr))
            begin_thread(instance, minimal);
    }

    ALWAYS_INLINE Data *getTSDAndLock(bool *unlock)
    {
        if (LIKELY(own != nullptr && !scudo::atomic_load(&disabled, scudo::memory_order_acquire))) {
            *unlock = false;
            return &own->data;
        }
        shared.lock();
        *unlock = true;
        return &shared;
    }

    void disable()
    {
        mutex.lock();
        shared.lock();
        scudo::atomic_store(&disabled, 1U, scudo::memory_order_release);
    }

    void enable()
    {
        scudo::atomic_store(&disabled, 0U, scudo::memory_order_release);
        shared.unlock();
        mutex.unlock();
    }

    bool setOption(scudo::Option option, scudo::sptr value)
    {
        if (option == scudo::Option::ThreadDisableMemInit)
            no_initializing = value != 0;
        return option != scudo::Option::MaxTSDsCount;
    }

    bool getDisableMemInit() { return no_initializing; }

private:
    struct Slot {
        Data data;
        Slot *next;
    };

    // A slot that a thread has left, else a new one; nullptr when there is no memory.
    Slot *take_slot()
    {
        void *memory;
        {
            scudo::ScopedLock lock(mutex);
            memory = left;
            if (left != nullptr)
                left = left->next;
        }
        if (memory == nullptr)
            memory = scudo::map(nullptr, scudo::roundUpTo(sizeof(Slot), scudo::getPageSizeCached()), "scudo:thread",
                                MAP_ALLOWNOMEM);
        return memory == nullptr ? nullptr : new (memory) Slot();
    }

    NOINLINE void begin_thread(Allocator *instance, bool minimal)
    {
        // While a fork holds the lock of initOnceMaybe the shared data serve.
        if (scudo::atomic_load(&disabled, scudo::memory_order_acquire))
            return;
        initOnceMaybe(instance);
        if (minimal || ended)
            return;
        Slot *slot = take_slot();
        if (slot == nullptr)
            return; // the shared data serve; the next call tries again
        slot->data.init(instance);
        own = slot;
        CHECK_EQ(pthread_setspecific(key, instance), 0); // may allocate
        instance->callPostInitCallback();
    }

    // Last of all destructors: others still free.
    static void end_of_thread(void *argument)
    {
        Allocator *instance = static_cast<Allocator *>(argument);
        MappedThreads *threads = instance->getTSDRegistry();
        if (own->data.DestructorIterations > 1) {
            own->data.DestructorIterations--;
            if (pthread_setspecific(threads->key, argument) == 0)
                return;
        }
        Slot *slot = own;
        slot->data.commitBack(instance);
        own = nullptr;
        ended = true;
        scudo::ScopedLock lock(threads->mutex);
        slot->next = threads->left;
        threads->left = slot;
    }

    pthread_key_t key = {};
    bool initialized = false;
    scudo::atomic_u8 disabled = {};
    Data shared; // for threads that have none, and while the registry is disabled
    scudo::HybridMutex mutex;
    Slot *left = nullptr;
    static thread_local Slot *own;
    static thread_local bool ended;
    static thread_local bool no_initializing;
};

template <class Allocator> thread_local typename MappedThreads<Allocator>::Slot *MappedThreads<Allocator>::own;
template <class Allocator> thread_local bool MappedThreads<Allocator>::ended;
template <class Allocator> thread_local bool MappedThreads<Allocator>::no_initializing;

#endif
