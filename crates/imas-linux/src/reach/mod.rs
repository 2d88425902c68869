// SPDX-License-Identifier: Apache-2.0
//! Search for leaks in glibc's heaps of a running process, from outside and without a stop: looks one after the other at
//! what can be reached (docs/decisions/0060).
//!
//! The heaps are walked chunk by chunk, and all other memory of the process is searched for addresses of blocks. What
//! nothing leads to in look after look, and what is more at the end, is a leak. Each look holds 24 bytes a block and
//! 8 a pointer, a quarter of the available memory at most. Every byte is untrusted.
//!
//! Between two looks nothing but the lost blocks and sums by class are kept, in the helper that looks
//! ([`crate::foreign_process`]).

mod blocks;
mod copy;
mod graph;
mod judge;
mod look;
mod names;
mod roots;
mod space;

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding, LONGEST_SEARCH};
use crate::heap::ProcessMemory;
use crate::heap::figures::NotReadable;
use crate::host::room_bytes;
use crate::mapping_text::living_thread;
use crate::process;
use blocks::FirstWords;
use copy::Bounds;
use judge::{JudgeDoubt, Judged};
use look::{BlockClass, Seen};
use space::Space;

pub use names::ObjectClass;
pub(crate) use names::mapped_file;

/// Most CPU time of a look, nanoseconds: in any case, and for each resident byte.
const CPU_NS: (u64, u64) = (1_000_000_000, 4);
/// Share of the available memory that a look may hold.
const MEMORY_SHARE: u64 = 4;
/// A search in which a larger share of the memory is swapped out knows too little.
const SWAPPED_SHARE: u64 = 64;
/// Classes of one kind that are listed, and those among them that are named.
const LISTED: usize = 8;
/// Looks after which a search ends: without any new lost block, without a leak, and in any case.
const LOOKS: [usize; 3] = [2, 3, 4];

/// Blocks of one class: of one size, and with one first word where that leads into a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrownBlocks {
    /// Bytes of one block, malloc's own words included.
    pub block_bytes: u64,
    /// Number of blocks now.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Number of blocks that came between the first look and the second.
    pub new_blocks: u64,
    /// Bytes of these.
    pub new_bytes: u64,
    /// Owner of their class, where the first word shows it.
    pub of: Option<ObjectClass>,
}

/// Result of a search for leaks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeakSearch {
    /// Number of looks until now.
    pub looks: u32,
    /// Whether no other look is needed.
    pub is_done: bool,
    /// Time between the first look and the second, seconds.
    pub seconds: f64,
    /// Bytes of live blocks at the first look and at the second.
    pub live: [u64; 2],
    /// Bytes of free blocks at the last look.
    pub free: u64,
    /// Bytes of heaps that could not be walked at the last look.
    pub unwalked: u64,
    /// Bytes that all looks have read.
    pub read: u64,
    /// CPU time of all looks, seconds.
    pub cpu_s: f64,
    /// Bytes that nothing led to in any look, and that are no more than before.
    pub lost_bytes: u64,
    /// Number of blocks with these bytes.
    pub lost_blocks: u64,
    /// Classes that leak, the most new bytes first.
    pub leaks: Vec<GrownBlocks>,
    /// Classes with more blocks than at the first look, the most new bytes first.
    pub grown: Vec<GrownBlocks>,
    /// Reason why it is not known whether there is a leak.
    pub doubt: Option<String>,
}

impl LeakSearch {
    /// Rate at which blocks leak, bytes a second.
    #[must_use]
    pub fn leaked_a_second(&self) -> f64 {
        let bytes: u64 = self.leaks.iter().map(|class| class.new_bytes).sum();
        bytes as f64 / self.seconds.max(0.001)
    }
}

/// Answer of a look: the search until then, or why there is none.
pub type LeakAnswer = std::result::Result<LeakSearch, NotReadable>;

/// Looks at a process for the first time.
///
/// # Errors
/// As [`foreign_process::read`].
pub fn begin(pid: u32) -> Result<LeakAnswer> {
    answer_in(&foreign_process::find_out(pid, Finding::LeaksBegin, begin_text)?)
}

/// Looks once more, after [`begin`].
///
/// # Errors
/// As [`foreign_process::read`].
pub fn go_on(pid: u32) -> Result<LeakAnswer> {
    answer_in(&foreign_process::find_out(pid, Finding::LeaksGoOn, go_on_text)?)
}

fn answer_in(text: &[u8]) -> Result<LeakAnswer> {
    serde_json::from_slice(text).map_err(Error::other)
}

/// The only search of this process: a look that begins forgets the one before.
static SEARCH: Mutex<Option<Search>> = Mutex::new(None);

/// First look as a text for [`begin`]. All is read in this very process.
pub(crate) fn begin_text(pid: u32) -> Result<Vec<u8>> {
    let mut place = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
    *place = None;
    let mut search = Search::of(pid)?;
    let answer = search.look();
    *place = Some(search);
    serde_json::to_vec(&answer).map_err(Error::other)
}

/// Next look as a text for [`go_on`]. All is read in this very process.
pub(crate) fn go_on_text(pid: u32) -> Result<Vec<u8>> {
    let mut place = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
    let search = place.as_mut().filter(|search| search.pid == pid).ok_or(ErrorKind::NotFound)?;
    serde_json::to_vec(&search.look()).map_err(Error::other)
}

/// Looks at one process.
struct Search {
    pid: u32,
    start_ticks: u64,
    task: u32,
    memory: ProcessMemory,
    first_words: FirstWords,
    seen: Vec<Seen>,
    read: u64,
    cpu_ns: u64,
}

impl Search {
    fn of(pid: u32) -> Result<Self> {
        let task = living_thread(pid);
        let start_ticks = process::start_ticks(pid).map_err(|_| ErrorKind::NotFound)?;
        // Opened first: it stays with this memory if the process runs another program meanwhile.
        let memory = ProcessMemory::open(task)?;
        let first_words = FirstWords::default();
        Ok(Self { pid, start_ticks, task, memory, first_words, seen: vec![], read: 0, cpu_ns: 0 })
    }

    fn look(&mut self) -> LeakAnswer {
        if !process::is_running(self.pid, self.start_ticks) {
            return Err(NotReadable::of(&ErrorKind::NotFound.into()));
        }
        let begun = copy::cpu_ns();
        let everywhere = self.seen.len() >= LOOKS[0];
        let narrower = self.seen.last().filter(|_| self.seen.len() == LOOKS[0]);
        let before = narrower.map_or(&[][..], |seen| &seen.lost);
        let bounds = bounds_for(process::resident_bytes(self.pid).unwrap_or(0));
        let rule = (&mut self.first_words, everywhere, before);
        let seen = look::look(&self.memory, self.task, rule, bounds)?;
        self.cpu_ns += copy::cpu_ns().saturating_sub(begun);
        self.read += seen.read;
        self.seen.push(seen);
        Ok(self.found())
    }

    fn found(&self) -> LeakSearch {
        let Some((first, last)) = self.seen.first().zip(self.seen.last()) else {
            return LeakSearch::default();
        };
        let second = self.seen.get(1).unwrap_or(first);
        let mut search = LeakSearch {
            looks: u32::try_from(self.seen.len()).unwrap_or(0),
            seconds: second.at.duration_since(first.at).as_secs_f64(),
            live: [first.sums.live, second.sums.live],
            free: last.sums.free,
            unwalked: last.sums.unwalked,
            read: self.read,
            cpu_s: self.cpu_ns as f64 / 1e9,
            ..LeakSearch::default()
        };
        let count = self.seen.len();
        if count < LOOKS[0] || count == LOOKS[0] && judge::is_suspect(first, second) {
            return search;
        }
        let threads = process::threads(self.pid).unwrap_or(1);
        let lost: Vec<_> = self.seen.iter().map(|seen| seen.lost_in_all(&self.seen)).collect();
        let covered: Vec<_> = self.seen.iter().flat_map(|seen| &seen.covered).copied().collect();
        let judged = judge::judge(&lost, &covered, threads);
        search.is_done = count != LOOKS[1] || judged.leaks.is_empty();
        if search.is_done {
            self.judge(judged, &mut search);
            search.grown = self.grown(first, second);
        }
        search
    }

    fn judge(&self, judged: Judged, search: &mut LeakSearch) {
        (search.lost_bytes, search.lost_blocks) = judged.lost;
        let space = Space::read(self.memory.maps()).map(|(space, _)| space).unwrap_or_default();
        search.leaks = judged
            .leaks
            .iter()
            .take(LISTED)
            .map(|leak| self.blocks_of(leak.class, (leak.blocks, leak.new), &space))
            .collect();
        let hides = self.seen.iter().any(|seen| seen.has_hidden_requests);
        search.doubt = match judged.doubt {
            _ if !judged.leaks.is_empty() && hides => {
                Some("it has requests in the kernel (io_uring) that may hold the only pointers".to_owned())
            }
            _ if !judged.leaks.is_empty() && is_swapped(self.pid) => {
                Some("too much of its memory is swapped out, and with it the pointers".to_owned())
            }
            Some(doubt) if judged.leaks.is_empty() => Some(doubt.words().to_owned()),
            _ => None,
        };
        if search.doubt.is_some() {
            search.leaks.clear();
        }
    }

    /// Classes with more blocks at the second look.
    fn grown(&self, first: &Seen, second: &Seen) -> Vec<GrownBlocks> {
        let mut grown = more(&first.held, &second.held);
        grown.truncate(LISTED);
        let space = Space::read(self.memory.maps()).map(|(space, _)| space).unwrap_or_default();
        grown.into_iter().map(|(class, counts)| self.blocks_of(class, counts, &space)).collect()
    }

    fn blocks_of(&self, class: BlockClass, (blocks, new): (u64, u64), space: &Space) -> GrownBlocks {
        let first_word = self.first_words.word(class.kind);
        GrownBlocks {
            block_bytes: class.bytes(),
            blocks,
            bytes: blocks.saturating_mul(class.bytes()),
            new_blocks: new,
            new_bytes: new.saturating_mul(class.bytes()),
            of: first_word.and_then(|word| names::class_of(self.task, space, word)),
        }
    }
}

/// Classes with more blocks than before, each with all and with the new ones, the most new bytes first.
fn more(before: &HashMap<BlockClass, u64>, now: &HashMap<BlockClass, u64>) -> Vec<(BlockClass, (u64, u64))> {
    let new = |class, blocks: u64| blocks.checked_sub(before.get(class).copied().unwrap_or(0));
    let mut grown: Vec<_> = now
        .iter()
        .filter_map(|(class, blocks)| Some((*class, (*blocks, new(class, *blocks).filter(|new| *new > 0)?))))
        .collect();
    grown.sort_by_key(|(class, (_, new))| (std::cmp::Reverse(new * class.bytes()), *class));
    grown
}

impl JudgeDoubt {
    fn words(self) -> &'static str {
        match self {
            Self::Freed => "blocks that nothing seems to lead to are freed again: its pointers are hidden",
            Self::Registers => {
                "blocks that nothing in memory leads to grow, but few enough that registers may lead to all of them: \
                 look for longer (--for 60s)"
            }
        }
    }
}

fn bounds_for(resident: u64) -> Bounds {
    Bounds {
        until: Instant::now() + LONGEST_SEARCH,
        until_cpu_ns: copy::cpu_ns()
            .saturating_add(CPU_NS.0)
            .saturating_add(resident.saturating_mul(CPU_NS.1)),
        most_bytes: room_bytes() / MEMORY_SHARE,
    }
}

fn is_swapped(pid: u32) -> bool {
    let status = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.status().ok());
    status.is_some_and(|status| {
        let [swapped, resident] = [status.vmswap, status.vmrss].map(|kib| kib.unwrap_or(0));
        swapped > resident / SWAPPED_SHARE
    })
}
