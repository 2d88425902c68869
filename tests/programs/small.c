// SPDX-License-Identifier: Apache-2.0
/* small.c - needs no library at all: ends with 7 by the 32-bit system call. */
void _start(void);
void _start(void) {
    __asm__ volatile("int $0x80" : : "a"(1), "b"(7));
    __builtin_unreachable();
}
