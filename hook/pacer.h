// SPDX-License-Identifier: Apache-2.0
/* pacer.h - the thread that gives pages back, in a process that has several threads without it. */
#ifndef IMAS_HOOK_PACER_H
#define IMAS_HOOK_PACER_H

#include <pthread.h>
#include <stdbool.h>

typedef int pthread_create_call(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

/* At the start of the program. */
void pacer_prepare(void);

/* Starts it unless it runs, or the process has one thread. `create`: the pthread_create after ours. */
void pacer_start(pthread_create_call *create);

/* Ends it, and waits until the kernel has forgotten it. */
void pacer_end(void);

/* Ends it if there is one more thread only: then the process is back to one. */
void pacer_end_if_alone(void);

bool pacer_runs(void);

/* In a child of fork, which has no other thread. */
void pacer_forget(void);

#endif
