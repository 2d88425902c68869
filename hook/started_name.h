// SPDX-License-Identifier: Apache-2.0
/*
 * started_name.h - the name by which an executable was started, where it makes another program of it: `redis-server` is
 * a link to `redis-check-rdb` (docs/decisions/0037).
 */
#ifndef IMAS_HOOK_STARTED_NAME_H
#define IMAS_HOOK_STARTED_NAME_H

#include <stdbool.h>

#include "index.h"

/* Writes the name into the key's detail, and where it begins in `execfn`, the path that was executed, into `name`. False
 * when `program`, the real path, says by itself what program it is: the name is the file's, but for a version behind it
 * or a target before it. */
bool started_name_find(struct index_key *key, const char *program, const char *execfn, const char **name);

#endif
