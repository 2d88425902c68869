// SPDX-License-Identifier: Apache-2.0
/* Test 4: where a policy puts a request, by address.
 *
 * Six holes, kept apart by blocks that stay. The first request fits into hole 4 only and leaves
 * next fit's rover there; from the second on the four policies choose four different holes. Prints
 * the number of the hole that each request went to, 0 for new memory:
 *
 *   hole, bytes    1: 2000  2: 3000  3: 1000  4: 5000  5: 1200  6: 3500
 *   request, bytes    4500    900   1150    950    950   1900
 *   first fit            4      1      2      1      2      6
 *   next fit             4      5      6      6      6      1
 *   best fit             4      3      5      1      1      2
 *   worst fit            4      6      2      6      1      0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOLES = 6, REQUESTS = 6, WALL_BYTES = 64 };

static const size_t hole_bytes[HOLES] = {2000, 3000, 1000, 5000, 1200, 3500};
static const size_t request_bytes[REQUESTS] = {4500, 900, 1150, 950, 950, 1900};
static uintptr_t hole[HOLES];

static void make_holes(void)
{
    for (int i = 0; i < HOLES; i++) {
        hole[i] = (uintptr_t)malloc(hole_bytes[i]);
        if (!malloc(WALL_BYTES)) /* the wall to the next hole: never freed */
            exit(1);
    }
    for (int i = 0; i < HOLES; i++)
        free((void *)hole[i]);
}

static int hole_of(uintptr_t address)
{
    for (int i = 0; i < HOLES; i++)
        if (hole[i] <= address && address < hole[i] + hole_bytes[i])
            return i + 1;
    return 0;
}

int main(void)
{
    puts("Running test 4 to see where each request is placed");
    make_holes();
    int placed = 0;
    for (int i = 0; i < REQUESTS; i++)
        placed = placed * 10 + hole_of((uintptr_t)malloc(request_bytes[i]));
    printf("placement %06d\n", placed);
    return 0;
}
