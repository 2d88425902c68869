// SPDX-License-Identifier: Apache-2.0
/*
 * imas-copy FOLDER: copies the libraries at the root of its own image into the folder. The init container of
 * nodes that cannot mount an image. Static: the image has no C library.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"

#define LIBRARY ".so"
#define FRESH ".fresh"

static bool is_library(const char *name) {
    size_t length = strlen(name);
    return length > strlen(LIBRARY) && strcmp(name + length - strlen(LIBRARY), LIBRARY) == 0;
}

static bool write_all(int to, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = write(to, bytes, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes += written;
        count -= (size_t)written;
    }
    return true;
}

static bool copy_bytes(int from, int to) {
    char bytes[1 << 16];
    for (;;) {
        ssize_t count = read(from, bytes, sizeof bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count == 0;
        if (!write_all(to, bytes, (size_t)count))
            return false;
    }
}

/* Copies one file. It gets its name when it is whole: the container's start finds all of it or nothing. */
static int copy(int from_folder, int to_folder, const char *name) {
    char fresh[NAME_MAX + sizeof FRESH];
    snprintf(fresh, sizeof fresh, "%s%s", name, FRESH);
    int from = openat(from_folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return say_error(NULL, "%s: %s", name, strerror(errno));
    int to = openat(to_folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
    bool is_done = to >= 0 && fchmod(to, 0755) == 0 && copy_bytes(from, to) && close(to) == 0 &&
                   renameat(to_folder, fresh, to_folder, name) == 0;
    int why = errno;
    close(from);
    return is_done ? DONE : say_error("is the folder writable, and is there room?", "%s: %s", name, strerror(why));
}

static int copy_libraries(DIR *root, int to_folder) {
    int copied = 0;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(root)) != NULL; errno = 0) {
        struct stat about;
        if (!is_library(entry->d_name) || fstatat(dirfd(root), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        if (copy(dirfd(root), to_folder, entry->d_name) != DONE)
            return UNABLE;
        copied++;
    }
    if (errno != 0)
        return say_error(NULL, "/: %s", strerror(errno));
    return copied > 0 ? DONE : say_error(NULL, "no library at the root of the image");
}

int main(int count, char **words) {
    say_name = "imas-copy";
    if (count != 2)
        return say_error("imas-copy FOLDER", "one folder is needed");
    int to_folder = open(words[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (to_folder < 0)
        return say_error(NULL, "%s: %s", words[1], strerror(errno));
    DIR *root = opendir("/");
    if (root == NULL)
        return say_error(NULL, "/: %s", strerror(errno));
    int done = copy_libraries(root, to_folder);
    closedir(root);
    close(to_folder);
    return done;
}
