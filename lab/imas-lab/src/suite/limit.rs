// SPDX-License-Identifier: Apache-2.0
//! How long a session may take: whole rounds only, so that every program has been run as often as every
//! other.

use std::time::{Duration, Instant};

/// A session's time, from its first run on.
#[derive(Debug)]
pub(crate) struct Limit {
    began: Instant,
    /// Longest time of the session; None is no limit.
    length: Option<Duration>,
    some_round_began: std::cell::Cell<bool>,
}

impl Limit {
    pub(crate) fn start(length: Option<Duration>) -> Self {
        Self { began: Instant::now(), length, some_round_began: false.into() }
    }

    /// Whether a round that is expected to take `needs` begins. The first always does: before any run its
    /// time is only an estimate.
    pub(crate) fn begins(&self, needs: Duration) -> bool {
        let first = !self.some_round_began.replace(true);
        first || self.length.is_none_or(|length| self.began.elapsed() + needs <= length)
    }

    /// Whether the session's time has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.length.is_some_and(|length| self.began.elapsed() >= length)
    }

    pub(crate) fn message(&self, what: &str) -> String {
        let length = indicatif::HumanDuration(self.length.unwrap_or_default());
        format!("imas: time limit of {length}: {what}; every finished run is kept, --resume goes on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_is_begun_and_no_other_that_would_not_end() {
        let limit = Limit::start(Some(Duration::from_secs(3600)));
        let (short, long) = (Duration::from_secs(60), Duration::from_secs(7200));
        assert!(limit.begins(long));
        assert!(limit.begins(short));
        assert!(!limit.begins(long));
        assert!(!limit.is_over());
        assert!(Limit::start(Some(Duration::ZERO)).is_over());
        let endless = Limit::start(None);
        assert!(endless.begins(long) && endless.begins(long) && !endless.is_over());
    }
}
