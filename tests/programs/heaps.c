// SPDX-License-Identifier: Apache-2.0
// THREADS BLOCKS [MOVES]: each thread fills its arena with blocks of many sizes and frees most of them, some in long rows.
// After each line on standard input the program answers with a line. 's': what mallinfo2 says, "free live arena".
// 't': resident anonymous KiB before and after malloc_trim(0). 'w': from now on the threads go on allocating. 'f': forks a
// child that waits. With MOVES the program moves its break itself from time to time.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifdef OLD_MALLINFO // before 2.33: its numbers have 32 bits
#define mallinfo2 mallinfo
#endif

static pthread_barrier_t filled;
static atomic_int work;
static long blocks;

static unsigned next_number(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static size_t size_of(unsigned *state)
{
    unsigned kind = next_number(state) % 100;
    unsigned number = next_number(state);
    if (kind < 60)
        return 16 + number % 100;
    return kind < 97 ? 100 + number % 3000 : 4000 + number % 60000;
}

static void *fill(void *seed)
{
    unsigned state = (unsigned)(size_t)seed * 7919u + 1u;
    char **kept = malloc((size_t)blocks * sizeof *kept);
    for (long index = 0; index < blocks; index++) {
        size_t bytes = size_of(&state);
        kept[index] = malloc(bytes);
        memset(kept[index], 1, bytes);
    }
    for (long index = 0; index < blocks; index++) {
        int in_row = index / 2000 % 2 == 0 && index % 500 != 0;
        if (in_row || next_number(&state) % 3 == 0) {
            free(kept[index]);
            kept[index] = NULL;
        }
    }
    pthread_barrier_wait(&filled);
    for (long index = 0;; index = (index + 1) % blocks) {
        if (!atomic_load(&work)) {
            usleep(1000);
            continue;
        }
        free(kept[index]);
        kept[index] = malloc(size_of(&state));
        if (index % 200 == 0)
            usleep(1000);
    }
    return NULL;
}

static long anonymous_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "RssAnon: %ld", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

int main(int count, char **words)
{
    static char input[64], output[4096]; // no buffers from malloc between a look and the answer
    long threads = count > 1 ? atol(words[1]) : 4;
    blocks = count > 2 ? atol(words[2]) : 20000;
    setvbuf(stdin, input, _IOFBF, sizeof input);
    setvbuf(stdout, output, _IOLBF, sizeof output);
    pthread_barrier_init(&filled, NULL, (unsigned)threads + 1);
    for (long index = 0; index < threads; index++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, fill, (void *)(size_t)(index + 1)) != 0)
            return 1;
    }
    char **own = malloc((size_t)blocks * sizeof *own);
    unsigned state = 1;
    for (long index = 0; index < blocks; index++) {
        size_t bytes = size_of(&state);
        own[index] = malloc(bytes);
        memset(own[index], 1, bytes);
        if (count > 3 && index % (blocks / 5) == 0)
            memset(sbrk(100000), 2, 100000);
    }
    for (long index = 0; index < blocks; index++) {
        if (index % 4 != 0 || index > blocks - blocks / 8)
            free(own[index]);
    }
    pthread_barrier_wait(&filled);
    printf("ready\n");
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (line[0] == 's') {
            struct mallinfo2 info = mallinfo2();
            printf("%zu %zu %zu\n", (size_t)info.fordblks, (size_t)info.uordblks, (size_t)info.arena);
        } else if (line[0] == 't') {
            long before = anonymous_kib();
            malloc_trim(0);
            printf("%ld %ld\n", before, anonymous_kib());
        } else if (line[0] == 'f') {
            pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                    pause();
            }
            printf("%d\n", child);
        } else {
            atomic_store(&work, 1);
            printf("works\n");
        }
    }
    return 0;
}
