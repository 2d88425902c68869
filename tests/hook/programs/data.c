// SPDX-License-Identifier: Apache-2.0
/* LIBRARY: a library with data by the name of one of libc's functions, NAME. Else a program that is linked with it. */
extern int printf(const char *format, ...);

#ifdef LIBRARY
double NAME[] = {1, 2, 3};
double sum(void);
double sum(void) {
    NAME[2] += 4;
    return NAME[0] + NAME[1] + NAME[2];
}
#else
extern double sum(void);
int main(void) {
    printf("%g\n", sum());
    return 0;
}
#endif
