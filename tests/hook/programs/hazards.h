// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define SECONDS 3 /* the pacer looks about once a second */

/* ---- hazards_threads.c */
double clock_s(clockid_t clock);
bool is_pacer(const char *id);
int count_tasks(bool *has_pacer);
void tell_pacer(const char *where);
extern volatile int released;
void *rest(void *unused);
pthread_t start(void *(*run)(void *));
void join(pthread_t thread);
void churn(double seconds);
void say(const char *what, long answer);
void await_the_last(void);
void start_and_forget(void);

/* ---- hazards_sandbox.c */
void sandboxed_thread(void);
void sandboxed_alone(void);
void counter_forbidden(void);
void threads_forbidden(void);
void filtered(void);
int start_under_filter(char **command);

/* ---- hazards_fork.c */
void forks_alone(void);
void forks(void);
void daemons(void);
void atfork(void);
