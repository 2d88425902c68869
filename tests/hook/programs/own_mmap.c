// SPDX-License-Identifier: Apache-2.0
/* A program that keeps a list of the mappings it makes: its own mmap and munmap stand in the executable. With glibc's malloc,
 * which maps by a name of its own, they never run inside malloc. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
struct mapping { void *at; struct mapping *next; };
static struct mapping *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *got = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    pthread_mutex_lock(&lock);
    struct mapping *new = malloc(sizeof *new);
    *new = (struct mapping){got, all};
    all = new;
    pthread_mutex_unlock(&lock);
    return got;
}
int munmap(void *at, size_t bytes) {
    pthread_mutex_lock(&lock);
    for (struct mapping **here = &all; *here != NULL; here = &(*here)->next) {
        if ((*here)->at == at) {
            struct mapping *old = *here;
            *here = old->next;
            free(old);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return (int)syscall(SYS_munmap, at, bytes);
}
int main(void) {
    void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++) {
        char *volatile block = malloc((size_t)1 << (i % 24));
        *block = 1;
        free(block);
    }
    munmap(map, 1 << 20);
    puts("done");
    return 0;
}
