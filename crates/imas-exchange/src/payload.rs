// SPDX-License-Identifier: Apache-2.0
//! Hostile bytes as JSON of this version: what aggregates and statistics have in common.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The version of the payload that this build writes.
pub const VERSION: u32 = 1;
/// Why bytes are no payload of this version.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BadPayload {
    /// More than the largest payload of its kind.
    #[error("{0} bytes are too many")]
    TooLarge(usize),
    /// Written by another IMAS. It is skipped: the writer is not to blame.
    #[error("version {0} is unknown")]
    UnknownVersion(u32),
    /// No JSON of the expected form.
    #[error("not readable: {0}")]
    Unreadable(String),
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// Reads at most `most` bytes. Values are not checked.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, BadPayload> {
    if bytes.len() > most {
        return Err(BadPayload::TooLarge(bytes.len()));
    }
    let unreadable = |error: serde_json::Error| BadPayload::Unreadable(error.to_string());
    let Versioned { v } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if v != VERSION {
        return Err(BadPayload::UnknownVersion(v));
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}
