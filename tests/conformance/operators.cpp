// SPDX-License-Identifier: Apache-2.0
// C++: libstdc++'s operators reach the allocator, throw when it refuses, and align.
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "fact.h"
#include "served.h"
}

static bool throws(std::size_t size)
{
    try {
        opaque(::operator new(opaque_size(size)));
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void checkRefusals()
{
    fact("new-throws-bad_alloc", throws(static_cast<std::size_t>(1) << 62) && throws(SIZE_MAX - 100), "did not throw");
    void *none = opaque(::operator new(opaque_size(static_cast<std::size_t>(1) << 62), std::nothrow));
    fact("new-nothrow-null", none == nullptr, "%p", none);
}

static void checkAligned()
{
    for (std::size_t alignment = 32; alignment <= 65536; alignment *= 2) {
        void *block = opaque(::operator new(100, std::align_val_t(alignment)));
        fact("new-aligned", is_aligned(block, alignment), "alignment %zu is %p", alignment, block);
        ::operator delete(block, 100, std::align_val_t(alignment));
    }
}

static void checkSized()
{
    for (std::size_t size = 1; size < 100000; size = size * 3 / 2 + 1)
        ::operator delete(opaque(::operator new(opaque_size(size))), size);
    // malloc and new share one heap in all programs that mix them up.
    std::free(opaque(::operator new(100)));
    ::operator delete(opaque(std::malloc(100)));
    fact("new-and-malloc-mix", true, "unseen");
}

static void checkContainers()
{
    std::vector<std::string> texts;
    for (int index = 0; index < 20000; index++)
        texts.push_back(std::string(static_cast<std::size_t>(index % 200), static_cast<char>('a' + index % 26)));
    bool whole = true;
    for (int index = 0; index < 20000; index++)
        whole = whole && texts[static_cast<std::size_t>(index)].size() == static_cast<std::size_t>(index % 200);
    fact("containers", whole, "texts changed");
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    checkRefusals();
    checkAligned();
    checkSized();
    checkContainers();
    return facts_end();
}
