// SPDX-License-Identifier: Apache-2.0
//! Replaces addresses by block numbers.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::trace::event::{ALIGNED, Event, Function};
use crate::trace::raw::RawWord;

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
