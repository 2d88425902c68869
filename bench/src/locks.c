// SPDX-License-Identifier: Apache-2.0
// locks THREADS BATCHES SPINS: each thread allocates and frees a batch of blocks beyond glibc's caches of threads, which
// takes the lock of an arena for each call, then works for SPINS rounds without malloc; BATCHES times. Prints the wall
// time and the CPU time in nanoseconds, and how often a thread gave its CPU up to wait.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { BLOCKS = 16, BYTES = 2048, MOST = 1024 };

static long batches, spins;
static pthread_barrier_t begin;

static void *work(void *seed)
{
	volatile unsigned long state = (unsigned long)seed;
	void *blocks[BLOCKS];
	pthread_barrier_wait(&begin);
	for (long batch = 0; batch < batches; batch++) {
		for (int at = 0; at < BLOCKS; at++) {
			blocks[at] = malloc(BYTES);
			if (!blocks[at])
				abort();
			*(volatile char *)blocks[at] = 1;
		}
		for (int at = 0; at < BLOCKS; at++)
			free(blocks[at]);
		for (long spin = 0; spin < spins; spin++)
			state = state * 2862933555777941757UL + 3037000493UL;
	}
	return NULL;
}

static long long now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words)
{
	long threads = count == 4 ? atol(words[1]) : 0;
	pthread_t all[MOST];
	struct rusage use;
	if (threads < 1 || threads > MOST) {
		fprintf(stderr, "usage: locks THREADS BATCHES SPINS, 1 to %d threads\n", MOST);
		return 2;
	}
	batches = atol(words[2]);
	spins = atol(words[3]);
	pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
	for (long at = 0; at < threads; at++)
		if (pthread_create(&all[at], NULL, work, (void *)(at + 1)))
			return 1;
	long long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	pthread_barrier_wait(&begin);
	for (long at = 0; at < threads; at++)
		pthread_join(all[at], NULL);
	wall = now(CLOCK_MONOTONIC) - wall;
	cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	getrusage(RUSAGE_SELF, &use);
	printf("%lld %lld %ld\n", wall, cpu, use.ru_nvcsw);
	return 0;
}
