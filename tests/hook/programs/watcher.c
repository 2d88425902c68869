// SPDX-License-Identifier: Apache-2.0
/* LIBRARY: a library with definitions of its own of functions that the guard or the hook defines, as watchers of a process
 * and fakers of the clock have them. Else a program that is linked with it, and calls each. */
extern int puts(const char *text), printf(const char *format, ...);
extern void *dlsym(void *handle, const char *name);
extern long syscall(long number, ...);
extern int prctl(int option, ...), fflush(void *stream);
extern _Noreturn void _exit(int status), _Exit(int status);

#ifdef LIBRARY
#define NEXT(type, name) ((type)dlsym((void *)-1L, name))
#define ASKED 424242

long syscall(long number, ...) {
    __builtin_va_list list;
    __builtin_va_start(list, number);
    long a = __builtin_va_arg(list, long), b = __builtin_va_arg(list, long), c = __builtin_va_arg(list, long);
    __builtin_va_end(list);
    return number == ASKED ? a + b : NEXT(long (*)(long, ...), "syscall")(number, a, b, c);
}

int prctl(int option, ...) {
    __builtin_va_list list;
    __builtin_va_start(list, option);
    long a = __builtin_va_arg(list, long), b = __builtin_va_arg(list, long), c = __builtin_va_arg(list, long);
    long d = __builtin_va_arg(list, long);
    __builtin_va_end(list);
    return option == ASKED ? (int)(a + d) : NEXT(int (*)(int, ...), "prctl")(option, a, b, c, d);
}

_Noreturn void _exit(int status) {
    puts("seen");
    fflush((void *)0);
    NEXT(void (*)(int), "_exit")(status);
    __builtin_unreachable();
}

_Noreturn void _Exit(int status) {
    puts("seen, too");
    fflush((void *)0);
    NEXT(void (*)(int), "_Exit")(status);
    __builtin_unreachable();
}
#else
int main(int count, char **arguments) {
    (void)arguments;
    printf("%ld %d %ld\n", syscall(424242, 1L, 2L, 0L), prctl(424242, 3L, 0L, 0L, 4L), syscall(424243, 0L, 0L, 0L));
    if (count > 1)
        _Exit(5);
    _exit(6);
}
#endif
