// SPDX-License-Identifier: Apache-2.0
/* deepbind.h - dlopen and dlmopen without RTLD_DEEPBIND, which lets a plugin find libc's malloc before the
 * candidate's. */
#ifndef IMAS_HOOK_DEEPBIND_H
#define IMAS_HOOK_DEEPBIND_H

#include <stdbool.h>

/* Sets whether the flag is removed. Until the first call it is: libraries may call dlopen before our
 * constructor. */
void deepbind_strip(bool strip);

#endif
