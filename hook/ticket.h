// SPDX-License-Identifier: Apache-2.0
/* ticket.h - the page of a start that the stub makes, as crates/imas-linux/src/page.rs makes that of
 * `imas run`. */
#ifndef IMAS_HOOK_TICKET_H
#define IMAS_HOOK_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi/imas_abi.h"

#define TICKET_PATH_BYTES 384

struct ticket {
    enum imas_page_kind kind;
    uint32_t uid;
    uint64_t token; /* of a trial */
    uint64_t program_id;
    const char *boot_id, *candidate, *program, *detail;
    char path[TICKET_PATH_BYTES]; /* out: the page that was made */
};

enum ticket_answer { TICKET_MADE, TICKET_TAKEN, TICKET_FAILED };

/* Makes the page below `run`, armed. TAKEN: another process runs this trial. FAILED leaves no file. */
enum ticket_answer ticket_make(struct ticket *ticket, const char *run);

/* Called when the start does not happen: its page must not look like a crash. */
void ticket_discard(const struct ticket *ticket);

#endif
