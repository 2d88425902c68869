// SPDX-License-Identifier: Apache-2.0
// snmalloc, a library of headers, behind C functions. Fork: SNMALLOC_PTHREAD_FORK_PROTECTION, and
// mend_queues below.
#include <snmalloc/aal/aal.h>
#include <snmalloc/mitigations/mitigations_all.h>
#include <snmalloc/pal/pal_concept.h>
#include <snmalloc/pal/pal_consts.h>
#include <snmalloc/pal/pal_linux.h>

namespace imas
{
// snmalloc's table of chunks covers the whole address space: 256 GiB, of which a program uses some pages.
// snmalloc reserves it readable and writable, and mlockall then gives each page memory, until the machine
// has none left. Here it is reserved without access, and the parts are opened that snmalloc says it will
// use.
class Pal : public snmalloc::PALLinux
{
    static constexpr size_t LEAST_TABLE = size_t(1) << 32; // its first reservation of this size is the table
    static inline char *table = nullptr;
    static inline size_t table_size = 0;

  public:
    static void *reserve(size_t size) noexcept
    {
        if (table != nullptr || size < LEAST_TABLE)
            return snmalloc::PALLinux::reserve(size);
        void *at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return nullptr;
        table = static_cast<char *>(at);
        table_size = size;
        return at;
    }

    template<snmalloc::ZeroMem zero_mem>
    static bool notify_using(void *at, size_t size) noexcept
    {
        if (static_cast<size_t>(static_cast<char *>(at) - table) >= table_size)
            return snmalloc::PALLinux::notify_using<zero_mem>(at, size);
        KeepErrno keep;
        return mprotect(at, size, PROT_READ | PROT_WRITE) == 0;
    }

    // Asked for once, for the whole table. Entries are read that were never opened only for a block that is
    // not snmalloc's.
    static bool notify_using_readonly(void *, size_t) noexcept
    {
        return true;
    }
};
}

#define SNMALLOC_MEMORY_PROVIDER imas::Pal
#include <snmalloc/snmalloc.h>
#include <pthread.h>

// A block freed by another thread goes into a queue of the heap that it came from. The sender exchanges the
// queue's end, then links the old end to the block. snmalloc lets a process fork between the two
// (freelist_queue.h: "the following non-linearisable effect"). In the child nobody makes the link: a thread
// that ends with such a heap waits for it for ever, and what is sent to it later is never found.
namespace imas
{
using Heap = snmalloc::Alloc;
using Queue = decltype(snmalloc::RemoteAllocator::list);
using Heaps = snmalloc::AllocPool<snmalloc::Config>;

// The member is private; an explicit instantiation may name it.
template<auto Member>
struct Opener
{
    friend auto *queue_owner_of(Heap *heap)
    {
        return (heap->*Member)();
    }
};
auto *queue_owner_of(Heap *heap);
template struct Opener<&Heap::public_state>;

// The queue ends where its links end. Blocks behind a missing link stay in use.
static void mend_queue(Queue &queue)
{
    auto as_it_is = [](snmalloc::freelist::QueuePtr pointer) {
        return snmalloc::freelist::HeadPtr::unsafe_from(pointer.unsafe_ptr());
    };
    if (queue.back.load() == nullptr)
        return;
    auto front = queue.front.load();
    if (front == nullptr) {
        queue.back.store(nullptr);
        return;
    }
    auto &key = snmalloc::RemoteAllocator::key_global;
    auto last = as_it_is(front);
    for (auto next = last; next != nullptr; next = last->atomic_read_next(key, snmalloc::NO_KEY_TWEAK, as_it_is))
        last = next;
    queue.back.store(snmalloc::capptr_rewild(last));
}

// In the child, before any other thread begins: mends the queue of the forking thread's heap, and of those
// that no thread has. The others belonged to threads of the parent, and nobody will read their queues.
static void mend_queues()
{
    Heap *own = &snmalloc::ThreadAlloc::get();
    for (Heap *heap = Heaps::iterate(); heap != nullptr; heap = Heaps::iterate(heap))
        if (heap == own || !heap->in_use.load())
            mend_queue(queue_owner_of(heap)->list);
}

__attribute__((constructor)) static void mend_queues_at_fork()
{
    pthread_atfork(nullptr, nullptr, mend_queues);
}
}

extern "C" {

void *sn_malloc(size_t size)
{
    return snmalloc::libc::malloc(size);
}

void sn_free(void *block)
{
    snmalloc::libc::free(block);
}

void *sn_calloc(size_t count, size_t size)
{
    return snmalloc::libc::calloc(count, size);
}

void *sn_realloc(void *block, size_t size)
{
    return snmalloc::libc::realloc(block, size);
}

void *sn_memalign(size_t alignment, size_t size)
{
    return snmalloc::libc::memalign(alignment, size);
}

size_t sn_usable(void *block)
{
    return snmalloc::libc::malloc_usable_size(block);
}
}
