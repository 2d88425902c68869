// SPDX-License-Identifier: Apache-2.0
//! Why pages do not count.

use imas_engine::daemon_status::DaemonCounters;

/// Why a page is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RejectReason {
    Unwitnessed,
    Damaged,
    Forged,
    Unknown,
    Stale,
    TooMany,
}

impl RejectReason {
    pub(crate) fn count(self, counters: &mut DaemonCounters) {
        let counter = match self {
            Self::Unwitnessed => &mut counters.dropped_unwitnessed,
            Self::Damaged => &mut counters.dropped_damaged,
            Self::Forged => &mut counters.dropped_forged,
            Self::Unknown => &mut counters.dropped_unknown,
            Self::Stale => &mut counters.dropped_stale,
            Self::TooMany => &mut counters.dropped_too_many,
        };
        *counter += 1;
    }
}
