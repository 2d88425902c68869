// SPDX-License-Identifier: Apache-2.0
// Heap of a program that is trimmed from outside: 20 MB, of which a hundredth is in use; where its C library has what a trim
// needs; and whether the blocks in use are as they were. The function that is called in place of malloc_trim counts.
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 20000, BYTES = 1000, UNSORTED = 0x60 };

static char *blocks[BLOCKS];
static volatile int trims;         // calls of `counted_trim`
static volatile int is_within, was_within; // it runs; a signal handler ran meanwhile
static void (*volatile within)(void); // called within it

static int counted_trim(size_t kept)
{
    trims++;
    is_within = 1;
    if (within)
        within();
    int given_back = malloc_trim(kept);
    is_within = 0;
    return given_back;
}

static void nothing(int signal)
{
    (void)signal;
    was_within |= is_within;
}

// The instructions to which signal handlers return.
#ifdef __aarch64__
static void *restorer(void)
{
    const unsigned *code = (const unsigned *)getauxval(AT_SYSINFO_EHDR);
    while (code[0] != 0xd2801168 || code[1] != 0xd4000001) // mov x8, #139; svc #0
        code++;
    return (void *)code;
}
#else
static void *restorer(void)
{
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } now;
    struct sigaction ours = {.sa_handler = nothing};
    sigaction(SIGUSR2, &ours, NULL);
    syscall(SYS_rt_sigaction, SIGUSR2, NULL, &now, 8);
    return now.restorer;
}
#endif

// The head of the list of unsorted blocks is in the first arena.
static char *first_arena(void)
{
    void **large = malloc(4000), *fence = malloc(16);
    free(large);
    char *arena = (char *)*large - UNSORTED;
    free(fence);
    return arena;
}

// Fills the heap, and says where all is, and which thread waits in which call.
static void fill(int thread, long call)
{
    char *arena = first_arena();
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BYTES), 1, BYTES);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 100)
            free(blocks[i]);
    printf("%p %p %p %d %ld\n", (void *)counted_trim, restorer(), (void *)arena, thread, call);
    fflush(stdout);
}

static void say_how_it_is(void)
{
    for (int i = 0; i < BLOCKS; i += 100)
        for (int k = 0; k < BYTES; k++)
            if (blocks[i][k] != 1) {
                puts("wrong block");
                exit(1);
            }
    puts(was_within ? "a signal handler ran within malloc_trim" : "as before");
}
