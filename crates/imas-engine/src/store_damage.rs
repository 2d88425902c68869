// SPDX-License-Identifier: Apache-2.0
//! Hints for a store that is found to be damaged, or not to be written, while it is used.

use anyhow::Error;
use imas_cli::message::{self, Hinted};
use imas_store::StoreError;

/// The error with a hint what to do, where it says that a store is damaged or cannot be written. Any other error
/// stays as it is.
#[must_use]
pub fn advised(error: Error) -> Error {
    let way_out = error.chain().find_map(|cause| cause.downcast_ref::<StoreError>().and_then(hint));
    match way_out.filter(|_| message::hint(&error).is_none()) {
        Some(way_out) => Hinted::error(message::text(&error), way_out),
        None => error,
    }
}

fn hint(error: &StoreError) -> Option<&'static str> {
    let damaged = "the store is damaged: move its file away and a new one is begun; 'imas doctor' checks it";
    let read_only = "file and folder of the store must be yours to write; --store FILE names another store";
    error.is_damage().then_some(damaged).or_else(|| error.is_read_only().then_some(read_only))
}
