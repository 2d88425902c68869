// SPDX-License-Identifier: Apache-2.0
//! How far it is: a bar on a terminal, a line per round elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::message;

/// Seconds that a run takes besides the program itself.
const AROUND_A_RUN_S: f64 = 0.05;

/// Knows what is left and how long the like took so far.
pub(super) struct Progress {
    bar: ProgressBar,
    /// Runs left and seconds a run takes, by program.
    left: BTreeMap<String, (u64, f64)>,
    began: Instant,
    expected_done_s: f64,
}

impl Progress {
    /// `left`: for each program its runs to come and the seconds one is expected to take.
    pub(super) fn start(left: BTreeMap<String, (u64, f64)>) -> Self {
        let bar = ProgressBar::new(left.values().map(|(runs, _)| runs).sum());
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, left, began: Instant::now(), expected_done_s: 0.0 }
    }

    pub(super) fn step(&self, program: &str, candidate: &str) {
        self.bar.set_message(format!("{program}, {candidate} ({})", self.time_left()));
    }

    /// A run is done, or will not be made.
    pub(super) fn done(&mut self, program: &str, took: Option<Duration>) {
        self.bar.inc(1);
        let Some((runs, seconds)) = self.left.get_mut(program) else { return };
        *runs = runs.saturating_sub(1);
        if let Some(took) = took {
            self.expected_done_s += *seconds;
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
            let so_far = HumanDuration(self.began.elapsed());
            message::say(&format!("imas: {what} done after {so_far}, {}", self.time_left()));
        }
    }

    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| message::say(line));
    }

    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
