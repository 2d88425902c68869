// SPDX-License-Identifier: Apache-2.0
//! When to log that something fails, and that it works again. What is tried again every few seconds may fail and work
//! by turns, and two lines are enough for that.

use std::time::{Duration, Instant};

/// Time for which a thing must work until it works again.
const QUIET: Duration = Duration::from_secs(60);

/// State of the log about something that may fail.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    is_logged: bool,
    works_since: Option<Instant>,
}

impl TroubleLog {
    /// Notes that the work has failed. Returns whether that is to be logged.
    pub(crate) fn began(&mut self) -> bool {
        self.works_since = None;
        !std::mem::replace(&mut self.is_logged, true)
    }

    /// Notes that the work has succeeded.
    pub(crate) fn ended(&mut self, now: Instant) {
        self.works_since.get_or_insert(now);
    }

    /// Whether the success is to be logged now that it works again.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = self.is_logged && self.works_since.is_some_and(|since| now - since >= QUIET);
        self.is_logged &= !is_over;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_that_comes_and_goes_makes_two_lines() {
        let (mut log, begin) = (TroubleLog::default(), Instant::now());
        let mut lines = 0;
        for turn in 0..20 {
            let now = begin + Duration::from_secs(10 * turn);
            lines += usize::from(log.began());
            log.ended(now);
            lines += usize::from(log.is_over(now + Duration::from_secs(5)));
        }
        assert_eq!(lines, 1);
        assert!(!log.is_over(begin + Duration::from_secs(200)));
        assert!(
            log.is_over(begin + Duration::from_secs(260)) && !log.is_over(begin + Duration::from_secs(999))
        );
        assert!(log.began());
    }
}
