// SPDX-License-Identifier: Apache-2.0
/*
 * imas_interface.h - the functions of allocators' own interfaces that give, take or ask about blocks which malloc and free may have, too.
 *
 * A program that calls one of them is linked with that allocator and mixes its blocks with malloc's: free(mallocx(n, 0)) is right by
 * jemalloc's manual. Under another malloc it crashes, so it is left alone. Functions that touch no block (mallctl, nallocx,
 * tc_mallinfo, mi_option_set) are not listed: Debian's redis-server calls mallctl and nallocx and may be placed. But
 * SWI-Prolog has predicates and a flag that tell what MallocExtension_GetNumericProperty says of its whole heap.
 * Neither is the scalable_malloc of libtbbmalloc: its manual keeps that heap apart from malloc's.
 *
 * Each name ends with a space; one that ends in * stands for all names that begin so.
 * crates/imas-linux/src/elf/interface.rs reads the texts of this file: it holds no other double quotes.
 */
#ifndef IMAS_INTERFACE_H
#define IMAS_INTERFACE_H

/* jemalloc: defined where mallocx is. */
#define IMAS_INTERFACE_JEMALLOC "mallocx rallocx xallocx sallocx dallocx sdallocx "

/* gperftools: defined where tc_malloc is. */
#define IMAS_INTERFACE_TCMALLOC                                                                                          \
    "tc_malloc tc_malloc_skip_new_handler tc_malloc_size tc_free tc_free_sized tc_free_aligned_sized tc_calloc "         \
    "tc_realloc tc_cfree tc_memalign tc_posix_memalign tc_valloc tc_pvalloc tc_new* tc_delete* "                         \
    "MallocExtension_GetAllocatedSize MallocExtension_GetNumericProperty "

/* mimalloc: defined where mi_malloc is. */
#define IMAS_INTERFACE_MIMALLOC                                                                                          \
    "mi_malloc mi_mallocn mi_malloc_small mi_malloc_aligned* mi_malloc_size mi_malloc_usable_size mi_calloc* mi_zalloc* " \
    "mi_realloc* mi_rezalloc* mi_recalloc* mi_free* mi_cfree mi_expand mi_strdup mi_strndup mi_realpath mi_wcsdup "      \
    "mi_mbsdup mi_dupenv_s mi_wdupenv_s mi_usable_size mi_new* mi_posix_memalign mi_memalign mi_valloc mi_pvalloc "      \
    "mi_aligned_alloc mi_aligned_recalloc* mi_aligned_offset_recalloc* mi_heap_malloc* mi_heap_calloc* mi_heap_zalloc* " \
    "mi_heap_realloc* mi_heap_rezalloc* mi_heap_recalloc* mi_heap_strdup mi_heap_strndup mi_heap_realpath "              \
    "mi_heap_alloc_new* "

#endif
