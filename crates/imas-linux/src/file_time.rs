// SPDX-License-Identifier: Apache-2.0
//! Times of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Modification time in nanoseconds since 1970, as both tables hold it.
pub(crate) fn mtime_ns(about: &Metadata) -> i64 {
    about.mtime().wrapping_mul(1_000_000_000).wrapping_add(about.mtime_nsec())
}
