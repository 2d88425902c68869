// SPDX-License-Identifier: Apache-2.0
//! How far it is: a bar on a terminal; elsewhere a line a round, and within long rounds one every now and then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::message;

/// Nobody who reads along in a file should wonder for longer whether it is still at work.
const SILENCE: Duration = Duration::from_secs(60);

/// Seconds that a run takes besides the program itself.
const AROUND_A_RUN_S: f64 = 0.05;

/// Knows what is left and how long the like took so far.
pub(super) struct Progress {
    bar: ProgressBar,
    /// Runs left and seconds a run takes, by program.
    left: BTreeMap<String, (u64, f64)>,
    began: Instant,
    /// When a line was said last, where no bar is seen.
    spoken: Cell<Instant>,
}

impl Progress {
    /// `left`: for each program its runs to come and the seconds one is expected to take.
    pub(super) fn start(left: BTreeMap<String, (u64, f64)>) -> Self {
        let bar = ProgressBar::new(left.values().map(|(runs, _)| runs).sum());
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        Self { bar, left, began: now, spoken: now.into() }
    }

    pub(super) fn step(&self, program: &str, candidate: &str) {
        if self.bar.is_hidden() && self.is_due(Instant::now()) {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            self.tell(&format!("{done} of {all} runs"));
        }
        self.bar.set_message(format!("{program}, {candidate} ({})", self.time_left()));
    }

    /// A run is done, or will not be made.
    pub(super) fn done(&mut self, program: &str, took: Option<Duration>) {
        self.bar.inc(1);
        let Some((runs, seconds)) = self.left.get_mut(program) else { return };
        *runs = runs.saturating_sub(1);
        if let Some(took) = took {
            // Follows what this machine needs.
            *seconds += (took.as_secs_f64() - *seconds) / 4.0;
        }
    }

    /// What this many runs of a program are expected to take.
    pub(super) fn expected(&self, program: &str, runs: usize) -> Duration {
        let one = self.left.get(program).map_or(0.0, |(_, seconds)| seconds + AROUND_A_RUN_S);
        Duration::from_secs_f64(one * runs as f64)
    }

    pub(super) fn left_s(&self) -> f64 {
        self.left.values().map(|(runs, seconds)| *runs as f64 * (seconds + AROUND_A_RUN_S)).sum()
    }

    fn time_left(&self) -> String {
        format!("about {} left", HumanDuration(Duration::from_secs_f64(self.left_s())))
    }

    /// Said where no bar is seen.
    pub(super) fn round(&self, what: &str) {
        if self.bar.is_hidden() {
            self.tell(what);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.spoken.get()) >= SILENCE
    }

    fn tell(&self, what: &str) {
        let so_far = HumanDuration(self.began.elapsed());
        message::say(&format!("imas: {what} done after {so_far}, {}", self.time_left()));
        self.spoken.set(Instant::now());
    }

    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| message::say(line));
    }

    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_after_a_silence_and_is_silent_after_it_spoke() {
        let progress = Progress::start(BTreeMap::from([("a".to_owned(), (3, 1.0))]));
        let later = Instant::now() + SILENCE;
        assert!(!progress.is_due(Instant::now()) && progress.is_due(later));
        progress.spoken.set(later);
        assert!(!progress.is_due(later));
    }

    #[test]
    fn what_is_left_follows_what_runs_take() {
        let mut progress = Progress::start(BTreeMap::from([("a".to_owned(), (3, 1.0))]));
        progress.done("a", Some(Duration::from_secs(5)));
        assert!((progress.left_s() - 2.0 * (2.0 + AROUND_A_RUN_S)).abs() < 1e-9, "{}", progress.left_s());
    }
}
