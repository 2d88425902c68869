// SPDX-License-Identifier: Apache-2.0
#include "recording.h"

#include "../abi/imas_index.h"
#include "own_folder.h"
#include "sys.h"
#include "text.h"

/* Writes the path of the folder into `control` and returns its end. */
static char *name_folder(char *control, const struct recording *recording, const char *run) {
    char *end = text_append(text_append(control, run), "/state/r/");
    return text_hex(text_append(text_hex(end, recording->token), "-"), recording->program_id);
}

static bool rename_in(const char *folder, uint32_t uid, const char *from, const char *to) {
    int fd = own_folder_open(folder, uid);
    if (fd < 0)
        return false;
    bool renamed = sys6(SYS_renameat2, fd, (long)from, fd, (long)to, 0, 0) == 0;
    sys_close(fd);
    return renamed;
}

bool recording_take(struct recording *recording, const char *run) {
    char *end = name_folder(recording->control, recording, run);
    bool taken = rename_in(recording->control, recording->uid, IMAS_RECORD_OFFER, IMAS_RECORD_CONTROL);
    text_append(end, "/" IMAS_RECORD_CONTROL);
    return taken;
}

void recording_give_back(const struct recording *recording, const char *run) {
    char folder[RECORDING_PATH_BYTES];
    name_folder(folder, recording, run);
    rename_in(folder, recording->uid, IMAS_RECORD_CONTROL, IMAS_RECORD_OFFER);
}
