/* SPDX-License-Identifier: Apache-2.0 */
/* Read before mimalloc's sources: it gives no names to its mappings. That took one more system call for each, prctl, which few sandboxed programs allow
 * themselves: they were killed when mimalloc mapped memory after they had entered seccomp. glibc's malloc makes none but mmap, munmap, brk, mremap and madvise. */
#include <linux/prctl.h>
#include <sys/prctl.h>

#undef PR_SET_VMA
/* Told to do without huge pages, it does not ask for them, and leaves the switch for the whole process alone: programs that this one starts would inherit it. */
#undef PR_GET_THP_DISABLE
