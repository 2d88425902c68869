// SPDX-License-Identifier: Apache-2.0
//! Whether there is room below a thread's stack pointer that nobody else uses.
//!
//! What lies below a stack pointer is free only on a stack: a goroutine, a fiber or a coroutine may have its stack
//! between other data, and in a signal handler the stack may be an array of the program. Two stacks are known: the
//! kernel's own for the first thread (`[stack]`), and the one that glibc's record of the thread names. The record
//! begins or ends at the thread pointer, and has the stack's begin, size and guard side by side.

use crate::frame::{RED_ZONE, SIGN};
use crate::refusal::Unfit;

/// Room that malloc_trim itself may use. It has a few small frames.
const FOR_TRIM: u64 = 16 << 10;
/// Most bytes from the thread pointer to the end of its stack: the record, variables of threads, an alignment.
const MOST_ABOVE: u64 = 4 << 20;
/// Most bytes of a stack that are searched for a signal frame.
const MOST_SEARCHED: u64 = 1 << 20;

/// Addresses from the first to the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) fn has(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }
}

/// A thread that stands still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    /// Its stack pointer.
    pub(crate) pointer: u64,
    /// Its thread pointer.
    pub(crate) thread: u64,
    /// Words of its record.
    pub(crate) record: &'a [u64],
    /// Private writable mapping in which the stack pointer lies.
    pub(crate) mapping: Range,
    /// Whether the kernel calls that mapping the stack of the first thread, and this is the first thread.
    pub(crate) is_first: bool,
}

impl Standing<'_> {
    /// The stack on which the thread runs.
    pub(crate) fn stack(&self) -> Result<Range, Unfit> {
        if self.is_first {
            return Ok(self.mapping);
        }
        let page = rustix::param::page_size() as u64;
        let named = self.record.windows(3).find_map(|words| {
            let [begin, bytes, guard] = words.try_into().ok()?;
            let end = begin.checked_add(bytes)?;
            let is_stack = begin.is_multiple_of(16)
                && begin <= self.pointer
                && self.pointer < self.thread
                && self.thread < end
                && end - self.thread <= MOST_ABOVE
                && guard < bytes
                && guard.is_multiple_of(page);
            is_stack.then(|| Range { begin: begin + guard, end })
        });
        let stack = named.ok_or(Unfit::UnknownStack)?;
        // What the record claims is no more than what is mapped there.
        let begin = stack.begin.max(self.mapping.begin);
        let stack = Range { begin, end: stack.end.min(self.mapping.end) };
        if stack.has(self.pointer) { Ok(stack) } else { Err(Unfit::UnknownStack) }
    }

    /// Whether `frame` bytes and malloc_trim have room below the stack pointer.
    pub(crate) fn has_room(&self, stack: Range, frame: u64) -> bool {
        self.pointer.checked_sub(RED_ZONE + frame + FOR_TRIM).is_some_and(|lowest| lowest >= stack.begin)
    }

    /// The part of the stack that is in use, as far as it is searched for signal frames.
    pub(crate) fn in_use(&self, stack: Range) -> Range {
        Range { begin: self.pointer, end: stack.end.min(self.pointer.saturating_add(MOST_SEARCHED)) }
    }
}

/// Whether words of a stack have a signal frame, so that the thread may be in a handler. A handler may have
/// interrupted malloc, and a process of one thread takes no lock in malloc.
pub(crate) fn has_signal_frame(words: &[u64]) -> bool {
    words.contains(&SIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, proptest};

    const MAPPING: Range = Range { begin: 0x7f00_0000_1000, end: 0x7f00_0080_1000 };
    const THREAD: u64 = MAPPING.end - 0x900;

    fn standing(pointer: u64, record: &[u64]) -> Standing<'_> {
        Standing { pointer, thread: THREAD, record, mapping: MAPPING, is_first: false }
    }

    #[test]
    fn the_stack_is_the_one_that_the_record_of_the_thread_names() {
        let guard = rustix::param::page_size() as u64;
        let begin = MAPPING.begin - guard;
        let record = [7, 0, begin, MAPPING.end - begin, guard, guard];
        let pointer = THREAD - 0x2000;
        assert_eq!(standing(pointer, &record).stack(), Ok(MAPPING));
        assert!(standing(pointer, &record).has_room(MAPPING, 4096));
        assert!(!standing(MAPPING.begin + 0x2000, &record).has_room(MAPPING, 4096), "too deep");
        for other in [begin - 0x10_0000, THREAD + 8] {
            assert_eq!(standing(other, &record).stack(), Err(Unfit::UnknownStack), "not on its own stack");
        }
        assert_eq!(standing(pointer, &[1, 2, 3]).stack(), Err(Unfit::UnknownStack), "no such record");
        let first = Standing { is_first: true, ..standing(pointer, &[]) };
        assert_eq!(first.stack(), Ok(MAPPING));
    }

    #[test]
    fn a_signal_frame_is_seen() {
        assert!(!has_signal_frame(&[1, 2, 3]));
        assert!(has_signal_frame(&[1, SIGN, 3]));
    }

    proptest! {
        #[test]
        fn whatever_a_record_claims_the_room_is_in_the_mapping(
            record in proptest::collection::vec(any::<u64>(), 0..40),
            near in proptest::collection::vec(0u64..0x100_0000, 3),
            offset in 0u64..0x80_0000,
        ) {
            let mut record = record;
            record.extend([MAPPING.begin.wrapping_sub(near[0]) & !15, near[1], near[2] & !0xfff]);
            let standing = standing(MAPPING.begin + offset, &record);
            if let Ok(stack) = standing.stack() {
                prop_assert!(MAPPING.begin <= stack.begin && stack.end <= MAPPING.end && stack.has(standing.pointer));
                prop_assert!(!standing.has_room(stack, 3000) || standing.pointer - 3000 > MAPPING.begin);
            }
        }
    }
}
