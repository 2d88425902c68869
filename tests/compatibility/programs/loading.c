// SPDX-License-Identifier: Apache-2.0
/* loading WHAT FOLDER: dlopen, dlclose and dlmopen of libplugin.so. */
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choice.h"

static const char *library;

static int used(void *opened) {
    char *(*give)(void) = (char *(*)(void))dlsym(opened, "give");
    void (*take)(void *) = (void (*)(void *))dlsym(opened, "take");
    char *text = give();
    printf("%s\n", text);
    free(text);
    take(malloc(100));
    return 0;
}

static int open_as(int flags) {
    void *opened = dlopen(library, flags);
    if (opened == NULL)
        return puts(dlerror());
    used(opened);
    return printf("%d\n", dlclose(opened));
}

static int opened(void) { return open_as(RTLD_NOW); }
static int lazy_global(void) { return open_as(RTLD_LAZY | RTLD_GLOBAL); }
static int deep(void) { return open_as(RTLD_NOW | RTLD_DEEPBIND); }

static int same_namespace(void) {
    void *handle = dlmopen(LM_ID_BASE, library, RTLD_NOW | RTLD_DEEPBIND);
    return handle == NULL ? puts(dlerror()) : used(handle);
}

/* Another namespace has a C library of its own: what it gives it must take back. */
static int own_namespace(void) {
    void *handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
    if (handle == NULL)
        return puts(dlerror());
    char *(*give)(void) = (char *(*)(void))dlsym(handle, "give");
    void (*take)(void *) = (void (*)(void *))dlsym(handle, "take");
    char *text = give();
    printf("%s\n", text);
    take(text);
    return printf("%d\n", dlclose(handle));
}

static int again_and_again(void) {
    for (int i = 0; i < 200; i++) {
        void *opened = dlopen(library, RTLD_NOW);
        used(opened);
        dlclose(opened);
    }
    return 0;
}

static int counted(struct dl_phdr_info *info, size_t size, void *count) {
    (void)info, (void)size;
    return (*(int *)count)++, 0;
}

/* Everything that can be closed is closed; what is still there answers. */
static int close_everything(void) {
    int before = 0, after = 0;
    dl_iterate_phdr(counted, &before);
    void *opened = dlopen(library, RTLD_NOW);
    while (opened != NULL && dlclose(opened) == 0 && (opened = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) != NULL) {
    }
    dl_iterate_phdr(counted, &after);
    free(malloc(1000));
    return printf("%d\n", before == after);
}

/* A symbol that a program looks up belongs to the program's own family: whatever serves malloc serves
 * free. */
static int looked_up(void) {
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
    void (*release)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
    size_t (*room)(void *) = (size_t (*)(void *))dlsym(RTLD_DEFAULT, "malloc_usable_size");
    void *one = allocate(100), *two = malloc(200);
    printf("%d %d\n", room(one) >= 100, room(two) >= 200);
    free(one);
    release(two);
    return 0;
}

static int forked(void) {
    pid_t child = fork();
    if (child == 0) {
        free(malloc(100));
        _exit(3);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return printf("%d\n", WEXITSTATUS(status));
}

/* Fork handlers of a library go with it: a fork after dlclose must not call them. */
static int handlers_closed(void) {
    for (int i = 0; i < 3; i++) {
        void *opened = dlopen(library, RTLD_NOW);
        if (opened == NULL)
            return puts(dlerror());
        forked();
        dlclose(opened);
        forked();
    }
    return 0;
}

static const struct choice CHOICES[] = {
    {"opened", opened}, {"lazy-global", lazy_global}, {"deep", deep}, {"same-namespace", same_namespace},
    {"own-namespace", own_namespace}, {"again", again_and_again}, {"close-everything", close_everything},
    {"looked-up", looked_up}, {"handlers-closed", handlers_closed}, {NULL, NULL},
};

int main(int count, char **words) {
    library = count > 2 ? words[2] : "";
    return choose(CHOICES, count, words);
}
