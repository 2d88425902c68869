// SPDX-License-Identifier: Apache-2.0
//! Figures of a look at the heaps of a process.

use std::io::{Error, ErrorKind};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Bytes of an arena by what they are. `live`, `cached`, `fast`, `free` and `top` add up to what the arena holds, but
/// for its own records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapBytes {
    /// Blocks of the program.
    pub live: u64,
    /// Blocks that threads have freed and keep for themselves (tcache). A trim does not return them.
    pub cached: u64,
    /// Small free blocks that wait to be joined with others (fastbins).
    pub fast: u64,
    /// Free blocks.
    pub free: u64,
    /// The rest at the arena's end.
    pub top: u64,
    /// Whole resident pages that `malloc_trim(0)` returns.
    pub returnable: u64,
    /// Such pages that other processes have too since a fork: a trim in one of them saves nothing.
    pub shared: u64,
    /// Resident pages in the top of an arena beside the first, which `malloc_trim(0)` does not return.
    pub top_resident: u64,
    /// Blocks that were counted, free ones included.
    pub blocks: u64,
}

impl HeapBytes {
    /// Free bytes, whatever list they are in.
    #[must_use]
    pub fn all_free(&self) -> u64 {
        self.fast.saturating_add(self.free).saturating_add(self.top)
    }

    /// Adds pages that a trim returns: of this process alone, and shared.
    pub(crate) fn add_returnable(&mut self, [own, shared]: [u64; 2]) {
        self.returnable = self.returnable.saturating_add(own);
        self.shared = self.shared.saturating_add(shared);
    }

    /// Says how many of the live bytes are in the caches of threads.
    pub(crate) fn set_cached(&mut self, bytes: u64) {
        self.live = self.live.saturating_sub(bytes);
        self.cached = bytes;
    }

    /// The bytes, each times `all` divided by `read`.
    pub(crate) fn scaled(self, all: u64, read: u64) -> Self {
        let scale = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(all) / u128::from(read.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self {
            live: scale(self.live),
            cached: scale(self.cached),
            fast: scale(self.fast),
            free: scale(self.free),
            top: scale(self.top),
            returnable: scale(self.returnable),
            shared: scale(self.shared),
            top_resident: scale(self.top_resident),
            blocks: self.blocks,
        }
    }
}

impl AddAssign for HeapBytes {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.live, other.live),
            (&mut self.cached, other.cached),
            (&mut self.fast, other.fast),
            (&mut self.free, other.free),
            (&mut self.top, other.top),
            (&mut self.returnable, other.returnable),
            (&mut self.shared, other.shared),
            (&mut self.top_resident, other.top_resident),
            (&mut self.blocks, other.blocks),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// One arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArenaFigures {
    /// The first arena, which lives in `[heap]`.
    pub is_main: bool,
    /// Its heaps, of 64 MiB at most unless it is the first arena.
    pub heaps: u64,
    /// Bytes by what they are.
    #[serde(flatten)]
    pub bytes: HeapBytes,
}

/// The heaps of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapFigures {
    /// Version of its C library.
    pub glibc: String,
    /// Bytes that its arenas hold.
    pub held: u64,
    /// Bytes of them that were read. Where these are fewer, the others are estimated from them, but for the unread.
    pub read: u64,
    /// Bytes of the first arena where nothing of it was read, or of all others where nothing of these was: the two
    /// have different uses, so that neither is estimated from the other. They are part of `held` alone.
    pub unread: u64,
    /// Number of its arenas.
    pub arenas: u64,
    /// Bytes of all arenas.
    pub bytes: HeapBytes,
    /// Resident bytes in live blocks with mappings of their own, beside what the arenas hold.
    pub mapped: u64,
    /// The largest arenas.
    pub largest: Vec<ArenaFigures>,
}

impl HeapFigures {
    /// Whether a part was estimated.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.read < self.held
    }
}

/// Reason why the heaps of a process cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct NotReadable(pub String);

impl NotReadable {
    /// The reason in words.
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The kernel's reason.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        Self(match error.kind() {
            ErrorKind::PermissionDenied => {
                "the kernel does not let this user read it (ptrace(2)); root may".to_owned()
            }
            ErrorKind::TimedOut => "reading it took too long".to_owned(),
            ErrorKind::NotFound => "it has ended".to_owned(),
            _ if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                "it has ended".to_owned()
            }
            _ => error.to_string(),
        })
    }
}

/// Answer of a look, and its text.
pub(crate) struct HeapAnswer(pub(crate) Result<HeapFigures, NotReadable>);

/// The answer as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    reason: Option<NotReadable>,
    figures: Option<HeapFigures>,
}

impl HeapAnswer {
    pub(crate) fn to_text(&self) -> Option<Vec<u8>> {
        let written =
            Written { reason: self.0.as_ref().err().cloned(), figures: self.0.as_ref().ok().cloned() };
        toml::to_string(&written).ok().map(String::into_bytes)
    }

    pub(crate) fn from_text(text: &[u8]) -> Self {
        let written = std::str::from_utf8(text).ok().and_then(|text| toml::from_str::<Written>(text).ok());
        Self(match written {
            Some(Written { figures: Some(figures), .. }) => Ok(figures),
            Some(Written { reason: Some(reason), .. }) => Err(reason),
            _ => Err(NotReadable::because("the answer of the helper is not one")),
        })
    }
}
