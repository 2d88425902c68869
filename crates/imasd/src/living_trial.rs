// SPDX-License-Identifier: Apache-2.0
//! A process that runs a trial.

use imas_store::RowId;

use crate::folders::PageName;
use crate::process_info::Identity;

/// A process on trial.
#[derive(Debug)]
pub(crate) struct LivingTrial {
    pub(crate) identity: Identity,
    pub(crate) page: PageName,
    pub(crate) program: RowId,
    /// Id of the trial, as its sample is stored.
    pub(crate) trial_id: String,
    pub(crate) build_id: String,
}
