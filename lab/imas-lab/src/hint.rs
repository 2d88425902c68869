// SPDX-License-Identifier: Apache-2.0
//! Errors of the studies, with their hints.

use imas_cli::message::Hinted;
use imas_study::StudyError;

pub(crate) fn hinted(error: StudyError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => Hinted::error(error.to_string(), hint),
        None => error.into(),
    }
}
