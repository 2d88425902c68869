// SPDX-License-Identifier: Apache-2.0
/* service_unit.h - the systemd service of this process, for programs that have a decision for each
 * service. */
#ifndef IMAS_HOOK_SERVICE_UNIT_H
#define IMAS_HOOK_SERVICE_UNIT_H

#include <stdbool.h>
#include <stddef.h>

#include "index.h"

/* Writes the service into the key's detail and its name into `unit`; of an instance of a template the template's. False when the process belongs to
 * none. */
#define UNIT_BYTES 256
bool service_unit_find(struct index_key *key, char unit[UNIT_BYTES]);

/* The system's service that a text of /proc/PID/cgroup names, not ended by '\0'; its length in `length`. NULL when
 * there is none. */
const char *service_unit_in(const char *cgroup, size_t *length);

/* The program that a service of that name is, which is shorter than UNIT_BYTES: of x@1.service x@.service, whose instances are one
 * program. Returns its length. */
size_t service_unit_program(const char *service, size_t length, char unit[UNIT_BYTES]);

#endif
