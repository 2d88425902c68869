// SPDX-License-Identifier: Apache-2.0
//! Progress of a study, reported to the caller.

use std::fmt;
use std::sync::Arc;

/// Called after each program run with the number of runs done and of all runs. Does nothing by default.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Report>>);

type Report = dyn Fn(u64, u64) + Send + Sync;

impl Progress {
    /// `report(done, all)`.
    pub fn new(report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    pub(crate) fn report(&self, done: u64, all: u64) {
        if let Some(report) = &self.0 {
            report(done, all);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(reported)" } else { "Progress(silent)" })
    }
}
