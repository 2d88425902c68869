// SPDX-License-Identifier: Apache-2.0
/* deepbind.h - dlopen and dlmopen without RTLD_DEEPBIND, which lets a plugin find libc's malloc before the candidate's. */
#ifndef IMAS_HOOK_DEEPBIND_H
#define IMAS_HOOK_DEEPBIND_H

#include <stdbool.h>

/* Whether the flag is taken away; true until told otherwise, because libraries may call dlopen before we know. */
void deepbind_strip(bool strip);

#endif
