// SPDX-License-Identifier: Apache-2.0
/* Patches libc's code of munmap, madvise, mremap and mmap in place, as libraries for remote memory access
 * do, to hear of each page that leaves. Prints how often the pages of a freed block were gone unheard. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CANNOT_RUN 77
#define BLOCK ((size_t)8 << 20)

static volatile uintptr_t watched; /* an address in the middle of the block */
static volatile int heard;

static void hear(const void *at, size_t bytes) {
    if (watched - (uintptr_t)at < bytes)
        heard = 1;
}

static int hears_munmap(void *at, size_t bytes) {
    hear(at, bytes);
    return (int)syscall(SYS_munmap, at, bytes);
}
static int hears_madvise(void *at, size_t bytes, int advice) {
    hear(at, bytes);
    return (int)syscall(SYS_madvise, at, bytes, advice);
}
static void *hears_mremap(void *at, size_t bytes, size_t wanted, int flags, void *place) {
    hear(at, bytes);
    return (void *)syscall(SYS_mremap, at, bytes, wanted, flags, place);
}
static void *hears_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if ((flags & MAP_FIXED) != 0)
        hear(at, bytes);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

#if defined(__x86_64__)
static const unsigned char jump[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3}; /* mov $0, %r11; jmp *%r11 */
#define TARGET 2
#else
static const unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; /* ldr x16, 8; br x16 */
#define TARGET 8
#endif

static void patch(void *libc, const char *name, uintptr_t to) {
    char *code = dlsym(libc, name);
    const uintptr_t page = (uintptr_t)getpagesize(), first = (uintptr_t)code & -page;
    if (mprotect((void *)first, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        exit(CANNOT_RUN);
    memcpy(code, jump, sizeof jump);
    memcpy(code + TARGET, &to, sizeof to);
    __builtin___clear_cache(code, code + sizeof jump);
}

static int is_there(void) {
    unsigned char resident = 0;
    return mincore((void *)(watched & -(uintptr_t)getpagesize()), 1, &resident) == 0 && (resident & 1) != 0;
}

static int is_gone_unheard(void) {
    char *block = malloc(BLOCK);
    watched = (uintptr_t)block + BLOCK / 2;
    *(volatile char *)watched = 1; /* a compiler may leave memset out before free */
    heard = 0;
    free(block);
    for (int i = 0; i < 3; i++)
        free(malloc(BLOCK / 2)); /* an allocator may wait for another call */
    usleep(10000);
    return !heard && !is_there();
}

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    int unheard = 0;
    patch(libc, "munmap", (uintptr_t)hears_munmap);
    patch(libc, "madvise", (uintptr_t)hears_madvise);
    patch(libc, "mremap", (uintptr_t)hears_mremap);
    patch(libc, "mmap", (uintptr_t)hears_mmap);
    for (int i = 0; i < 20; i++)
        unheard += is_gone_unheard();
    printf("unheard %d\n", unheard);
    return 0;
}
