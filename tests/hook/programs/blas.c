// SPDX-License-Identifier: Apache-2.0
/* Forks after work of OpenBLAS, whose prepare handler ends its threads. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, N = 300 };

extern void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                        const double *left, int lda, const double *right, int ldb, double beta, double *to, int ldc);

static double a[N * N], b[N * N], *c;

static double multiply(void) {
    cblas_dgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, N, N, N, 1, a, N, b, N, 0, c, N);
    return c[0];
}

int main(void) {
    c = calloc(N * N, sizeof *c);
    for (int i = 0; i < N * N; i++)
        a[i] = b[i] = 1;
    int good = 0;
    for (int round = 0; round < 10; round++) {
        double here = multiply();
        pid_t child = fork();
        if (child == 0)
            _exit(multiply() == here ? 0 : 1);
        int status = -1;
        good += waitpid(child, &status, 0) == child && status == 0;
    }
    printf("%d %g\n", good, c[0]);
    return 0;
}
