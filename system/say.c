// SPDX-License-Identifier: Apache-2.0
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const char *say_name = "imas";

/* One write for a line, so that lines of several processes do not mix in a journal. */
static void line(int where, const char *name, const char *format, va_list arguments) {
    char text[1024];
    int used = name ? snprintf(text, sizeof text, "%s: ", name) : 0;
    int more = vsnprintf(text + used, sizeof text - 1 - (size_t)used, format, arguments);
    if (more < 0) {
        return;
    }
    size_t length = (size_t)used + (size_t)more;
    if (length > sizeof text - 2) {
        length = sizeof text - 2;
    }
    text[length++] = '\n';
    if (write(where, text, length) < 0) {
        return; /* nothing more can be reported */
    }
}

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line(STDOUT_FILENO, NULL, format, arguments);
    va_end(arguments);
}

int say_error(const char *hint, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line(STDERR_FILENO, say_name, format, arguments);
    va_end(arguments);
    if (hint) {
        dprintf(STDERR_FILENO, "hint: %s\n", hint);
    }
    return UNABLE;
}
