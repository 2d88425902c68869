# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags of hook/ and record/.

CC ?= gcc
# The one that belongs to the compiler: another machine's code has another.
STRIP ?= $(shell $(CC) -print-prog-name=strip)
CFLAGS_C := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes
# We are the functions whose meaning the compiler would assume.
NO_BUILTINS := -fno-builtin-malloc -fno-builtin-free -fno-builtin-calloc -fno-builtin-realloc

# For libraries that define malloc. initial-exec: malloc must never reach __tls_get_addr, which may allocate. No
# stack protector: its failure path prints through libc. No loop is turned into a call of strlen: while ld.so
# relocates us (unfit.c), the address of a libc function may be a stub of the program, which is not yet relocated.
CFLAGS_HOOK := $(CFLAGS_C) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector $(NO_BUILTINS) \
  -fno-tree-loop-distribute-patterns -foptimize-sibling-calls -fomit-frame-pointer -fno-plt $(EXTRA_CFLAGS)
# What we define we call ourselves: a program's own _exit that calls _Exit would call itself for ever through ours.
LDFLAGS_HOOK := -shared -Wl,-Bsymbolic-functions -Wl,-z,now,-z,relro,-z,noexecstack -Wl,--no-undefined -Wl,--as-needed -Wl,--build-id -Wl,-O1
