// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <stddef.h>

#include "../abi/imas_abi.h"
#include "text.h"

/* The value part of `entry` if it is an entry of `name`, else NULL. */
static const char *value_of(const char *entry, const char *name) {
    const char *rest = text_after(entry, name);
    return rest != NULL && *rest == '=' ? rest + 1 : NULL;
}

const char *environment_value(char **environment, const char *name) {
    for (; *environment != NULL; environment++) {
        const char *value = value_of(*environment, name);
        if (value != NULL)
            return value;
    }
    return NULL;
}

bool environment_flag(char **environment, const char *name) {
    const char *value = environment_value(environment, name);
    return value != NULL && text_equal(value, "1");
}

bool environment_same_name(const char *a, const char *b) {
    for (; *a == *b && *a != '=' && *a != '\0'; a++, b++) {
    }
    return *a == '=' && *b == '=';
}

/* The entry of that name that has `before` others of it before it, or NULL. */
static char **find_same_name(char **environment, const char *entry, size_t before) {
    for (; *environment != NULL; environment++) {
        if (environment_same_name(*environment, entry) && before-- == 0)
            return environment;
    }
    return NULL;
}

/* How many of the entries from `environment` to `end` are IMAS_WAS_ entries of the same name as `was`. */
static size_t count_changed(char **environment, char **end, const char *was) {
    size_t count = 0;
    for (; environment != end; environment++) {
        const char *other = text_after(*environment, IMAS_ENV_WAS);
        count += other != NULL && environment_same_name(other, was);
    }
    return count;
}

/* Lets each changed name point into its IMAS_WAS_ entry again. A name may be there twice; then it has two of
 * those, in the order of its own. A name that is gone takes the place of that entry. */
static void put_back_changed(char **environment) {
    for (char **entry = environment; *entry != NULL; entry++) {
        char *was = (char *)text_after(*entry, IMAS_ENV_WAS);
        if (was == NULL)
            continue;
        char **changed = find_same_name(environment, was, count_changed(environment, entry, was));
        *(changed != NULL ? changed : entry) = was;
    }
}

/* Whether the name of `entry` stands in the colon-separated list. */
static bool listed(const char *entry, const char *list) {
    while (*list != '\0') {
        const char *at = entry;
        while (*list == *at && *list != ':' && *list != '\0') {
            list++;
            at++;
        }
        if (*at == '=' && (*list == ':' || *list == '\0'))
            return true;
        while (*list != ':' && *list != '\0')
            list++;
        if (*list == ':')
            list++;
    }
    return false;
}

bool environment_is_set(char **environment, const char *entry) {
    const char *unset = environment_value(environment, IMAS_ENV_UNSET);
    if (unset != NULL && listed(entry, unset))
        return true;
    for (; *environment != NULL; environment++) {
        const char *was = text_after(*environment, IMAS_ENV_WAS);
        if (was != NULL && environment_same_name(was, entry))
            return true;
    }
    return false;
}

/* Whether a name of the colon-separated list is no name of ours. */
static bool lists_setting(const char *list) {
    while (*list != '\0') {
        const char *start = list;
        while (*list != ':' && *list != '\0')
            list++;
        const char *preload = text_after(start, "LD_PRELOAD");
        if (preload != list && text_after(start, "IMAS_") == NULL && list != start)
            return true;
        if (*list == ':')
            list++;
    }
    return false;
}

bool environment_has_settings(char **environment) {
    for (; *environment != NULL; environment++) {
        const char *changed = text_after(*environment, IMAS_ENV_WAS);
        const char *added = value_of(*environment, IMAS_ENV_UNSET);
        if ((changed != NULL && value_of(changed, "LD_PRELOAD") == NULL) || (added != NULL && lists_setting(added)))
            return true;
    }
    return false;
}

static bool of_launcher(const char *entry) {
    return value_of(entry, IMAS_ENV_PAGE) != NULL || value_of(entry, IMAS_ENV_UNSET) != NULL ||
           value_of(entry, IMAS_ENV_ALONE) != NULL || value_of(entry, IMAS_ENV_PAD) != NULL || text_after(entry, IMAS_ENV_WAS) != NULL;
}

/* Closes the gaps: keeps, in their order, the entries that were there before the launcher. */
static void drop_added(char **environment, const char *unset) {
    char **kept = environment;
    for (char **entry = environment; *entry != NULL; entry++) {
        if (!of_launcher(*entry) && !listed(*entry, unset))
            *kept++ = *entry;
    }
    *kept = NULL;
}

static void drop_page(char **environment) {
    char **kept = environment;
    for (char **entry = environment; *entry != NULL; entry++) {
        if (value_of(*entry, IMAS_ENV_PAGE) == NULL && value_of(*entry, IMAS_ENV_PAD) == NULL)
            *kept++ = *entry;
    }
    *kept = NULL;
}

void environment_restore_all(char **environment) {
    const char *unset = environment_value(environment, IMAS_ENV_UNSET);
    put_back_changed(environment);
    drop_added(environment, unset != NULL ? unset : "");
}

void environment_restore(char **environment) {
    if (environment_flag(environment, IMAS_ENV_TREE))
        return;
    if (environment_flag(environment, IMAS_ENV_FOLLOW))
        drop_page(environment);
    else
        environment_restore_all(environment);
}
