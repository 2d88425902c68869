// SPDX-License-Identifier: Apache-2.0
/*
 * held MODE [MIB] - holds 20 MiB of blocks, or so many, and then does one thing with memory for ever, as a known truth for bench/held.
 * It writes "ready" when it has begun. Some 300 kB a second come to what grows.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUND = 30, BASE_MIB = 20 };

struct node {
    struct node *next, *other;
    char text[48];
};
struct link {
    struct link *next, *back;
};
/* Reached by the address of its link alone. */
struct carrier {
    long number;
    char text[104];
    struct link link;
};

static struct node *base, *list;
static struct link ring = {&ring, &ring};
static void **table;
static size_t used;
static uint64_t hidden;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct node *own;

static void rest(void)
{
    usleep(20000);
}

static void *fresh(size_t bytes)
{
    char *block = malloc(bytes);
    memset(block, 'x', bytes);
    return block;
}

static struct node *node(struct node *next)
{
    struct node *one = fresh(sizeof *one);
    one->next = next;
    one->other = NULL;
    return one;
}

static void hold_base(size_t mib)
{
    for (size_t bytes = 0; bytes < mib << 20; bytes += 80)
        base = node(base);
}

static void *leak(void *size)
{
    for (;; rest())
        for (int i = 0; i < ROUND; i++)
            fresh((size_t)size + (size_t)(i % 3) * 16);
}

static void in_threads(void *(*work)(void *), void *with, int count)
{
    pthread_t thread;
    for (int i = 0; i < count; i++)
        pthread_create(&thread, NULL, work, with);
    for (;;)
        pause();
}

/* Blocks of 1 MiB have mappings of their own. */
static void leak_large(size_t bytes)
{
    for (;; usleep(250000)) {
        char *block = malloc(bytes);
        for (size_t i = 0; i < bytes; i += 4096)
            block[i] = 1;
    }
}

/* Two blocks that point to each other, and a text. */
static void leak_cycles(void)
{
    for (;; rest())
        for (int i = 0; i < ROUND; i++) {
            struct node *one = node(NULL), *two = node(one);
            one->next = two;
            two->other = fresh(100);
        }
}

static void leak_once(void)
{
    for (int i = 0; i < 2000; i++)
        fresh(500);
    for (;;)
        pause();
}

static void cache(void)
{
    for (;; rest())
        for (int i = 0; i < 3 * ROUND; i++)
            list = node(list);
}

/* The head of the list is in a register or on the stack. */
static void local_list(void)
{
    struct node *mine = NULL;
    for (;; rest())
        for (int i = 0; i < 3 * ROUND; i++)
            mine = node(mine);
}

static void ring_buffer(void)
{
    enum { COUNT = 20000 };
    void **slots = calloc(COUNT, sizeof *slots);
    for (size_t at = 0;; at++) {
        free(slots[at % COUNT]);
        slots[at % COUNT] = fresh(64 + at % 300);
        if (at % 200 == 0)
            rest();
    }
}

static void fragmented(int every)
{
    enum { COUNT = 40000 };
    table = calloc(COUNT, sizeof *table);
    for (size_t i = 0; i < COUNT; i++)
        table[i] = fresh(2000);
    list = node(list);
    for (size_t i = 0; i < COUNT; i++)
        if (every == 0 || i % (size_t)every) {
            free(table[i]);
            table[i] = NULL;
        }
    for (;;)
        pause();
}

static void intrusive(void)
{
    for (;; rest())
        for (int i = 0; i < ROUND; i++) {
            struct carrier *one = fresh(sizeof *one);
            one->link = (struct link){ring.next, &ring};
            ring.next->back = &one->link;
            ring.next = &one->link;
        }
}

static void tagged(int below)
{
    size_t room = 1 << 20;
    uint64_t *words = calloc(room, sizeof *words);
    for (;; rest())
        for (int i = 0; i < ROUND; i++) {
            uint64_t word = (uintptr_t)fresh(120);
            words[used++ % room] = below ? word << 16 | 0x17 : word | 0xfff9ull << 48;
        }
}

struct __attribute__((packed)) odd {
    uint32_t number;
    void *block;
    uint16_t more;
};

static void packed(void)
{
    struct odd *odd = calloc(1 << 20, sizeof *odd);
    for (;; rest())
        for (int i = 0; i < ROUND; i++)
            odd[used++ % (1 << 20)].block = fresh(120);
}

static void table_churn(void)
{
    enum { COUNT = 1 << 14 };
    table = calloc(COUNT, sizeof *table);
    for (uint64_t seed = 1;; rest())
        for (int i = 0; i < 400; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t one = seed >> 33 & (COUNT - 1), two = seed >> 45 & (COUNT - 1);
            free(table[one]);
            table[one] = table[two]; /* a pointer that moves */
            table[two] = fresh(16 + (seed >> 20) % 700);
        }
}

static void resize_churn(void)
{
    enum { COUNT = 2000 };
    table = calloc(COUNT, sizeof *table);
    for (uint64_t seed = 1;; rest())
        for (int i = 0; i < 300; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t bytes = 16 + (seed >> 20) % 20000;
            size_t at = (seed >> 33) % COUNT;
            table[at] = realloc(table[at], bytes);
            memset(table[at], 1, bytes);
        }
}

static void vector(void)
{
    size_t room = 0;
    for (;; rest())
        for (int i = 0; i < ROUND; i++) {
            if (used == room)
                table = realloc(table, (room = room * 2 + 16) * sizeof *table);
            table[used++] = fresh(100);
        }
}

static void *short_life(void *unused)
{
    (void)unused;
    struct node *mine = NULL;
    for (int i = 0; i < 500; i++)
        mine = node(mine);
    usleep(30000);
    while (mine) {
        struct node *next = mine->next;
        free(mine);
        mine = next;
    }
    return NULL;
}

static void thread_churn(void)
{
    for (;;) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, short_life, NULL);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
}

static void fork_server(void)
{
    for (;; rest()) {
        list = node(list);
        if (fork() == 0) {
            for (int i = 0; i < 100; i++)
                fresh(1000);
            _exit(0);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}

static void epoll_only(void)
{
    int set = epoll_create1(0);
    for (int i = 0; i < 700; i++) {
        for (int k = 0; k < 1; k++) {
            struct epoll_event event = {EPOLLIN, {fresh(9000)}};
            epoll_ctl(set, EPOLL_CTL_ADD, eventfd(0, 0), &event);
        }
        rest();
    }
    for (;;)
        pause();
}

/* Blocks of malloc that an arena of the program's own points to. */
static void own_arena(void)
{
    void **arena = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (;; rest())
        for (int i = 0; i < ROUND; i++)
            arena[used++ * 64] = fresh(120);
}

static void arena_grows(void)
{
    for (;; rest())
        memset(mmap(NULL, 32 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 32 << 10);
}

static void shared_table(void)
{
    void **shared = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (;; rest())
        for (int i = 0; i < ROUND; i++)
            shared[used++] = fresh(120);
}

static void *thread_local_list(void *unused)
{
    (void)unused;
    for (;; rest())
        for (int i = 0; i < ROUND; i++)
            own = node(own);
}

/* A list whose links are the exclusive or of both neighbours; old ones are freed, so that it does not grow. */
static void xor_list(void)
{
    enum { COUNT = 20000 };
    uint64_t *words = calloc(COUNT, sizeof *words);
    hidden = (uint64_t)getpid() << 40 ^ 0x5a5a5a5a5a5aull;
    for (;; rest())
        for (int i = 0; i < 60; i++, used++) {
            if (words[used % COUNT])
                free((void *)(uintptr_t)(words[used % COUNT] ^ hidden));
            words[used % COUNT] = (uintptr_t)fresh(120) ^ hidden;
        }
}

static void *produce(void *unused)
{
    (void)unused;
    for (;; rest())
        for (int i = 0; i < 200; i++) {
            pthread_mutex_lock(&lock);
            list = node(list);
            pthread_mutex_unlock(&lock);
        }
}

static void *consume(void *unused)
{
    (void)unused;
    for (;; usleep(7000)) {
        pthread_mutex_lock(&lock);
        struct node *mine = list;
        list = NULL;
        pthread_mutex_unlock(&lock);
        usleep(7000);
        while (mine) {
            struct node *next = mine->next;
            free(mine);
            mine = next;
        }
    }
}

static void pipeline(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, produce, NULL);
    consume(NULL);
}

/* One in a hundred is forgotten, all others are freed. */
static void leak_among_churn(void)
{
    enum { COUNT = 20000 };
    table = calloc(COUNT, sizeof *table);
    for (;; rest())
        for (int i = 0; i < 500; i++, used++) {
            if (used % 100)
                free(table[used % COUNT]);
            table[used % COUNT] = fresh(264);
        }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    hold_base(argc > 2 ? (size_t)atol(argv[2]) : BASE_MIB);
    printf("ready\n");
    fflush(stdout);
#define MODE(name, does)                                                                                            \
    if (strcmp(mode, name) == 0)                                                                                    \
    does
    MODE("leak", leak((void *)200));
    MODE("leak-4-threads", in_threads(leak, (void *)60, 4));
    MODE("leak-large", leak_large(1 << 20));
    MODE("leak-cycles", leak_cycles());
    MODE("leak-once", leak_once());
    MODE("leak-among-churn", leak_among_churn());
    MODE("cache", cache());
    MODE("local-list", local_list());
    MODE("ring-buffer", ring_buffer());
    MODE("freed", fragmented(0));
    MODE("fragmented", fragmented(4));
    MODE("intrusive", intrusive());
    MODE("tagged", tagged(0));
    MODE("tagged-below", tagged(1));
    MODE("packed", packed());
    MODE("table-churn", table_churn());
    MODE("resize-churn", resize_churn());
    MODE("vector", vector());
    MODE("thread-churn", thread_churn());
    MODE("fork-server", fork_server());
    MODE("epoll-only", epoll_only());
    MODE("own-arena", own_arena());
    MODE("arena-grows", arena_grows());
    MODE("shared-table", shared_table());
    MODE("thread-local", in_threads(thread_local_list, NULL, 2));
    MODE("hidden-churn", xor_list());
    MODE("pipeline", pipeline());
    fprintf(stderr, "held: no such mode: %s\n", mode);
    return 2;
}
