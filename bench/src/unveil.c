// SPDX-License-Identifier: Apache-2.0
/*
 * unveil - lets libimas.so count although valgrind runs the program: for counting instructions of trial mode,
 * nothing else.
 *
 * libimas.so does nothing when LD_PRELOAD names valgrind's own preload (memcheck and its kin replace malloc
 * themselves). Cachegrind does not, so the hook may work here. This library stands last in LD_PRELOAD;
 * constructors of preloads run from the last to the first, so ours spoils that name before libimas.so reads
 * it. It exports nothing.
 */
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void spoil_the_name(void) {
    char *preloads = getenv("LD_PRELOAD");
    char *found = preloads != NULL ? strstr(preloads, "/vgpreload_") : NULL;
    for (; found != NULL; found = strstr(found + 1, "/vgpreload_"))
        found[1] = 'V';
}
