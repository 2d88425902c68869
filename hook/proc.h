// SPDX-License-Identifier: Apache-2.0
/*
 * proc.h - figures of this process in /proc, read with system calls only.
 *
 * There is one buffer: callers make sure that no other thread is here (snapshot.c's flag, the constructor, a
 * forked child).
 */
#ifndef IMAS_HOOK_PROC_H
#define IMAS_HOOK_PROC_H

#include <stdint.h>

/* Bytes of private writable mappings without a file, and [heap]; without thread stacks and our own tables. */
uint64_t proc_heap_bytes(void);

/* Resident bytes that are ours alone: smaps_rollup's Pss_Anon - LazyFree + SwapPss, without our own
 * tables. */
uint64_t proc_resident_bytes(void);

/* VmHWM of /proc/self/status in bytes. */
uint64_t proc_peak_resident_bytes(void);

/* "Seccomp:" of /proc/self/status; 0 is none. */
uint64_t proc_seccomp(void);

/* Field 22 of /proc/self/stat: when this process started. */
uint64_t proc_start_ticks(void);

/* Remembers the size of stacks that libc gives to threads. Called once, from the constructor. */
void proc_note_stack_size(uint64_t bytes);

#endif
