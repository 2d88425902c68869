// SPDX-License-Identifier: Apache-2.0
//! What all requests share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use imas_engine::context::Context;
use tokio::sync::Semaphore;

use crate::keeper::Keeper;
use crate::live::Live;
use crate::served_state::ServedState;
use crate::suite_runs::Suite;

/// Time to wait for the first state: that of a large store takes its time.
const FIRST_STATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of pages that may listen for changes.
const LISTENERS: usize = 32;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) keeper: Keeper,
    /// The installation, for what a request computes itself.
    pub(crate) context: Mutex<Context>,
    pub(crate) live: Live,
    pub(crate) suite: Suite,
    pub(crate) listeners: Arc<Semaphore>,
}

impl Shared {
    pub(crate) fn new(keeper: Keeper, context: Context, live: Live, suite: Suite) -> Self {
        Self {
            keeper,
            context: Mutex::new(context),
            live,
            suite,
            listeners: Arc::new(Semaphore::new(LISTENERS)),
        }
    }

    /// The newest state; None if the first one takes too long.
    pub(crate) async fn known(&self) -> Option<Arc<ServedState>> {
        tokio::time::timeout(FIRST_STATE_TIMEOUT, self.keeper.known()).await.ok().flatten()
    }
}
