// SPDX-License-Identifier: Apache-2.0
/* give_back_settings.h - settings of libimas-giveback.so, which its own constructor would find taken away again. */
#ifndef IMAS_HOOK_GIVE_BACK_SETTINGS_H
#define IMAS_HOOK_GIVE_BACK_SETTINGS_H

#include <stddef.h>

/* Defined by libimas-giveback.so, where that is loaded. */
extern void imas_give_back_settings(char **environment) __attribute__((weak));

static inline void tell_give_back_its_settings(char **environment) {
    if (imas_give_back_settings != NULL)
        imas_give_back_settings(environment);
}

#endif
