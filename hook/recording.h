// SPDX-License-Identifier: Apache-2.0
/* recording.h - the start of a program that imasd wants recorded: its folder
 * below state/r (abi/imas_index.h). */
#ifndef IMAS_HOOK_RECORDING_H
#define IMAS_HOOK_RECORDING_H

#include <stdbool.h>
#include <stdint.h>

#define RECORDING_PATH_BYTES 384

struct recording {
    uint32_t uid;
    uint64_t token, program_id;
    char control[RECORDING_PATH_BYTES]; /* out: the path of the control file */
};

/* Takes it for this process. False when another process has, or it is not for
 * this user. */
bool recording_take(struct recording *recording, const char *run);

/* Called when the start does not happen: another one may take it. */
void recording_give_back(const struct recording *recording, const char *run);

#endif
