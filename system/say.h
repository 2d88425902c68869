// SPDX-License-Identifier: Apache-2.0
/*
 * say.h - messages of the static tools. On standard error: `NAME: what: why`, then `hint: ...`. Nothing is
 * allocated.
 */
#ifndef IMAS_SAY_H
#define IMAS_SAY_H

/* Exit status of both tools. */
enum answer {
    DONE = 0,  /* yes, or done */
    NO = 1,    /* the answer is no, or the change was taken back */
    UNABLE = 2 /* could not */
};

/* The tool's name, for its messages. */
extern const char *say_name;

/* A fact, on standard output. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* What could not be done and why, and what to do about it; `hint` may be NULL. Answers UNABLE. */
__attribute__((format(printf, 2, 3))) int say_error(const char *hint, const char *format, ...);

#endif
