// SPDX-License-Identifier: Apache-2.0
/*
 * atfork_loading.c - the process's first pthread_atfork is called by a thread, while another loads a library
 * whose constructor waits for it. With -DLIBRARY that library. glibc's pthread_atfork takes no lock of the
 * loader.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#ifdef LIBRARY
static void nothing(void) {}

static void *enlist(void *unused) {
    pthread_atfork(nothing, nothing, nothing);
    return unused;
}

__attribute__((constructor)) static void enter(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, enlist, NULL);
    pthread_join(thread, NULL);
}
#else
int main(void) {
    alarm(20);
    void *library = dlopen("libatfork_loading.so", RTLD_NOW);
    puts(library != NULL ? "loaded" : dlerror());
    return library == NULL;
}
#endif
