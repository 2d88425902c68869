// SPDX-License-Identifier: Apache-2.0
//! Bytes of a trial page to a [`Sample`](imas_core::Sample). The page was written by the program under trial,
//! so every byte is hostile.
//!
//! ```text
//! file --file--> bytes --parse--> Page (typed, in range) --merge--> Sample
//! ```
//!
//! The bytes are copied out of the file once and each field is read once from the copy: nothing can change
//! between check and use, and a file that shrinks is an error, not a SIGBUS, since nothing is mapped.
//!
//! **Refused** ([`PageError`]): wrong size, magic, version or kind; a page that was never armed; a flag,
//! state, reason or signal out of its range; a string that is not closed, is empty where it must not be,
//! holds a control character, or a character that its kind of name has not; a counter beyond `i64::MAX` (the
//! store's largest integer), alone or summed over the slots; memory beyond 2^57 bytes (what five-level page
//! tables can address); a life of over a century; more timed calls than calls; a mean call of over ten
//! seconds; clock reads of over a million ticks.
//!
//! **Clamped or left out**, because an honest page of a process killed at a bad moment, or of a machine with
//! a bad clock, may look like that: a mean above the peak becomes the peak; a time in the future becomes now;
//! a mean call cheaper than the empty pair becomes 0; an exit status keeps its low eight bits; without a
//! usable pair of clocks no call counts as timed; a path that is not UTF-8 has the bad bytes replaced.

#![forbid(unsafe_code)]

mod calls;
mod clock;
mod error;
mod file;
mod memory;
mod merge;
mod page;
mod parse;
mod range;
mod split;
mod text;

pub use error::{MergeError, PageError, ReadError, TextProblem};
pub use file::{ExpectedPage, read_page_at, read_page_file};
pub(crate) use file::{page_bytes, page_of_bytes};
pub use merge::merge;
pub use page::{ParsedPage, State};
pub use parse::parse;
