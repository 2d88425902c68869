// SPDX-License-Identifier: Apache-2.0
/* asked.h - whether somebody outside asks this process to give its free pages back now (abi/imas_trim.h). */
#ifndef IMAS_HOOK_ASKED_H
#define IMAS_HOOK_ASKED_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi/imas_trim.h"

/* Says who answers from now on. A child of fork answers too what its parent was asked and has not answered. */
void asked_begin(enum imas_trim_answers answers);

/* Nobody answers any more. */
void asked_end(void);

/* The number of a request without an answer, or 0. */
uint64_t asked_now(void);

void asked_answer(uint64_t request, uint64_t returned_pages, uint64_t took_ns);

#endif
