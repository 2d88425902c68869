// SPDX-License-Identifier: Apache-2.0
//! One event of a trace, and its bytes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::trace::raw::RawWord;

/// The function that made a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// malloc, and realloc of NULL.
    Malloc,
    /// calloc.
    Calloc,
    /// memalign.
    Memalign,
    /// posix_memalign.
    PosixMemalign,
    /// aligned_alloc.
    AlignedAlloc,
    /// valloc.
    Valloc,
    /// pvalloc.
    Pvalloc,
}

/// The functions with an alignment, in the order of their codes in raw words (`enum imas_aligned`).
pub(crate) const ALIGNED: [Function; 5] = [
    Function::Memalign,
    Function::PosixMemalign,
    Function::AlignedAlloc,
    Function::Valloc,
    Function::Pvalloc,
];

/// One event. Blocks are numbered from 0 in the order in which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A block was made; its number is the next one.
    Made {
        /// The function that made the block.
        function: Function,
        /// Requested bytes.
        size: u64,
        /// Requested alignment; 0 for malloc and calloc.
        alignment: u64,
    },
    /// A block was freed.
    Freed {
        /// Number of the block.
        block: u64,
    },
    /// A block was resized; it keeps its number.
    Resized {
        /// Number of the block.
        block: u64,
        /// Requested bytes.
        size: u64,
    },
    /// The next calls are made by this thread; the first is 1.
    Thread(u32),
    /// This thread has ended.
    ThreadEnded(u32),
    /// Nanoseconds since the recording began.
    Time(u64),
    /// Resident anonymous bytes, and CPU time of the process in nanoseconds.
    Resident {
        /// Bytes.
        bytes: u64,
        /// Nanoseconds.
        cpu_ns: u64,
    },
}

/// The reason why bytes are not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum EventError {
    #[error("an event is cut off")]
    Torn,
    #[error("{0} is no kind of event")]
    Kind(u8),
    #[error("a number is too large")]
    Number,
    #[error("an event names a block that does not exist")]
    Block,
    #[error("too many blocks are alive at once")]
    Live,
    /// The events are far more than any program's events that fit into so small a file.
    #[error("so few bytes unpack to too many events")]
    Unpacked,
    #[error("the events cannot be unpacked")]
    Packed,
}

const MALLOC: u8 = 1;
const CALLOC: u8 = 2;
const FREED: u8 = 3;
const RESIZED: u8 = 4;
const THREAD: u8 = 5;
const THREAD_ENDED: u8 = 6;
const TIME: u8 = 7;
const RESIDENT: u8 = 8;
const FIRST_ALIGNED: u8 = 9;

#[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(0x80 | (value & 0x7F) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The state that the encoding of the next event depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Blocks made so far.
    pub blocks: u64,
    time_ns: u64,
    cpu_ns: u64,
}

impl Position {
    /// The number of blocks made since this one. It compresses better than the block's number.
    fn age(&self, block: u64) -> u64 {
        self.blocks.wrapping_sub(1).wrapping_sub(block)
    }

    fn advance(&mut self, event: &Event) {
        match *event {
            Event::Made { .. } => self.blocks += 1,
            Event::Time(ns) => self.time_ns = ns,
            Event::Resident { cpu_ns, .. } => self.cpu_ns = cpu_ns,
            _ => {}
        }
    }

    /// Appends the bytes of the event.
    pub fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        let mut fields = |kind: u8, values: &[u64]| {
            out.push(kind);
            values.iter().for_each(|value| put(out, *value));
        };
        match *event {
            Event::Made { function: Function::Malloc, size, .. } => fields(MALLOC, &[size]),
            Event::Made { function: Function::Calloc, size, .. } => fields(CALLOC, &[size]),
            Event::Made { function, size, alignment } => fields(kind_of(function), &[size, alignment]),
            Event::Freed { block } => fields(FREED, &[self.age(block)]),
            Event::Resized { block, size } => fields(RESIZED, &[self.age(block), size]),
            Event::Thread(number) => fields(THREAD, &[number.into()]),
            Event::ThreadEnded(number) => fields(THREAD_ENDED, &[number.into()]),
            Event::Time(ns) => fields(TIME, &[ns.saturating_sub(self.time_ns)]),
            Event::Resident { bytes, cpu_ns } => {
                fields(RESIDENT, &[bytes, cpu_ns.saturating_sub(self.cpu_ns)]);
            }
        }
        self.advance(event);
    }

    /// The next event of the bytes. None at their end.
    ///
    /// # Errors
    /// When the bytes are not an event.
    pub fn decode(&mut self, bytes: &mut impl Iterator<Item = u8>) -> Result<Option<Event>, EventError> {
        let Some(kind) = bytes.next() else { return Ok(None) };
        let event = self.event(kind, bytes)?;
        self.advance(&event);
        Ok(Some(event))
    }

    fn event(&self, kind: u8, bytes: &mut impl Iterator<Item = u8>) -> Result<Event, EventError> {
        Ok(match kind {
            MALLOC => Event::Made { function: Function::Malloc, size: take(bytes)?, alignment: 0 },
            CALLOC => Event::Made { function: Function::Calloc, size: take(bytes)?, alignment: 0 },
            FREED => Event::Freed { block: self.block(take(bytes)?)? },
            RESIZED => Event::Resized { block: self.block(take(bytes)?)?, size: take(bytes)? },
            THREAD => Event::Thread(thread(bytes)?),
            THREAD_ENDED => Event::ThreadEnded(thread(bytes)?),
            TIME => Event::Time(self.time_ns.saturating_add(take(bytes)?)),
            RESIDENT => {
                Event::Resident { bytes: take(bytes)?, cpu_ns: self.cpu_ns.saturating_add(take(bytes)?) }
            }
            _ => {
                let function = ALIGNED.get(usize::from(kind.wrapping_sub(FIRST_ALIGNED)));
                let function = *function.ok_or(EventError::Kind(kind))?;
                Event::Made { function, size: take(bytes)?, alignment: take(bytes)? }
            }
        })
    }

    fn block(&self, age: u64) -> Result<u64, EventError> {
        self.blocks.checked_sub(1).and_then(|last| last.checked_sub(age)).ok_or(EventError::Block)
    }
}

fn kind_of(function: Function) -> u8 {
    let at = ALIGNED.iter().position(|aligned| *aligned == function).unwrap_or(0);
    FIRST_ALIGNED + u8::try_from(at).unwrap_or(0)
}

/// A thread's number. 0 is not valid.
fn thread(bytes: &mut impl Iterator<Item = u8>) -> Result<u32, EventError> {
    u32::try_from(take(bytes)?).ok().filter(|number| *number > 0).ok_or(EventError::Number)
}

fn take(bytes: &mut impl Iterator<Item = u8>) -> Result<u64, EventError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next().ok_or(EventError::Torn)?;
        let part = u64::from(byte & 0x7F);
        if part << shift >> shift != part {
            return Err(EventError::Number);
        }
        value |= part << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(EventError::Number)
}

/// Figures of one process, counted during the conversion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls that are in the trace.
    pub calls: u64,
    /// Blocks that were made.
    pub blocks: u64,
    /// Calls that returned no block. They are not in the trace.
    pub refused: u64,
    /// Frees and reallocs of blocks that were made before the recording, or by a parent. The frees are not in
    /// the trace.
    pub unknown: u64,
    /// Blocks whose free was not recorded: another block was made at their address. They count as freed at
    /// that moment.
    pub unseen_frees: u64,
    /// Number of threads that made a call.
    pub threads: u32,
    /// Nanoseconds from the beginning to the last stamp.
    pub wall_ns: u64,
    /// CPU time of the process at the last stamp.
    pub cpu_ns: u64,
    /// The highest resident memory of all looks, bytes.
    pub peak_bytes: u64,
}

const FUNCTION_SHIFT: u32 = 56;

/// Gives each block a number.
#[derive(Debug)]
pub struct Numbering {
    live: HashMap<u64, u64>,
    /// For each thread: the address and number of the block that it is reallocating.
    pending: HashMap<u32, (u64, Option<u64>)>,
    thread: u32,
    aligned: Option<(Function, u64)>,
    page_bytes: u64,
    counts: Counts,
}

impl Numbering {
    /// `page_bytes` is the size of the machine's pages.
    #[must_use]
    pub fn new(page_bytes: u64) -> Self {
        let counts = Counts { threads: 1, ..Counts::default() };
        Self { live: HashMap::new(), pending: HashMap::new(), thread: 1, aligned: None, page_bytes, counts }
    }

    /// The figures so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The events of one word.
    pub fn word(&mut self, word: RawWord, events: &mut Vec<Event>) {
        match word {
            RawWord::Malloc(address, size) => self.made(address, size, Function::Malloc, events),
            RawWord::Calloc(address, size) => self.made(address, size, Function::Calloc, events),
            RawWord::Free(address) => self.freed(address, events),
            RawWord::ReallocOf(address) => {
                let number = self.live.remove(&address);
                self.pending.insert(self.thread, (address, number));
            }
            RawWord::Realloc(address, size) => self.resized(address, size, events),
            RawWord::Aligned(value) => self.aligned = Some(aligned(value)),
            RawWord::Thread(number) => self.turn_to(number, events),
            RawWord::ThreadEnd => events.push(Event::ThreadEnded(self.thread)),
            RawWord::Time(ns) => self.time(ns, events),
            RawWord::Cpu(ns) => self.counts.cpu_ns = ns,
            RawWord::Resident(pages) => self.resident(pages, events),
        }
    }

    fn made(&mut self, address: u64, size: u64, function: Function, events: &mut Vec<Event>) {
        let (function, alignment) = self.aligned.take().unwrap_or((function, 0));
        if address == 0 {
            self.counts.refused += 1;
            return;
        }
        if let Some(block) = self.live.insert(address, self.counts.blocks) {
            self.counts.unseen_frees += 1;
            events.push(Event::Freed { block });
        }
        self.counts.blocks += 1;
        self.counts.calls += 1;
        events.push(Event::Made { function, size, alignment });
    }

    fn freed(&mut self, address: u64, events: &mut Vec<Event>) {
        match self.live.remove(&address) {
            Some(block) => {
                self.counts.calls += 1;
                events.push(Event::Freed { block });
            }
            None => self.counts.unknown += 1,
        }
    }

    fn resized(&mut self, address: u64, size: u64, events: &mut Vec<Event>) {
        match self.pending.remove(&self.thread) {
            None => self.made(address, size, Function::Malloc, events),
            Some((_, None)) => {
                self.counts.unknown += 1;
                self.made(address, size, Function::Malloc, events);
            }
            Some((_, Some(block))) if address != 0 => self.moved(block, address, size, events),
            Some((_, Some(block))) if size == 0 => {
                self.counts.calls += 1;
                events.push(Event::Freed { block });
            }
            Some((old, Some(block))) => {
                self.counts.refused += 1;
                self.live.insert(old, block);
            }
        }
    }

    fn moved(&mut self, block: u64, address: u64, size: u64, events: &mut Vec<Event>) {
        if let Some(other) = self.live.insert(address, block) {
            self.counts.unseen_frees += 1;
            events.push(Event::Freed { block: other });
        }
        self.counts.calls += 1;
        events.push(Event::Resized { block, size });
    }

    fn turn_to(&mut self, number: u64, events: &mut Vec<Event>) {
        let number = u32::try_from(number).unwrap_or(u32::MAX).max(1);
        if number != self.thread {
            self.thread = number;
            self.counts.threads = self.counts.threads.max(number);
            events.push(Event::Thread(number));
        }
    }

    fn time(&mut self, ns: u64, events: &mut Vec<Event>) {
        self.counts.wall_ns = self.counts.wall_ns.max(ns);
        events.push(Event::Time(self.counts.wall_ns));
    }

    fn resident(&mut self, pages: u64, events: &mut Vec<Event>) {
        let bytes = pages.saturating_mul(self.page_bytes);
        self.counts.peak_bytes = self.counts.peak_bytes.max(bytes);
        events.push(Event::Resident { bytes, cpu_ns: self.counts.cpu_ns });
    }
}

fn aligned(value: u64) -> (Function, u64) {
    let function = usize::try_from(value >> FUNCTION_SHIFT & 7).unwrap_or(0);
    let alignment = value & ((1 << FUNCTION_SHIFT) - 1);
    (ALIGNED.get(function).copied().unwrap_or(Function::Memalign), alignment)
}
