// SPDX-License-Identifier: Apache-2.0
//
// What allocators written in C++ and compiled without exceptions still refer to, so that they need
// neither libstdc++.so nor, from libstdc++.a, the part that throws (it takes 72 KB from malloc at
// start). Their own containers get memory from the library's malloc. An error that would have been
// thrown through the program's malloc call ends the process, as an uncaught one would.
#include <new>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>


namespace {

[[noreturn]] __attribute__((cold, noinline)) void stop(const char *what)
{
    static const char who[] = "imas: allocator " IMAS_ALLOCATOR_NAME ": internal error: ";
    // One call each: nothing may be allocated here.
    ssize_t written = write(STDERR_FILENO, who, sizeof who - 1);
    written += write(STDERR_FILENO, what, strlen(what));
    written += write(STDERR_FILENO, "\n", 1);
    (void)written;
    abort();
}

void *must_have(void *block)
{
    return block != nullptr ? block : (stop("out of memory for its own tables"), nullptr);
}

} // namespace

void *operator new(size_t size)
{
    return must_have(malloc(size));
}

void *operator new[](size_t size)
{
    return must_have(malloc(size));
}

void *operator new(size_t size, const std::nothrow_t &) noexcept
{
    return malloc(size);
}

void *operator new[](size_t size, const std::nothrow_t &) noexcept
{
    return malloc(size);
}

void operator delete(void *block) noexcept
{
    free(block);
}

void operator delete[](void *block) noexcept
{
    free(block);
}

void operator delete(void *block, size_t) noexcept
{
    free(block);
}

void operator delete[](void *block, size_t) noexcept
{
    free(block);
}

extern "C" void __cxa_pure_virtual()
{
    stop("pure virtual call");
}

// The headers say that the library has std::string compiled; libstdc++.a's copy throws and catches.
template class std::basic_string<char>;

// The names libstdc++'s headers and libstdc++.a call (bits/functexcept.h).
namespace std {
#define STOPS(name) \
    void name() \
    { \
        stop(#name); \
    }
#define STOPS_WITH(name) \
    void name(const char *what) \
    { \
        stop(what); \
    }
STOPS(__throw_bad_exception)
STOPS(__throw_bad_alloc)
STOPS(__throw_bad_array_new_length)
STOPS(__throw_bad_cast)
STOPS(__throw_bad_typeid)
STOPS(__throw_bad_function_call)
STOPS_WITH(__throw_logic_error)
STOPS_WITH(__throw_domain_error)
STOPS_WITH(__throw_invalid_argument)
STOPS_WITH(__throw_length_error)
STOPS_WITH(__throw_out_of_range)
STOPS_WITH(__throw_runtime_error)
STOPS_WITH(__throw_range_error)
STOPS_WITH(__throw_overflow_error)
STOPS_WITH(__throw_underflow_error)
STOPS_WITH(__throw_ios_failure)

void __throw_out_of_range_fmt(const char *what, ...)
{
    stop(what);
}

void __throw_system_error(int)
{
    stop("__throw_system_error");
}

void __throw_ios_failure(const char *what, int)
{
    stop(what);
}

void __throw_future_error(int)
{
    stop("__throw_future_error");
}
} // namespace std
