// SPDX-License-Identifier: Apache-2.0
/* clean_environment.h - the environment of a process that is started again without us. */
#ifndef IMAS_HOOK_CLEAN_ENVIRONMENT_H
#define IMAS_HOOK_CLEAN_ENVIRONMENT_H

/* environment_restore_all. But what a process on the way to this one has added to LD_PRELOAD stays. */
void clean_environment(char **environment);

#endif
