/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that hold memory for a known reason: held MODE. Each writes "ready" and then goes on until it is killed. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STEP_US = 20000, PER_STEP = 200, NODES = 200000, MANY = 40000 };

struct node {
	struct node *next;
	char name[56];
};

/* Not static: what nobody reads is not even written, and then nothing points to the blocks. */
struct node *list, *first;
void *table[MANY];
uintptr_t hidden[MANY];
char *text;

static struct node *node(int number)
{
	struct node *made = malloc(sizeof *made + (size_t)(number % 7) * 16);
	snprintf(made->name, sizeof made->name, "node %d of the list", number);
	made->next = NULL;
	return made;
}

static void keep(int number)
{
	struct node *made = node(number);
	made->next = list;
	list = made;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

/* Forgets a string and a pair of nodes, each time. */
static void *leaks(void *unused)
{
	(void)unused;
	for (;;) {
		for (int at = 0; at < PER_STEP; at++) {
			char *lost = malloc(100 + (size_t)(at % 3) * 100);
			sprintf(lost, "leaked string %d", at);
			node(at)->next = node(at + 1);
		}
		usleep(STEP_US);
	}
	return NULL;
}

static void leaks_slowly(void)
{
	for (int at = 0;; at++) {
		memset(malloc(5000), at, 5000);
		usleep(50000);
	}
}

static void leaks_large(void)
{
	for (;;) {
		memset(malloc(300000), 1, 300000);
		usleep(200000);
	}
}

static void *waits(void *unused)
{
	char *own = malloc(3000);
	memset(own, 1, 3000);
	for (;;)
		pause();
	return unused ? unused : own;
}

/* Works with blocks that only its stack and registers know. */
static void *churns(void *unused)
{
	void *own[64] = {NULL};
	for (unsigned at = 1;; at++) {
		unsigned place = at * 2654435761U >> 26;
		free(own[place]);
		own[place] = malloc(16 + at % 3000);
		memset(own[place], (int)at, 16);
		if (at % 20000 == 0)
			usleep(1000);
	}
	return unused;
}

static void threads(void *(*work)(void *), int count)
{
	for (int at = 0; at < count; at++) {
		pthread_t one;
		pthread_create(&one, NULL, work, NULL);
	}
}

/* The list of work that comes and goes: as much is freed as is made. */
static void queues(void)
{
	struct node *last;
	first = last = node(0);
	for (int at = 0;; at++) {
		last->next = node(at);
		last = last->next;
		if (at > NODES) {
			struct node *old = first;
			first = first->next;
			free(old);
			if (at % 2000 == 0)
				usleep(1000);
		}
	}
}

static void caches(size_t bytes)
{
	for (;;) {
		for (int at = 0; at < PER_STEP; at++) {
			struct node *made = calloc(1, bytes);
			made->next = list;
			list = made;
		}
		usleep(STEP_US);
	}
}

static void reallocates(void)
{
	for (size_t bytes = 1 << 20;; bytes += 400000) {
		text = realloc(text, bytes);
		memset(text, 1, bytes);
		usleep(200000);
	}
}

static void only_epoll_knows(void)
{
	int queue = epoll_create1(0);
	for (int at = 0; at < 500; at++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = calloc(1, 20000)};
		epoll_ctl(queue, EPOLL_CTL_ADD, eventfd(0, 0), &event);
	}
	ready();
	struct epoll_event event;
	epoll_wait(queue, &event, 1, -1);
}

static void free_all_but(int every)
{
	for (int at = 0; at < MANY; at++)
		if (!every || at % every)
			free(table[at]);
}

static void fill(size_t bytes)
{
	for (int at = 0; at < MANY; at++)
		memset(table[at] = malloc(bytes), 1, bytes);
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
#define IS(name) (strcmp(mode, name) == 0)
	for (int at = 0; at < NODES; at++)
		keep(at);
	if (IS("epoll"))
		only_epoll_knows();
	if (IS("fragmented")) {
		fill(2000);
		free_all_but(4);
	} else if (IS("freed")) {
		fill(1000);
		table[0] = malloc(64);
		for (int at = 1; at < MANY; at++)
			free(table[at]);
	} else if (IS("hidden") || IS("once")) {
		fill(64);
		for (int at = 0; at < MANY; at++)
			hidden[at] = IS("hidden") ? (uintptr_t)table[at] ^ 0x5555555555555555U : 0;
		memset(table, 0, sizeof table);
	} else if (IS("tagged") || IS("inside")) {
		fill(2000);
		for (int at = 0; at < MANY; at++) {
			uintptr_t word = (uintptr_t)table[at];
			table[at] = (void *)(IS("tagged") ? word | (uintptr_t)at % 255 << 56 : word + 1000);
		}
	} else if (IS("mapped")) {
		for (int at = 0; at < 100; at++)
			memset(table[at] = malloc(500000), 1, 500000);
	}
	ready();
	if (IS("leak"))
		leaks(NULL);
	if (IS("leak-threads"))
		threads(leaks, 4);
	if (IS("leak-slow"))
		leaks_slowly();
	if (IS("leak-large"))
		leaks_large();
	if (IS("churn"))
		threads(churns, 3);
	if (IS("waiting"))
		threads(waits, 40);
	if (IS("queue"))
		queues();
	if (IS("cache"))
		caches(200);
	if (IS("cache-large"))
		caches(8000);
	if (IS("realloc"))
		reallocates();
	for (;;)
		pause();
}
