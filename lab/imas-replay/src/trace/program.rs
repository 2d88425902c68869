// SPDX-License-Identifier: Apache-2.0
//! The input of `imas-replayer`: the events as fixed words, and blocks as indices into the shortest possible
//! table.
//!
//! The part of its large blocks that a program writes.
//!
//! A trace does not record this. It follows from the resident memory of the recorded run: the share of each size class
//! is fitted so that the replay under `system` gives the recorded curve.

use std::collections::{HashMap, HashSet};
use std::io::{Seek, SeekFrom, Write};

use crate::trace::event::{ALIGNED, Event, EventError, Function};

/// First bytes of a program.
const MAGIC: u64 = 0x3147_5250_5241_4D49;
const PLACES_MOST: u64 = 1 << 28;
/// Limit: 16 GiB. A small compressed frame of a hostile trace may expand to any length.
const WORDS_MOST: u64 = 1 << 31;
/// Limit for the number of looks: those that [`LOOKS`] and [`HIGHER`] let through in an honest trace are fewer.
const LOOKS_MOST: usize = 4096;
const SIZE_BITS: u32 = 32;
const THREADS_MOST: u32 = 1 << 16;
/// A size that no allocator grants. A larger one in a hostile trace could overflow in the replayer.
const SIZE_MOST: u64 = 1 << 47;

/// A recorded look at resident memory, which the replay repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    /// Resident anonymous bytes of the recorded program.
    pub bytes: u64,
    /// CPU time of the recorded program, in nanoseconds.
    pub cpu_ns: u64,
}

/// The reason why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ProgramError {
    #[error("damaged: {0}")]
    Event(#[from] EventError),
    #[error("the replay cannot be prepared: {0}")]
    Io(#[from] std::io::Error),
    #[error("it has too many calls to be replayed")]
    Long,
    #[error("it has too many threads to be replayed")]
    Threads,
}

/// A program that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayProgram {
    /// The looks of the recorded program, in the order of the replay's.
    pub looks: Vec<Look>,
    /// Words written.
    pub words: u64,
}

struct Writer<W> {
    out: W,
    words: u64,
    places: HashMap<u64, u64>,
    free_places: Vec<u64>,
    place_count: u64,
    blocks: u64,
    ns: u64,
    thread: u32,
    threads: u32,
    looks: Vec<Look>,
    /// The next look that is not above all before is repeated from here on.
    next_look_ns: u64,
    look_gap_ns: u64,
    highest_bytes: u64,
    /// The last look that was left out.
    left_out: Option<Look>,
}

/// About this many of the recorded looks at memory are repeated, and each that found more memory than all
/// before it. A look takes the replay far longer than a call.
const LOOKS: u64 = 128;
/// A look found more memory if it exceeds the highest before it by more than this part (one in 32).
const HIGHER: u64 = 32;

const MADE: u64 = 1;
const ZEROED: u64 = 2;
const FREED: u64 = 3;
const RESIZED: u64 = 4;
const LARGE: u64 = 5;
const ALIGNMENT: u64 = 6;
const THREAD: u64 = 7;
const THREAD_END: u64 = 8;
const TIME: u64 = 9;
const LOOK: u64 = 10;
const END: u64 = 11;

impl<W: Write + Seek> Writer<W> {
    fn put(&mut self, kind: u64, value: u64) -> std::io::Result<()> {
        self.words += 1;
        self.out.write_all(&(kind << 60 | value & ((1 << 60) - 1)).to_ne_bytes())
    }

    fn call(&mut self, kind: u64, place: u64, size: u64) -> std::io::Result<()> {
        let size = size.min(SIZE_MOST);
        let most = (1 << SIZE_BITS) - 1;
        if size >= most {
            self.put(LARGE, size)?;
        }
        self.put(kind, place << SIZE_BITS | size.min(most))
    }

    fn new_place(&mut self) -> Result<u64, ProgramError> {
        if let Some(place) = self.free_places.pop() {
            return Ok(place);
        }
        self.place_count += 1;
        if self.place_count > PLACES_MOST { Err(EventError::Live.into()) } else { Ok(self.place_count - 1) }
    }

    fn made(&mut self, function: Function, size: u64, alignment: u64) -> Result<(), ProgramError> {
        let place = self.new_place()?;
        self.places.insert(self.blocks, place);
        self.blocks += 1;
        if let Some(code) = ALIGNED.iter().position(|aligned| *aligned == function) {
            self.put(ALIGNMENT, (code as u64) << 56 | alignment.min((1 << 56) - 1))?;
        }
        Ok(self.call(if function == Function::Calloc { ZEROED } else { MADE }, place, size)?)
    }

    fn event(&mut self, event: &Event) -> Result<(), ProgramError> {
        match *event {
            Event::Made { function, size, alignment } => self.made(function, size, alignment)?,
            Event::Freed { block } => {
                let place = self.places.remove(&block).ok_or(EventError::Block)?;
                self.free_places.push(place);
                self.call(FREED, place, 0)?;
            }
            Event::Resized { block, size } => {
                let place = *self.places.get(&block).ok_or(EventError::Block)?;
                // A realloc to 0 frees the block under many allocators, and the trace goes on with it.
                self.call(RESIZED, place, size.max(1))?;
            }
            Event::Thread(number) if number != self.thread => {
                self.thread = number;
                self.threads = self.threads.max(number);
                self.put(THREAD, number.into())?;
            }
            Event::Thread(_) | Event::ThreadEnded(_) => {}
            Event::Time(ns) => {
                self.ns = ns;
                self.put(TIME, ns)?;
            }
            Event::Resident { bytes, cpu_ns } => {
                self.look(Look { ns: self.ns, bytes, cpu_ns })?;
            }
        }
        match () {
            () if self.threads > THREADS_MOST => Err(ProgramError::Threads),
            () if self.words > WORDS_MOST => Err(ProgramError::Long),
            () => Ok(()),
        }
    }

    fn look(&mut self, look: Look) -> std::io::Result<()> {
        let is_full = self.looks.len() >= LOOKS_MOST;
        let is_higher = look.bytes > self.highest_bytes.saturating_add(self.highest_bytes / HIGHER);
        if is_full || (look.ns < self.next_look_ns && !is_higher) {
            self.left_out = Some(look);
            return Ok(());
        }
        self.highest_bytes = self.highest_bytes.max(look.bytes);
        self.next_look_ns = look.ns.saturating_add(self.look_gap_ns);
        self.keep(look)
    }

    fn keep(&mut self, look: Look) -> std::io::Result<()> {
        self.left_out = None;
        self.looks.push(look);
        self.put(LOOK, self.looks.len() as u64 - 1)
    }

    fn finish(mut self) -> std::io::Result<ReplayProgram> {
        // The end of the program is always looked at.
        if let Some(look) = self.left_out {
            self.keep(look)?;
        }
        self.put(END, 0)?;
        self.out.seek(SeekFrom::Start(0))?;
        let looks = self.looks.len() as u64;
        for number in [MAGIC, self.words, self.place_count, self.threads.into(), looks, 0, 0, 0] {
            self.out.write_all(&number.to_ne_bytes())?;
        }
        self.out.flush()?;
        Ok(ReplayProgram { looks: self.looks, words: self.words })
    }
}

/// The threads that end, each with the index of its last event. A thread's destructors may still make calls
/// after the event of its end.
///
/// # Errors
/// When an event is damaged, or there are more threads than can be replayed.
pub fn last_events(
    events: impl Iterator<Item = Result<Event, EventError>>,
) -> Result<HashMap<u32, u64>, ProgramError> {
    let (mut thread, mut last, mut ended) = (1, HashMap::new(), HashSet::new());
    for (index, event) in events.enumerate() {
        match event? {
            Event::Thread(number) => thread = number,
            Event::ThreadEnded(number) => {
                ended.insert(number);
            }
            _ => {}
        }
        last.insert(thread, index as u64);
        if last.len().max(ended.len()) > THREADS_MOST as usize {
            return Err(ProgramError::Threads);
        }
    }
    // The first thread ends with the program itself.
    Ok(ended
        .into_iter()
        .filter(|number| *number > 1)
        .filter_map(|n| last.get(&n).map(|at| (n, *at)))
        .collect())
}

/// Writes the program. `ends` is the result of [`last_events`] for the same events; `wall_ns` is how long the
/// process ran, from which the time between repeated looks follows.
///
/// # Errors
/// When an event is damaged or the program cannot be written.
pub fn write(
    events: impl Iterator<Item = Result<Event, EventError>>,
    ends: &HashMap<u32, u64>,
    wall_ns: u64,
    mut out: impl Write + Seek,
) -> Result<ReplayProgram, ProgramError> {
    out.write_all(&[0; 64])?;
    let mut writer = Writer {
        out,
        words: 0,
        places: HashMap::new(),
        free_places: Vec::new(),
        place_count: 0,
        blocks: 0,
        ns: 0,
        thread: 1,
        threads: 1,
        looks: Vec::new(),
        next_look_ns: 0,
        look_gap_ns: wall_ns / LOOKS,
        highest_bytes: 0,
        left_out: None,
    };
    for (index, event) in events.enumerate() {
        writer.event(&event?)?;
        if ends.get(&writer.thread) == Some(&(index as u64)) {
            writer.put(THREAD_END, 0)?;
        }
    }
    Ok(writer.finish()?)
}

/// Number of classes: from 4 KiB, from 64 KiB, from 1 MiB, and calloc from 128 KiB, whose pages are zero
/// without a write.
pub const CLASSES: usize = 4;
/// The class of large calloc'ed blocks.
pub const CALLS_ZEROED: usize = 3;
/// The unit of [`TouchingShares`]: this many parts are a whole block.
pub const WHOLE: u32 = 1024;

/// For each class, the parts of [`WHOLE`] that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchingShares(pub [u32; CLASSES]);

impl Default for TouchingShares {
    /// The shares before calibration: every block is written whole, and a large calloc not at all.
    fn default() -> Self {
        Self([WHOLE, WHOLE, WHOLE, 0])
    }
}

/// One look of a replay that wrote every block whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TouchingLook {
    /// Resident bytes of the recorded program.
    pub recorded: f64,
    /// Resident bytes of the replay.
    pub replayed: f64,
    /// Live bytes of each class.
    pub live: [f64; CLASSES],
}

const ROUNDS: usize = 200;

/// Fits the shares by least squares, so that replay and recording differ by a constant. It fits one class
/// after the other and keeps each share between 0 and 1. In `replayed`, every class is written whole. A class
/// without a block at any look, or with the same bytes at each, keeps the share of [`TouchingShares::default`].
#[must_use]
pub fn fit(looks: &[TouchingLook]) -> TouchingShares {
    let mut shares = TouchingShares::default().0.map(|share| f64::from(share) / f64::from(WHOLE));
    for _ in 0..ROUNDS {
        for class in 0..CLASSES {
            shares[class] = best_share(looks, &shares, class);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1024")]
    TouchingShares(shares.map(|share: f64| (share * f64::from(WHOLE)).round() as u32))
}

/// Resident bytes of the replay with these shares, minus the recorded program's.
fn surplus(look: &TouchingLook, shares: &[f64; CLASSES]) -> f64 {
    let untouched: f64 = look.live.iter().zip(shares).map(|(live, share)| live * (1.0 - share)).sum();
    look.replayed - untouched - look.recorded
}

fn best_share(looks: &[TouchingLook], shares: &[f64; CLASSES], class: usize) -> f64 {
    let others = shares.map(f64::from);
    let mean =
        |of: &dyn Fn(&TouchingLook) -> f64| looks.iter().map(of).sum::<f64>() / looks.len().max(1) as f64;
    let mean_surplus = mean(&|look| surplus(look, &others));
    let mean_live = mean(&|look| look.live[class]);
    let (mut with, mut square) = (0.0, 0.0);
    for look in looks {
        let live = look.live[class] - mean_live;
        with += live * (surplus(look, &others) - mean_surplus);
        square += live * live;
    }
    if square <= 0.0 {
        return shares[class];
    }
    (shares[class] - with / square).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A look each millisecond, for two seconds.
    fn looks_of(bytes: impl Fn(u64) -> u64) -> Vec<Look> {
        let events = (1..=2000).flat_map(|ms| {
            let look = Event::Resident { bytes: bytes(ms), cpu_ns: ms };
            [Ok(Event::Time(ms * 1_000_000)), Ok(look)]
        });
        write(events, &HashMap::new(), 2_000_000_000, Cursor::new(Vec::new())).unwrap().looks
    }

    #[test]
    fn few_looks_are_repeated_but_the_peak_and_the_last() {
        let looks = looks_of(|ms| if ms == 1001 { 5000 } else { 1000 });
        assert!((100..=135).contains(&looks.len()), "{}", looks.len());
        assert_eq!(looks.iter().map(|look| look.bytes).max(), Some(5000));
        assert_eq!(looks.last().unwrap().cpu_ns, 2000);
    }

    #[test]
    fn a_program_that_grows_in_small_steps_has_few_looks_too() {
        let looks = looks_of(|ms| 1_000_000 + ms * 1000);
        assert!(looks.len() < 200, "{}", looks.len());
    }

    #[test]
    fn a_trace_that_lasted_no_time_has_few_looks_too_and_the_last() {
        let look = |n: u64| Ok(Event::Resident { bytes: 1000, cpu_ns: n });
        let out = Cursor::new(Vec::new());
        let looks = write((1..=100_000).map(look), &HashMap::new(), 0, out).unwrap().looks;
        assert_eq!((looks.len(), looks.last().unwrap().cpu_ns), (LOOKS_MOST + 1, 100_000));
    }

    #[test]
    fn a_thread_that_ends_again_and_again_takes_no_memory_and_too_many_threads_are_refused() {
        let ends = last_events((0..1_000_000).map(|_| Ok(Event::ThreadEnded(7)))).unwrap();
        assert!(ends.is_empty(), "it made no call");
        let many = |event: fn(u32) -> Event| last_events((2..u32::MAX).map(move |n| Ok(event(n)))).is_err();
        assert!(many(Event::ThreadEnded) && many(Event::Thread));
    }

    /// Looks of a program that writes these shares of its blocks, and has 7 bytes that are not malloc's.
    fn looks(shares: [f64; CLASSES], live: &[[f64; CLASSES]]) -> Vec<TouchingLook> {
        let look = |live: &[f64; CLASSES]| {
            let written: f64 = live.iter().zip(shares).map(|(live, share)| live * share).sum();
            TouchingLook { recorded: written + 7.0, replayed: live.iter().sum(), live: *live }
        };
        live.iter().map(look).collect()
    }

    #[test]
    fn shares_are_found() {
        let live = [
            [8.0, 0.0, 1.0, 0.0],
            [2.0, 9.0, 3.0, 5.0],
            [1.0, 4.0, 7.0, 9.0],
            [3.0, 3.0, 9.0, 1.0],
            [0.0; 4],
        ];
        let TouchingShares(found) = fit(&looks([1.0, 0.5, 0.25, 0.125], &live));
        for (found, wanted) in found.into_iter().zip([1024, 512, 256, 128]) {
            assert!(u32::abs_diff(found, wanted) <= 2, "{found} {wanted}");
        }
    }

    #[test]
    fn a_class_that_no_look_sees_keeps_its_default() {
        assert_eq!(fit(&looks([1.0; CLASSES], &[[0.0; CLASSES]; 5])), TouchingShares::default());
        assert_eq!(fit(&[]), TouchingShares::default());
    }
}
