// SPDX-License-Identifier: Apache-2.0
/* fatal.h - notes in the page which signal is ending the process, and lets it end as it would have without us. */
#ifndef IMAS_HOOK_FATAL_H
#define IMAS_HOOK_FATAL_H

/* Installs a handler for each fatal signal whose disposition is the default. A program that later sets its own
 * handler replaces ours. A stack overflow on a thread without an alternate stack cannot be noted. */
void fatal_install(void);

#endif
