// SPDX-License-Identifier: Apache-2.0
/* A failing dlsym allocates its message; and the first dlerror must not show a failure that is not the
 * program's. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char *first = dlerror();
    printf("at start: %s\n", first != NULL ? first : "none");
    for (int i = 0; i < 1000; i++) {
        if (dlsym(RTLD_DEFAULT, "no_such_symbol_at_all") != NULL)
            return 1;
        if (i % 2 == 0 && strstr(dlerror(), "no_such_symbol_at_all") == NULL)
            return 1;
    }
    printf("dlopen of nothing: %d\n", dlopen("/nonexistent/library.so", RTLD_NOW) == NULL);
    printf("%d\n", strstr(dlerror(), "/nonexistent/library.so") != NULL);
    return 0;
}
