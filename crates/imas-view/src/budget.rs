// SPDX-License-Identifier: Apache-2.0
//! How long one look may take for what can wait until the next one.

use std::time::{Duration, Instant};

/// Share of the time since the last look that may be spent.
const SHARE: f64 = 0.001;

/// Share for looks at heaps, and what stands for the time before the first look.
const HEAPS_SHARE: f64 = 0.003;
const BEFORE_FIRST: Duration = Duration::from_secs(60);

/// Time for one kind of work in one look.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Moment at which the time is over; None: there is no limit.
    end: Option<Instant>,
    begun: bool,
}

impl Budget {
    /// For a look that comes this long after the last one; without a limit for the first look.
    pub(crate) fn after(since_last: Option<Duration>) -> Self {
        let end = since_last.map(|since| Instant::now() + since.mul_f64(SHARE));
        Self { end, begun: false }
    }

    /// For looks at heaps, which take longer: the first look has a limit too.
    pub(crate) fn for_heaps(since_last: Option<Duration>) -> Self {
        let time = since_last.unwrap_or(BEFORE_FIRST).mul_f64(HEAPS_SHARE);
        Self { end: Some(Instant::now() + time), begun: false }
    }

    /// Whether there is time for one more piece of work. There always is for the first one, so that all work
    /// gets done in the end.
    pub(crate) fn allows_more(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.begun, true);
        is_first || self.end.is_none_or(|end| Instant::now() < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_of_work_is_always_allowed() {
        let mut spent = Budget::after(Some(Duration::ZERO));
        assert_eq!([spent.allows_more(), spent.allows_more()], [true, false]);
        let mut first = Budget::after(None);
        assert!((0..1000).all(|_| first.allows_more()));
    }
}
