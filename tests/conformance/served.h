// SPDX-License-Identifier: Apache-2.0
// Proof of who answers malloc: without it a library that was not loaded passes every test as glibc.
#ifndef CONFORMANCE_SERVED_H
#define CONFORMANCE_SERVED_H

// Checks the facts "served-by" (the process's malloc is in the file that the environment's
// CONFORMANCE_MALLOC names, and imas_allocator_name is CONFORMANCE_NAME; each only where set) and
// "glibc-idle" (glibc's own heap does not grow with our blocks; where CONFORMANCE_NAME is set).
void check_served(void);

#endif
