// SPDX-License-Identifier: Apache-2.0
//! The heaps of glibc's malloc in another process: live blocks, free ones, and the pages that
//! `malloc_trim(0)` would return.
//!
//! `/proc/PID/mem` and `/proc/PID/pagemap` are read. The process is neither attached to nor stopped, so a heap changes
//! while it is read: a walk that meets an impossible size is thrown away and repeated. Every byte is untrusted.
//! Reads are bounded by a time limit, and only pages that are resident are read: a look at others would make them
//! so. The exception is the text of `libc.so.6`, where the version is: its page is not always in the page table of
//! a process. A file of this name on a file system that does not answer (FUSE) holds the reader. So it is a helper,
//! which is killed after it was asleep for a second ([`crate::foreign_process`]).

mod arena;
mod bins;
mod cache_key;
mod fastbins;
pub mod figures;
mod found;
mod in_memory;
mod layout;
mod libc;
pub mod memory;
mod process_memory;
mod residency;
mod stop;
mod survey;
mod trim_site;
mod walk;
mod window;

use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

use figures::HeapAnswer;

/// A look at one process takes so long at most. What was not read by then is estimated from what was.
const LONGEST: Duration = Duration::from_secs(1);

/// Figures of the heaps of a process, or why they cannot be read, as a text that [`figures::HeapAnswer`] reads. All is
/// read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let answer = survey::of_process(pid, Instant::now() + LONGEST)?;
    HeapAnswer(answer).to_text().ok_or_else(|| ErrorKind::FileTooLarge.into())
}

pub use found::{Region, RegionKind};
pub(crate) use in_memory::InMemory;
pub(crate) use process_memory::ProcessMemory;
pub use survey::figures_in;
pub(crate) use trim_site::of_process as trim_site;
