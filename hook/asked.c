// SPDX-License-Identifier: Apache-2.0
#include "asked.h"

#include "sys.h"

static struct imas_trim_word word __attribute__((aligned(64), used)) = {
    .magic = IMAS_TRIM_MAGIC, .magic_2 = IMAS_TRIM_MAGIC_2, .version = IMAS_TRIM_VERSION};

void asked_begin(enum imas_trim_answers answers) {
    set_relaxed(word.answers, answers);
}

void asked_end(void) {
    set_relaxed(word.answers, IMAS_TRIM_NOBODY);
}

uint64_t asked_now(void) {
    uint64_t request = get_relaxed(word.asked);
    return request != get_relaxed(word.answered) ? request : 0;
}

void asked_answer(uint64_t request, uint64_t returned_pages, uint64_t took_ns) {
    set_relaxed(word.returned_pages, returned_pages);
    set_relaxed(word.took_ns, took_ns);
    __atomic_store_n(&word.answered, request, __ATOMIC_RELEASE);
}
