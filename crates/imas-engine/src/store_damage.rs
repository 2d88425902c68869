// SPDX-License-Identifier: Apache-2.0
//! What to do about a store that is found to be damaged while it is read.

use anyhow::Error;
use imas_cli::message::{self, Hinted};
use imas_store::StoreError;

/// The error with a hint what to do, where it says that a store is damaged. Any other error stays as it is.
#[must_use]
pub fn advised(error: Error) -> Error {
    let is_damage = error.chain().any(|cause| cause.downcast_ref().is_some_and(StoreError::is_damage));
    if !is_damage || message::hint(&error).is_some() {
        return error;
    }
    Hinted::error(
        message::text(&error),
        "the store is damaged: move its file away and a new one is begun; 'imas doctor' checks it",
    )
}
