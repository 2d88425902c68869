// SPDX-License-Identifier: Apache-2.0
/* names: a program that has a function of its own by the name of one of libc's: ON_EXIT, GETAUXVAL, PHDR or LEAVE, SIGNAL,
 * SIGACTION. The first three are for nobody but the program. The others are made of a function that the guard defines, too. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>

extern _Noreturn void exit(int status);
extern void *dlsym(void *handle, const char *name);

#if defined(ON_EXIT)
void on_exit(int status);
void on_exit(int status) {
    printf("on_exit %d\n", status);
    exit(1);
}
static int work(char **environment) {
    return *environment == NULL;
}
#elif defined(GETAUXVAL)
static const unsigned long *table; /* filled in by main */
unsigned long getauxval(unsigned long type);
unsigned long getauxval(unsigned long type) {
    const unsigned long *entry = table;
    while (entry[0] != type && entry[0] != AT_NULL)
        entry += 2;
    return entry[1];
}
static int work(char **environment) {
    while (*environment != NULL)
        environment++;
    table = (const unsigned long *)(environment + 1);
    return getauxval(AT_PAGESZ) < 4096;
}
#elif defined(PHDR)
typedef int iterate_call(int (*call)(struct dl_phdr_info *info, size_t size, void *argument), void *argument);
static iterate_call *libc_has;
__attribute__((constructor)) static void find(void) {
    libc_has = (iterate_call *)dlsym((void *)-1L, "dl_iterate_phdr");
}
int dl_iterate_phdr(int (*call)(struct dl_phdr_info *info, size_t size, void *argument), void *argument) {
    return libc_has(call, argument);
}
static int count(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)info, (void)size;
    ++*(int *)argument;
    return 0;
}
static int work(char **environment) {
    int objects = 0;
    (void)environment;
    dl_iterate_phdr(count, &objects);
    return objects < 2;
}
#elif defined(LEAVE)
extern _Noreturn void _Exit(int status);
_Noreturn void _exit(int status);
_Noreturn void _exit(int status) { /* as programs do that note their coverage */
    fflush(stdout);
    _Exit(status);
}
static int work(char **environment) {
    (void)environment;
    printf("leaves\n");
    _exit(3);
}
#else
#include <signal.h>
typedef void handler_call(int signal);
extern handler_call *bsd_signal(int signal, handler_call *handler), *__sysv_signal(int signal, handler_call *handler);
#if defined(SIGNAL)
handler_call *signal(int number, handler_call *handler) {
    return bsd_signal(number, handler);
}
#else
int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    (void)before;
    return __sysv_signal(number, action->sa_handler) == SIG_ERR ? -1 : 0;
}
#endif
static int work(char **environment) {
    struct sigaction action = {.sa_handler = SIG_IGN};
    (void)environment;
    return signal(SIGUSR1, SIG_DFL) != SIG_DFL || sigaction(SIGUSR1, &action, NULL) != 0 || raise(SIGUSR1) != 0;
}
#endif

int main(int count_of_arguments, char **arguments, char **environment) {
    (void)count_of_arguments, (void)arguments;
    int failed = work(environment);
    printf("done\n");
    return failed;
}
