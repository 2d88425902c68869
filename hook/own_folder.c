// SPDX-License-Identifier: Apache-2.0
#include "own_folder.h"

#include <sys/stat.h>

#include "sys.h"

int own_folder_open(const char *path, uint32_t uid) {
    struct stat about;
    int fd = sys_open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    if (sys2(SYS_fstat, fd, &about) == 0 && about.st_uid == uid && (about.st_mode & 07777) == 0700)
        return fd;
    sys_close(fd);
    return -1;
}
