// SPDX-License-Identifier: Apache-2.0
/* clean_environment.h - the environment of a process that is started again without us. */
#ifndef IMAS_HOOK_CLEAN_ENVIRONMENT_H
#define IMAS_HOOK_CLEAN_ENVIRONMENT_H

#include <stddef.h>

#define CLEAN_ENVIRONMENT_BYTES 4096

/* environment_restore_all. But what a process on the way to this one has added to LD_PRELOAD stays: in `preload`, which has
 * clean_environment_bytes and lives as long as the environment. */
void clean_environment(char **environment, char *preload);

/* CLEAN_ENVIRONMENT_BYTES at most. */
size_t clean_environment_bytes(char **environment);

#endif
