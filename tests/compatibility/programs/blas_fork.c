// SPDX-License-Identifier: Apache-2.0
/* Linked with OpenBLAS, which ends its threads in a handler of fork. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);

int main(void) {
    int n = 300;
    double *a = calloc((size_t)(n * n), 8), *b = calloc((size_t)(n * n), 8), *c = calloc((size_t)(n * n), 8);
    a[0] = b[0] = 1;
    for (int i = 0; i < 5; i++) {
        cblas_dgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
        pid_t child = fork();
        if (child == 0) {
            cblas_dgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
            _exit(3);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%d\n", WEXITSTATUS(status));
    }
    printf("%g\n", c[0]);
    return 0;
}
