// SPDX-License-Identifier: Apache-2.0
/*
 * imas-ldpreload - edits /etc/ld.so.preload. Static: it works when no dynamic program starts any more.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edit.h"
#include "hold.h"

#define PRELOAD_FILE "/etc/ld.so.preload"

static const char usage[] = "imas-ldpreload add ENTRY [--file FILE] [-- CHECK ARGUMENT...]\n"
                            "imas-ldpreload remove ENTRY [--file FILE]\n"
                            "imas-ldpreload status ENTRY [--file FILE]\n"
                            "\n"
                            "Edits " PRELOAD_FILE ": whole entries only; what others wrote stays as it is. The file is replaced\n"
                            "as a whole, so that a power cut leaves the old or the new one. add: with a CHECK (absolute path of a\n"
                            "program) everything is put back when it fails. See imas-ldpreload(8).\n"
                            "Exit status: 0 done, or yes; 1 not there, or the check failed; 2 could not.\n";

struct words {
    const char *verb, *entry, *file;
    char *const *check;
};

static bool parse(int count, char **words, struct words *options) {
    *options = (struct words){.file = PRELOAD_FILE};
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--") == 0) {
            options->check = words + i + 1;
            return options->check[0] != NULL;
        }
        if (strcmp(words[i], "--file") == 0) {
            if (++i == count) {
                return false;
            }
            options->file = words[i];
        } else if (words[i][0] == '-' || options->entry) {
            return false;
        } else if (options->verb) {
            options->entry = words[i];
        } else {
            options->verb = words[i];
        }
    }
    return options->entry != NULL;
}

static enum answer status(struct file *file, const char *entry) {
    static struct text text;
    if (!file_read(file, &text)) {
        return UNABLE;
    }
    size_t line = entries_find(&text, entries_is, entry);
    if (!line) {
        say("%s: %s is not there", file->path, entry);
        return NO;
    }
    say("%s: %s is in line %zu", file->path, entry, line);
    return DONE;
}

static enum answer change(struct file *file, const struct words *options) {
    size_t removed;
    if (!file_lock(file)) {
        return UNABLE;
    }
    hold_signals();
    enum answer answer = strcmp(options->verb, "add") == 0 ? edit_add(file, options->entry, options->check)
                                                        : edit_remove(file, entries_is, options->entry, &removed);
    file_unlock(file);
    hold_release();
    return answer;
}

int main(int count, char **words) {
    struct words options;
    struct file file;
    say_name = "imas-ldpreload";
    if (count == 2 && strcmp(words[1], "--version") == 0) {
        say("imas-ldpreload " IMAS_VERSION);
        return DONE;
    }
    if (count == 2 && strcmp(words[1], "--help") == 0) {
        return write(STDOUT_FILENO, usage, sizeof usage - 1) < 0 ? UNABLE : DONE;
    }
    bool known = parse(count, words, &options) && (strcmp(options.verb, "add") == 0 || strcmp(options.verb, "remove") == 0 ||
                                                strcmp(options.verb, "status") == 0);
    if (!known || (options.check && strcmp(options.verb, "add") != 0)) {
        return say_error("imas-ldpreload --help", "these words are not understood");
    }
    if (!entries_nameable(options.entry)) {
        return say_error("an entry is an absolute path without blanks, tabs, colons and #", "'%.200s' cannot be an entry",
                         options.entry);
    }
    if (!file_open(&file, options.file)) {
        return UNABLE;
    }
    return strcmp(options.verb, "status") == 0 ? status(&file, options.entry) : change(&file, &options);
}
