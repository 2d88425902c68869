// SPDX-License-Identifier: Apache-2.0
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#define LOCK_TRIES 100
#define LOCK_PAUSE_NS 100000000L
/* Attributes of one file, together; the kernel's own limit for their names is 64 KiB. */
#define ATTRIBUTE_NAMES_MOST 4096
#define ATTRIBUTE_MOST 65536

static bool fail(const struct file *file, const char *what, const char *hint) {
    say_error(hint, "%s: %s: %s", file->path, what, strerror(errno));
    return false;
}

static bool refuse(const struct file *file, const char *why, const char *hint) {
    say_error(hint, "%s: not touched: %s", file->path, why);
    return false;
}

bool file_open(struct file *file, const char *path) {
    char folder[4096];
    *file = (struct file){.path = path, .folder = -1, .lock = -1, .old = -1};
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    const char *name = slash ? slash + 1 : path;
    if (path[0] != '/' || name[0] == 0 || strlen(name) > FILE_NAME_MOST - 20 || length >= sizeof folder) {
        return refuse(file, "not the absolute path of a file", "name it as in --file /etc/ld.so.preload");
    }
    memcpy(folder, path, length);
    folder[length] = 0;
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(file->lock_name, sizeof file->lock_name, "%.200s.imas-lock", name);
    snprintf(file->fresh_name, sizeof file->fresh_name, "%.200s.imas-new", name);
    snprintf(file->backup_name, sizeof file->backup_name, "%.200s.imas-backup", name);
    file->folder = open(length ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return file->folder >= 0 || fail(file, "its folder", NULL);
}

/* The holder may have deleted the lock file while we waited: the locked file must be the one that is there
 * now. */
static bool same_file(struct file *file) {
    struct stat held, named;
    return fstat(file->lock, &held) == 0 && fstatat(file->folder, file->lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

bool file_lock(struct file *file) {
    for (int i = 0; i < LOCK_TRIES; i++) {
        file->lock = openat(file->folder, file->lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file->lock < 0) {
            const char *hint = errno == EROFS    ? "the file system is mounted read-only: mount -o remount,rw /"
                               : errno == EACCES ? "do it as root"
                                                 : NULL;
            return fail(file, "its folder cannot be written to", hint);
        }
        if (flock(file->lock, LOCK_EX | LOCK_NB) == 0 && same_file(file)) {
            unlinkat(file->folder, file->fresh_name, 0); /* left by a killed process */
            return true;
        }
        close(file->lock);
        file->lock = -1;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return refuse(file, "another copy of this tool is at work on it", "wait for it to end, then try again");
}

void file_unlock(struct file *file) {
    if (file->lock >= 0) {
        unlinkat(file->folder, file->lock_name, 0); /* a lock file that stays does no harm */
        close(file->lock);
        file->lock = -1;
    }
}

void file_close(struct file *file) {
    file_unlock(file);
    if (file->old >= 0) {
        close(file->old);
    }
    close(file->folder);
    file->old = file->folder = -1;
}

static bool may_be_replaced(struct file *file) {
    struct stat stat;
    if (fstat(file->old, &stat) != 0) {
        return fail(file, "stat", NULL);
    }
    if (!S_ISREG(stat.st_mode)) {
        return refuse(file, "it is not a regular file", "put a plain file in its place");
    }
    if (stat.st_nlink > 1) {
        return refuse(file, "it has more than one hard link, and the others would keep the old content",
                      "copy it to a new file, and rename that over it");
    }
    int flags = 0;
    /* Not every file system has such flags. */
    if (ioctl(file->old, FS_IOC_GETFLAGS, &flags) == 0 && flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)) {
        return refuse(file, "it is immutable or append-only", "somebody meant it; 'chattr -ia' on it takes that away");
    }
    return true;
}

bool file_read(struct file *file, struct text *text) {
    text->length = 0;
    if (file->old >= 0) {
        close(file->old);
    }
    /* O_NONBLOCK: a FIFO is refused, not waited for. */
    file->old = openat(file->folder, file->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file->old < 0) {
        if (errno == ENOENT) {
            return true;
        }
        if (errno == ELOOP) {
            return refuse(file, "it is a symbolic link", "replace it by the file it points to");
        }
        return fail(file, "cannot be read", NULL);
    }
    if (!may_be_replaced(file)) {
        return false;
    }
    for (;;) {
        ssize_t got = read(file->old, text->bytes + text->length, sizeof text->bytes - text->length);
        if (got < 0) {
            return fail(file, "cannot be read", NULL);
        }
        if (got == 0) {
            break;
        }
        text->length += (size_t)got;
        if (text->length == sizeof text->bytes) {
            return refuse(file, "it is larger than 64 KiB, so hardly a list of libraries", NULL);
        }
    }
    return entries_readable(text) || refuse(file, "it holds a NUL byte, so it is not a list of libraries", NULL);
}

static bool write_all(int to, const struct text *text) {
    for (size_t done = 0; done < text->length;) {
        ssize_t wrote = write(to, text->bytes + done, text->length - done);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

/* All extended attributes: SELinux label, access control list and others. */
static bool copy_attributes(int from, int to) {
    static char names[ATTRIBUTE_NAMES_MOST], value[ATTRIBUTE_MOST];
    ssize_t length = flistxattr(from, names, sizeof names);
    if (length < 0) {
        return errno == ENOTSUP;
    }
    for (char *name = names; name < names + length; name += strlen(name) + 1) {
        ssize_t size = fgetxattr(from, name, value, sizeof value);
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) != 0) {
            return false;
        }
    }
    return true;
}

/* Policies give ld.so.preload the label of ld.so.cache; a new file would get its folder's. Without SELinux
 * there is none. */
static void label_as_cache(const struct file *file, int to) {
    char label[256];
    int cache = openat(file->folder, "ld.so.cache", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = cache >= 0 ? fgetxattr(cache, "security.selinux", label, sizeof label) : -1;
    if (length > 0 && fsetxattr(to, "security.selinux", label, (size_t)length, 0) != 0) {
        say("note: %s: the SELinux label could not be set; 'restorecon' sets it", file->path);
    }
    if (cache >= 0) {
        close(cache);
    }
}

static bool same_nature(const struct file *file, int to) {
    struct stat stat;
    if (file->old < 0) {
        label_as_cache(file, to);
        return fchmod(to, 0644) == 0;
    }
    /* Owner before mode: changing the owner clears bits of the mode. Access lists change the mode: it comes
     * last. */
    return fstat(file->old, &stat) == 0 && fchown(to, stat.st_uid, stat.st_gid) == 0 && copy_attributes(file->old, to) &&
           fchmod(to, stat.st_mode & 07777) == 0;
}

/* Writes a new file with the attributes of the old one, syncs it, renames it, and syncs the folder. */
static bool write_as(struct file *file, const struct text *text, const char *name) {
    int to = openat(file->folder, file->fresh_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0) {
        return fail(file, "cannot write beside it", NULL);
    }
    bool written = write_all(to, text) && same_nature(file, to) && fsync(to) == 0;
    int why = errno;
    written = close(to) == 0 && written;
    if (written && renameat(file->folder, file->fresh_name, file->folder, name) == 0) {
        return fsync(file->folder) == 0 || fail(file, "the folder could not be written to disk", NULL);
    }
    errno = written ? errno : why;
    fail(file, "cannot be replaced",
         errno == EBUSY ? "it is a mount point (a container's?): change it where it comes from" : NULL);
    unlinkat(file->folder, file->fresh_name, 0);
    return false;
}

bool file_replace(struct file *file, const struct text *text) {
    return write_as(file, text, file->name);
}

bool file_delete(struct file *file) {
    if (unlinkat(file->folder, file->name, 0) != 0 && errno != ENOENT) {
        return fail(file, "cannot be deleted", NULL);
    }
    return fsync(file->folder) == 0 || fail(file, "the folder could not be written to disk", NULL);
}

bool file_back_up(struct file *file, const struct text *text) {
    return write_as(file, text, file->backup_name);
}

bool file_read_backup(struct file *file, struct text *backup) {
    int from = openat(file->folder, file->backup_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t got = from >= 0 ? read(from, backup->bytes, sizeof backup->bytes) : -1;
    if (from >= 0) {
        close(from);
    }
    backup->length = got > 0 ? (size_t)got : 0;
    return got >= 0;
}

void file_drop_backup(struct file *file) {
    unlinkat(file->folder, file->backup_name, 0); /* one that stays does no harm */
}
