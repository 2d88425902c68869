// SPDX-License-Identifier: Apache-2.0
/*
 * give_back.h - what both ways of giving pages back share: whether it is done at all, and doing it once.
 *
 * pacer.c is the thread, in a process that has threads; quiet.c acts where a process of one thread is about to wait.
 * docs/decisions/0039 has the reasons.
 */
#ifndef IMAS_HOOK_GIVE_BACK_H
#define IMAS_HOOK_GIVE_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "budget.h"

/* What it may cost, before it begins: a number of per cent from 1 to 100; any other text changes nothing. */
void give_back_set_share(const char *per_cent);

/* At the start of the program: asks what it was started under, and begins. */
void give_back_enter(void);

/* Begins, or begins anew in a child of fork. */
void give_back_begin(void);

/* For good, in its children too: the process forbids itself system calls, or ends. None is made afterwards. */
void give_back_give_up(void);

bool give_back_has_given_up(void);

/* Whether it began in this process. It did not in a child that is not made by fork, such as one of vfork: that has the
 * memory of its parent. */
bool give_back_is_ours(void);

/* Whether pages are given back. */
bool give_back_is_on(void);

/* Whether it was started under a filter of system calls. */
bool give_back_is_filtered(void);

/* Gives back what is free if the budget allows it, or somebody asks for it (asked.h). `measures`: the resident pages may be read, from a file. `wait_ns`:
 * how long the caller waits in any case, or BUDGET_UNKNOWN: a trim that may take longer than half of it is not made. */
void give_back_if_allowed(bool measures, uint64_t wait_ns);

/* Between these two no trim runs: a fork copies no lock that a trim holds. */
void give_back_hold(void);
void give_back_release(void);

#endif
