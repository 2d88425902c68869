// SPDX-License-Identifier: Apache-2.0
/* own_folder.h - a folder that imasd has made for one user. */
#ifndef IMAS_HOOK_OWN_FOLDER_H
#define IMAS_HOOK_OWN_FOLDER_H

#include <stdint.h>

/* Opens the folder (O_PATH) if it is that user's and no other user can use it; negative else. */
int own_folder_open(const char *path, uint32_t uid);

#endif
