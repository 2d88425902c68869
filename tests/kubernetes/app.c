/* SPDX-License-Identifier: Apache-2.0 */
/* The service of tests/kubernetes/replicas.py. `app PORT` answers each byte of a connection: it computes for some
 * milliseconds, and for a 'b' it makes 16 MiB of blocks too and frees all but one of 64. At its 40th answer it crashes if
 * mimalloc is loaded. `app PORT full` makes these blocks at its start. `app` alone prints which libraries of /opt/imas are loaded and which variables it has. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 1 << 14, BYTES = 1000, WORK_NS = 5000000, LAST_ANSWER = 40 };

static char *blocks[BLOCKS];
extern char **environ;

static void fill_and_free(void) {
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
        blocks[i] = malloc(BYTES);
        if (blocks[i] != NULL)
            memset(blocks[i], 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 64 == 0)
            continue;
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void compute(void) {
    for (long long until = cpu_ns() + WORK_NS; cpu_ns() < until;) {
    }
}

/* Prints the names of the libraries that are there, if `shown`; whether one of them has the name. */
static int is_loaded(const char *name, int shown) {
    char line[4096], last[4096] = "";
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char *path = strstr(line, "/opt/imas/");
        if (path == NULL)
            continue;
        path[strcspn(path, "\n")] = 0;
        found |= strstr(path, name) != NULL;
        if (shown && strcmp(path, last) != 0)
            printf("%s ", path);
        strcpy(last, path);
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

static void *sleeper(void *nothing) {
    pause();
    return nothing;
}

static void serve(int peer, int dies) {
    static int answers;
    char sign;
    while (read(peer, &sign, 1) == 1) {
        compute();
        if (sign == 'b')
            fill_and_free();
        if (++answers == LAST_ANSWER && dies)
            *(volatile int *)0 = 0;
        if (send(peer, &sign, 1, MSG_NOSIGNAL) != 1)
            break;
    }
    close(peer);
}

int main(int count, char **words) {
    if (count < 2) {
        is_loaded("", 1);
        for (char **one = environ; *one != NULL; one++)
            printf("%.*s ", (int)strcspn(*one, "="), *one);
        puts("");
        return 0;
    }
    int dies = is_loaded("libmimalloc", 0), door = socket(AF_INET, SOCK_STREAM, 0), again = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
    if (bind(door, (struct sockaddr *)&at, sizeof at) != 0 || listen(door, 8) != 0)
        return 3;
    if (count > 2)
        fill_and_free();
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper, NULL);
    for (;;) {
        int peer = accept(door, NULL, NULL);
        if (peer >= 0)
            serve(peer, dies);
    }
}
