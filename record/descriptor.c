// SPDX-License-Identifier: Apache-2.0
#include "descriptor.h"

#include "../hook/sys.h"

bool descriptor_is_same(const struct descriptor *descriptor) {
    struct stat now;
    return sys2(SYS_fstat, descriptor->number, &now) == 0 && now.st_dev == descriptor->about.st_dev &&
           now.st_ino == descriptor->about.st_ino;
}

/* What was opened is looked up by its path, because the number may lead to another file already. */
bool descriptor_open(struct descriptor *descriptor, const char *path, int flags) {
    const int owner_only = 0600;
    descriptor->number = sys_open(path, flags | O_CLOEXEC, owner_only);
    return descriptor->number >= 0 && sys4(SYS_newfstatat, AT_FDCWD, path, &descriptor->about, 0) == 0 &&
           descriptor_is_same(descriptor);
}

void descriptor_close(const struct descriptor *descriptor) {
    if (descriptor_is_same(descriptor))
        sys_close(descriptor->number);
}
