// SPDX-License-Identifier: Apache-2.0
/* clean_environment.h - the environment of a process that is started again without us. */
#ifndef IMAS_HOOK_CLEAN_ENVIRONMENT_H
#define IMAS_HOOK_CLEAN_ENVIRONMENT_H

#define CLEAN_ENVIRONMENT_BYTES 4096

/* environment_restore_all. But what a process on the way to this one has added to LD_PRELOAD stays: in `preload`, which has
 * CLEAN_ENVIRONMENT_BYTES and lives as long as the environment. */
void clean_environment(char **environment, char *preload);

#endif
