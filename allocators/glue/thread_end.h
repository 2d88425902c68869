// SPDX-License-Identifier: Apache-2.0
//
// A call at the end of a thread, for allocators that keep something per thread and do not look after it
// themselves. As late as a pthread key allows: other libraries' destructors still allocate.
//
//   thread_end_prepare()   once per process, before the first thread_end_arm
//   thread_end_arm(call)   once per thread
#ifndef IMAS_THREAD_END_H
#define IMAS_THREAD_END_H

#include <limits.h>
#include <pthread.h>

static pthread_key_t thread_end_key;
static __thread void (*thread_end_call)(void);
static __thread int thread_end_rounds;

// glibc repeats the destructors of keys that are set again, PTHREAD_DESTRUCTOR_ITERATIONS times.
static void thread_end_destructor(void *unused)
{
    (void)unused;
    if (++thread_end_rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(thread_end_key, &thread_end_call);
    else
        thread_end_call();
}

static inline void thread_end_prepare(void)
{
    pthread_key_create(&thread_end_key, thread_end_destructor);
}

static inline void thread_end_arm(void (*call)(void))
{
    thread_end_call = call;
    pthread_setspecific(thread_end_key, &thread_end_call);
}

#endif
