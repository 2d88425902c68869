// SPDX-License-Identifier: Apache-2.0
//
// Hoard behind C functions: what upstream's libhoard.cpp and unixtls.cpp do, for any thread, however it
// was made (theirs knows only threads made through its own pthread_create), and without their 32 MiB
// start-up buffer. Upstream's files are used unmodified; see hoard_layers.h for the layers replaced.
#include "hoard_layers.h"
#include "apart.h"
#include "heaplayers.h"
#include "hoardtlab.h"
#include "hoard_heap.h"

#include <new>
#include <pthread.h>
#include <string.h>

void hoard_install_fork_handlers();

namespace {

enum ThreadState { UNKNOWN = 0, ALIVE, DYING };

constexpr int BUFFER_DOUBLES = sizeof(TheCustomHeapType) / sizeof(double) + 1;

// The fast path reads only `heap`: null unless the thread is ALIVE.
__thread TheCustomHeapType *heap;
__thread ThreadState state;
__thread int destructorRounds;
__thread double heapBuffer[BUFFER_DOUBLES];

pthread_key_t threadEnd;

Hoard::HoardHeapType *makeMainHeap()
{
    static double buffer[sizeof(Hoard::HoardHeapType) / sizeof(double) + 1];
    auto *made = new (buffer) Hoard::HoardHeapType;
    // The source's singleton is made on first use: now, while there is one thread.
    made->free(made->malloc(Hoard::BigObjectSize + 1));
    made->free(made->malloc(1));
    return made;
}

Hoard::HoardHeapType *mainHeap()
{
    static Hoard::HoardHeapType *theHeap = makeMainHeap();
    return theHeap;
}

// Other libraries' destructors still allocate and free: run in the last round, and let whatever comes
// after it go to the shared heap.
void endThread(void *)
{
    if (++destructorRounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(threadEnd, &state);
        return;
    }
    TheCustomHeapType *last = heap;
    heap = nullptr;
    state = DYING;
    last->~TheCustomHeapType();
    mainHeap()->releaseHeap();
}

void beginProcess()
{
    mainHeap();
    pthread_key_create(&threadEnd, endThread);
    hoard_install_fork_handlers();
}

__attribute__((noinline)) TheCustomHeapType *beginThread()
{
    static bool begun = false;
    // The first call of a process comes before a second thread can exist.
    if (!begun) {
        begun = true;
        beginProcess();
    } else {
        mainHeap()->findUnusedHeap();
    }
    heap = new (heapBuffer) TheCustomHeapType(mainHeap());
    state = ALIVE;
    pthread_setspecific(threadEnd, &state);
    return heap;
}

// The thread's heap, or null in a thread that is past its end.
inline TheCustomHeapType *threadHeap()
{
    TheCustomHeapType *mine = heap;
    if (__builtin_expect(mine != nullptr, 1))
        return mine;
    return state == DYING ? nullptr : beginThread();
}

// Hoard finds a block's superblock by rounding its address down, so no block of its own begins on a
// superblock boundary. A block that must (alignment >= SUPERBLOCK_SIZE) is mapped apart. NULL counts too.
inline bool isApart(const void *block)
{
    return (reinterpret_cast<uintptr_t>(block) & (SUPERBLOCK_SIZE - 1)) == 0;
}

__attribute__((noinline)) void freeApart(void *block)
{
    if (block != nullptr)
        apart_unmap(block);
}

} // namespace

extern "C" {

void *hoard_malloc(size_t size)
{
    TheCustomHeapType *mine = threadHeap();
    return __builtin_expect(mine != nullptr, 1) ? mine->malloc(size) : mainHeap()->malloc(size);
}

// One test finds both NULL and a block mapped apart.
void hoard_free(void *block)
{
    if (__builtin_expect(isApart(block), 0)) {
        freeApart(block);
        return;
    }
    TheCustomHeapType *mine = threadHeap();
    if (__builtin_expect(mine != nullptr, 1)) {
        mine->free(block);
        return;
    }
    auto *superblock = Hoard::TLABBase::getSuperblock(block);
    mainHeap()->free(superblock->normalize(block));
}

size_t hoard_usable(void *block)
{
    if (__builtin_expect(isApart(block), 0))
        return apart_usable(block);
    return Hoard::TLABBase::getSize(block);
}

// Upstream's copies on every change of size and frees the block when it fails; this one keeps a block
// that fits and is not more than half empty.
void *hoard_realloc(void *block, size_t size)
{
    size_t usable = hoard_usable(block);
    if (size <= usable && size >= usable / 2)
        return block;
    void *moved = hoard_malloc(size);
    if (moved == nullptr)
        return nullptr;
    memcpy(moved, block, usable < size ? usable : size);
    hoard_free(block);
    return moved;
}

// Hoard frees by any address inside a small block or inside the first superblock of a big one, so an
// aligned block may begin in the middle of one.
void *hoard_aligned(size_t alignment, size_t size)
{
    if (alignment >= SUPERBLOCK_SIZE)
        return apart_map(alignment, size);
    void *block = hoard_malloc(size + alignment);
    if (block == nullptr)
        return nullptr;
    uintptr_t address = reinterpret_cast<uintptr_t>(block);
    return reinterpret_cast<void *>((address + alignment - 1) & ~(alignment - 1));
}
}
