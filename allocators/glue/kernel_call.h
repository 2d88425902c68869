// SPDX-License-Identifier: Apache-2.0
//
// A system call made where it stands. libc's syscall() is a function that the program's own libraries may define
// (wrappers of sockets do), and theirs may call malloc: inside an allocator that is a call into itself.
//
//   kernel_call(number, a, b, c, d, e, f)   answers as the kernel does: a negative value is -errno
#ifndef IMAS_KERNEL_CALL_H
#define IMAS_KERNEL_CALL_H

#if defined(__x86_64__)
static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
}
#elif defined(__aarch64__)
static inline long kernel_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "the system calls of x86-64 and aarch64 are known"
#endif

#endif
