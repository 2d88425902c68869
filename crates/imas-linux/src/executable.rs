// SPDX-License-Identifier: Apache-2.0
//! The identity of an executable file, by which a replaced file is distinguished from the one that was seen.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::file_time::mtime_ns;

/// An executable as it was when it was learned about: a file that differs in any of these is another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Executable {
    /// Device, as stat gives it.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Size in bytes.
    pub bytes: u64,
}

impl From<&Metadata> for Executable {
    fn from(about: &Metadata) -> Self {
        Self { dev: about.dev(), ino: about.ino(), mtime_ns: mtime_ns(about), bytes: about.len() }
    }
}
