// SPDX-License-Identifier: Apache-2.0
/* LIBRARY: a library with data, or a function (FUNCTION), by the name of one of libc's functions, NAME. Else a program that is
 * linked with it. */
extern int printf(const char *format, ...);
extern double sum(void);

#if defined(LIBRARY) && defined(FUNCTION)
struct list {
    double first, second, third;
};
double NAME(const struct list *list, double more);
double NAME(const struct list *list, double more) {
    return list->first + list->second + list->third + more;
}
double sum(void) {
    static const struct list list = {1, 2, 3};
    return NAME(&list, 4);
}
#elif defined(LIBRARY)
double NAME[] = {1, 2, 3};
double sum(void) {
    NAME[2] += 4;
    return NAME[0] + NAME[1] + NAME[2];
}
#else
int main(void) {
    printf("%g\n", sum());
    return 0;
}
#endif
