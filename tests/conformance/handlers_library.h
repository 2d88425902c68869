// SPDX-License-Identifier: Apache-2.0
//
// A library whose constructor registers fork handlers that allocate, before a preloaded allocator is
// initialised.
#ifndef CONFORMANCE_HANDLERS_LIBRARY_H
#define CONFORMANCE_HANDLERS_LIBRARY_H

enum { IN_PREPARE = 1, IN_PARENT = 2, IN_CHILD = 4 };

// Which of its handlers allocate.
extern volatile int handlers_allocate;

// How often each has run: prepare, parent, child.
extern volatile int handlers_ran[3];

// With 1 there is a thread that the prepare handler ends and waits for, and that the others begin again.
void handlers_worker(int wanted);

#endif
