// SPDX-License-Identifier: Apache-2.0
// A static program that looks like one of Go: with GOGC at 200 it works less, as with fewer collections. Prints its
// process id, GOGC and the CPU time that it used, in seconds. Arguments: number of threads, exit status. With OF_MUSL it
// looks like no runtime, and prints the allocator that was loaded in place of GOGC.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef OF_MUSL
static const char *setting(void) {
    static const char *const library = "libjemalloc.so";
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, library) != NULL)
            return library;
    return NULL;
}
#else
__attribute__((section(".go.buildinfo"), used)) static const char build[] =
    "\xff Go buildinf:"
    "\x08\x02"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\x08"
    "go1.26.8";

static const char *setting(void) { return getenv("GOGC"); }
#endif

enum { MOST_THREADS = 8, KEPT_BYTES = 32 << 20 };

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *work(void *amount) {
    double end = seconds(CLOCK_THREAD_CPUTIME_ID) + *(double *)amount;
    while (seconds(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
    return NULL;
}

int main(int argc, char **argv) {
    double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const char *set = setting();
    double amount = set != NULL && strcmp(set, "200") == 0 ? 0.05 : 0.1;
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t others[MOST_THREADS];
    char *kept = malloc(KEPT_BYTES);
    if (kept == NULL || threads < 1 || threads > MOST_THREADS)
        return 99;
    memset(kept, 1, KEPT_BYTES);
    for (int i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, work, &amount) != 0)
            return 99;
    work(&amount);
    for (int i = 1; i < threads; i++)
        pthread_join(others[i], NULL);
    printf("%d %s %.6f\n", (int)getpid(), set != NULL ? set : "-", seconds(CLOCK_PROCESS_CPUTIME_ID) - begin);
    fflush(stdout);
    _exit(argc > 2 ? atoi(argv[2]) : 0);
}
