// SPDX-License-Identifier: Apache-2.0
//
// mimalloc and fork. Its locks and lists are its own, so this is compiled as one unit with it (MIMALLOC_SOURCE names
// its file: version 2 or 3).
//
// Locks: the forking thread takes each that a call of the malloc family can take. In the child it is the only thread,
// and releases them.
//
// Steps that belong together: most of mimalloc works without locks, so a thread of the parent may be between two steps
// at the fork, and nobody does the second one in the child. unit_mend_child does those that somebody would wait for.
// Memory that a thread was moving stays unused in the child. Only the child of a process with several threads pays for
// it (docs/decisions/0017-fork-handlers-in-order.md).
#include MIMALLOC_SOURCE

#include <pthread.h>

#if MI_MALLOC_VERSION >= 30000

// In the order in which mimalloc nests them. The lists of a thread's own heaps are not among them: only mi_heap_delete
// takes them from another thread, and the malloc family never calls it.
static mi_lock_t *const unit_locks[] = {
    &subprocs_lock,
    &subproc_main.heaps_lock,
    &mi_thread_locals_lock,
    &heap_main.theaps_lock,
    &heap_main.arena_pages_lock,
    &heap_main.os_abandoned_pages_lock,
    &subproc_main.arena_reserve_lock,
    &mi_page_map_lock,
    &out_buf_lock,
};

// The thread of this page is not in the child, and may have been changing the page. A new thread may get the same
// identity, and would take the page for its own.
static void unit_disown(mi_page_t *page)
{
    mi_threadid_t flags = mi_page_xthread_id(page) & MI_PAGE_HAS_INTERIOR_POINTERS;
    mi_atomic_store_release(&page->xthread_id, MI_THREADID_ABANDONED | flags);
}

// A thread that looks for an abandoned page clears its bit, tries to own the page, and sets the bit again when it
// fails. Who owns the page waits until it is set.
static void unit_show_abandoned(mi_page_t *page, size_t slice, mi_arena_pages_t *pages)
{
    mi_bitmap_t *abandoned = pages->pages_abandoned[_mi_bin(mi_page_block_size(page))];
    if (!mi_page_is_owned(page) && !mi_bitmap_is_set(abandoned, slice))
        mi_bitmap_set(abandoned, slice);
}

static bool unit_mend_page(size_t slice, size_t count, mi_arena_t *arena, void *self)
{
    MI_UNUSED(count);
    mi_page_t *page = mi_arena_page_at_slice(arena, slice);
    if (mi_page_is_abandoned_mapped(page))
        unit_show_abandoned(page, slice, mi_heap_arena_pages(&heap_main, arena));
    else if (!mi_page_is_abandoned(page) && mi_page_thread_id(page) != *(mi_threadid_t *)self)
        unit_disown(page);
    return true;
}

static void unit_mend_child(void)
{
    mi_threadid_t self = _mi_thread_id();
    const size_t count = mi_arenas_get_count(&subproc_main);
    for (size_t index = 0; index < count; index++) {
        mi_arena_t *arena = mi_arena_from_index(&subproc_main, index);
        mi_arena_pages_t *pages = arena != NULL ? mi_heap_arena_pages(&heap_main, arena) : NULL;
        if (pages != NULL)
            _mi_bitmap_forall_set(pages->pages, unit_mend_page, arena, &self);
    }
}

#else

static mi_lock_t *const unit_locks[] = {
    &mi_subproc_default.abandoned_os_visit_lock,
    &mi_subproc_default.abandoned_os_lock,
    &out_buf_lock,
};

// A thread was freeing the first block of a full page of ours. The page's owner waits until it has done so; the next
// thread that frees one of these blocks may begin anew.
static bool unit_end_delayed_free(mi_heap_t *heap, mi_page_queue_t *queue, mi_page_t *page, void *a, void *b)
{
    MI_UNUSED(heap);
    MI_UNUSED(queue);
    MI_UNUSED(a);
    MI_UNUSED(b);
    mi_thread_free_t seen = mi_atomic_load_relaxed(&page->xthread_free);
    if (mi_tf_delayed(seen) == MI_DELAYED_FREEING)
        mi_atomic_store_release(&page->xthread_free, mi_tf_set_delayed(seen, MI_USE_DELAYED_FREE));
    return true;
}

static void unit_mend_child(void)
{
    mi_heap_t *heap = mi_prim_get_default_heap();
    if (mi_heap_is_initialized(heap))
        mi_heap_visit_pages(heap, unit_end_delayed_free, true, NULL, NULL);
}

#endif

enum { UNIT_LOCKS = sizeof unit_locks / sizeof *unit_locks };

static void unit_lock_all(void)
{
    for (int index = 0; index < UNIT_LOCKS; index++)
        mi_lock_acquire(unit_locks[index]);
}

static void unit_unlock_all(void)
{
    for (int index = UNIT_LOCKS; index-- > 0;)
        mi_lock_release(unit_locks[index]);
}

static void unit_begin_child(void)
{
    unit_unlock_all();
    unit_mend_child();
}

static __attribute__((constructor)) void unit_survive_fork(void)
{
    pthread_atfork(unit_lock_all, unit_unlock_all, unit_begin_child);
}
