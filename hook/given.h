// SPDX-License-Identifier: Apache-2.0
/*
 * given.h - what tells programs of one executable apart: what an interpreter is given to run, and the systemd unit.
 *
 * Arguments are read as crates/imas-linux/src/given.rs reads them; tests/hook/preload.py compares the two.
 */
#ifndef IMAS_HOOK_GIVEN_H
#define IMAS_HOOK_GIVEN_H

#include <stdbool.h>

#include "index.h"

/* Fills in the key's detail; `word` receives the text on the command line. False when nothing tells programs apart. */
bool given_argument(struct index_key *key, const char *executable, int argc, char **argv, const char **word);

/* The same by the systemd service of this process, whose name goes into `unit`. */
#define UNIT_BYTES 256
bool given_unit(struct index_key *key, char unit[UNIT_BYTES]);

/* The service in the text of a /proc/PID/cgroup, its length in `length`; NULL when there is none. */
const char *given_unit_of(const char *cgroup, size_t *length);

#endif
