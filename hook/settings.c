// SPDX-License-Identifier: Apache-2.0
/*
 * settings.c - libimas-settings.so: preloaded behind the guard or the hook and the allocator for a candidate that sets variables of a
 * language runtime.
 *
 * A runtime reads its settings by getenv in main, when the guard has long restored the environment. So this library
 * notes their values before the guard does that (it is listed behind the guard, and constructors run in the opposite
 * order), and answers the runtime's question. The environment shows nothing of them, to the program or its children.
 * Of most variables the first question alone is answered: every later one is the program's own, which may hand the
 * value on to its children. docs/decisions/0041 has the reasons. It defines no malloc and allocates nothing.
 */
#include <stddef.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "jvm.h"
#include "next_found.h"
#include "sys.h"
#include "text.h"

#define MOST_SETTINGS 32

extern char **environ;

typedef char *getenv_call(const char *name);

struct setting {
    const char *name; /* in the list of names, ended by ':' or '\0' */
    char *value;
    const char *was; /* the user's value, to which ours was added; NULL without one */
    bool is_lasting, is_answered;
};

static struct setting settings[MOST_SETTINGS];
static uint32_t count; /* set when the settings before it are */
static getenv_call *next_getenv, *next_secure_getenv;

static bool is_name(const char *listed, const char *name) {
    while (*name != '\0' && *listed == *name) {
        listed++;
        name++;
    }
    return *name == '\0' && (*listed == ':' || *listed == '\0');
}

/* The value of the entry whose name is listed, behind `prefix`. */
static char *listed_value(char **environment, const char *prefix, const char *listed) {
    for (; *environment != NULL; environment++) {
        const char *entry = text_after(*environment, prefix), *name = listed;
        if (entry == NULL)
            continue;
        while (*name != ':' && *name != '\0' && *entry == *name) {
            entry++;
            name++;
        }
        if (*entry == '=' && name != listed && (*name == ':' || *name == '\0'))
            return (char *)entry + 1;
    }
    return NULL;
}

__attribute__((constructor)) static void keep(int argc, char **arguments, char **at_start) {
    (void)argc;
    char **environment = environ != NULL ? environ : at_start;
    const char *list = environment_value(environment, IMAS_ENV_SETTINGS);
    uint32_t kept = 0;
    while (list != NULL && *list != '\0' && kept < MOST_SETTINGS) {
        bool is_lasting = *list == IMAS_SETTINGS_LASTING;
        const char *name = list + is_lasting;
        struct setting one = {.name = name, .value = listed_value(environment, "", name), .is_lasting = is_lasting};
        one.was = listed_value(environment, IMAS_ENV_WAS, name);
        bool is_asked_for = text_after(name, "IMAS_") == NULL; /* ours are asked for by nobody */
        if (one.value != NULL && is_asked_for)
            settings[kept++] = one;
        while (*list != ':' && *list != '\0')
            list++;
        list += *list == ':';
    }
    jvm_keep(arguments, environment);
    __atomic_store_n(&count, kept, __ATOMIC_RELEASE);
}

/* `now`: what the environment has. A value that the program has set meanwhile is its own wish. */
static bool is_own_wish(const struct setting *one, const char *now) {
    return now != NULL && !text_equal(now, one->value) && (one->was == NULL || !text_equal(now, one->was));
}

static char *answer(const char *name, char *now) {
    uint32_t kept = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
    if (text_equal(name, "JAVA_TOOL_OPTIONS"))
        jvm_set(environ); /* the JVM's first question, before it reads any option */
    for (uint32_t i = 0; i < kept; i++) {
        struct setting *one = &settings[i];
        if (is_name(one->name, name)) {
            bool was_answered = __atomic_exchange_n(&one->is_answered, true, __ATOMIC_RELAXED);
            return (was_answered && !one->is_lasting) || is_own_wish(one, now) ? now : one->value;
        }
    }
    return now;
}

/* A resolver of another library may call getenv while ld.so has not relocated us yet; libc has no environment then either. Only
 * of a weak name may the address be asked for. */
static bool is_relocated(void) {
    extern char **_environ __attribute__((weak)); /* another name of environ */
    return &_environ != NULL;
}

/* libc's function, or another library's that stands between. Not by dlsym: that may allocate, and an allocator asks
 * for its settings before it can. */
static char *next(getenv_call **call, const char *function, const char *name) {
    getenv_call *found = NEXT_LISTED(*call, function);
    if (found != NULL)
        return found(name);
    return is_relocated() && environ != NULL ? (char *)environment_value(environ, name) : NULL;
}

EXPORT char *getenv(const char *name) {
    return answer(name, next(&next_getenv, "getenv", name));
}

EXPORT char *secure_getenv(const char *name) {
    return answer(name, next(&next_secure_getenv, "secure_getenv", name));
}
