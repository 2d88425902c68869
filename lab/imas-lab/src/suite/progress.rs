// SPDX-License-Identifier: Apache-2.0
//! Progress of a session: a bar on a terminal; elsewhere a line a round, and within long rounds one every now
//! and then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use imas_cli::message;

/// Longest time without a line in a log, so that a reader can see that the session still runs.
const SILENCE: Duration = Duration::from_secs(60);

/// Seconds that a run takes besides the program itself.
const AROUND_A_RUN_S: f64 = 0.05;

/// Weight of the suite's estimate, in seconds, so that the first runs do not determine the estimate.
const TRUST_S: f64 = 20.0;

/// A program's runs to come.
struct Left {
    runs: u64,
    /// Estimated seconds of a run: first by the suite, then by earlier runs.
    seconds: f64,
    /// The program was run here.
    seen: bool,
}

/// Estimates the remaining time from the runs so far.
pub(super) struct Progress {
    bar: ProgressBar,
    left: BTreeMap<String, Left>,
    began: Instant,
    /// Sum of the suite's estimates for all completed runs, with the first warm-ups.
    expected_s: f64,
    /// Time at which a line was printed last, where no bar is seen.
    spoken: Cell<Instant>,
}

impl Progress {
    /// `left`: for each program its runs to come and the seconds one is expected to take.
    pub(super) fn start(left: BTreeMap<String, (u64, f64)>) -> Self {
        let bar = ProgressBar::new(left.values().map(|(runs, _)| runs).sum());
        let left = left.into_iter();
        let left = left.map(|(name, (runs, seconds))| (name, Left { runs, seconds, seen: false })).collect();
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        Self { bar, left, began: now, expected_s: 0.0, spoken: now.into() }
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
        let Some(left) = self.left.get_mut(program) else { return };
        left.runs = left.runs.saturating_sub(1);
        let Some(took_s) = took.map(|took| took.as_secs_f64()) else { return };
        if left.seen {
            self.expected_s += left.seconds + AROUND_A_RUN_S;
            left.seconds += (took_s - left.seconds) / 4.0;
        } else {
            // It was run twice: a warm-up goes before.
            self.expected_s += 2.0 * (left.seconds + AROUND_A_RUN_S);
            (left.seconds, left.seen) = (took_s, true);
        }
    }

    /// Time that this many runs of a program are expected to take.
    pub(super) fn expected(&self, program: &str, runs: usize) -> Duration {
        let slowness = self.slowness(self.began.elapsed());
        let one = self.left.get(program).map_or(0.0, |left| left.one_s(slowness));
        Duration::from_secs_f64(one * runs as f64)
    }

    /// Ratio of the time taken here to the suite's estimates, with the making of inputs.
    fn slowness(&self, elapsed: Duration) -> f64 {
        (elapsed.as_secs_f64() + TRUST_S) / (self.expected_s + TRUST_S)
    }

    fn left_s(&self, elapsed: Duration) -> f64 {
        let slowness = self.slowness(elapsed);
        let of = |left: &Left| {
            let warm_up = u64::from(!left.seen && left.runs > 0);
            (left.runs + warm_up) as f64 * left.one_s(slowness)
        };
        self.left.values().map(of).sum()
    }

    fn time_left(&self) -> String {
        let left_s = self.left_s(self.began.elapsed());
        format!("about {} left", HumanDuration(Duration::from_secs_f64(left_s)))
    }

    /// Prints a line where there is no bar.
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

impl Left {
    fn one_s(&self, slowness: f64) -> f64 {
        (if self.seen { self.seconds } else { self.seconds * slowness }) + AROUND_A_RUN_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_printed_once_after_each_interval() {
        let progress = Progress::start(BTreeMap::from([("a".to_owned(), (3, 1.0))]));
        let later = Instant::now() + SILENCE;
        assert!(!progress.is_due(Instant::now()) && progress.is_due(later));
        progress.spoken.set(later);
        assert!(!progress.is_due(later));
    }

    #[test]
    fn the_remaining_time_follows_the_time_of_runs() {
        let two = [("a".to_owned(), (3, 1.0)), ("b".to_owned(), (3, 1.0))];
        let mut progress = Progress::start(BTreeMap::from(two));
        let one = 1.0 + AROUND_A_RUN_S;
        assert!((progress.left_s(Duration::ZERO) - 8.0 * one).abs() < 1e-9);
        // All takes ten times as long: of a that is known, b is believed to be like it the more has been
        // seen.
        progress.done("a", Some(Duration::from_secs(10)));
        let left_s = progress.left_s(Duration::from_secs(20));
        assert!((2.0 * 10.0 + 4.0 * 1.5..8.0 * 10.5).contains(&left_s), "{left_s}");
        assert!(progress.slowness(Duration::from_secs(200)) > 9.0);
        progress.done("a", None);
        progress.done("a", Some(Duration::from_secs(2)));
        let of_b = 4.0 * (progress.slowness(Duration::ZERO) + AROUND_A_RUN_S);
        assert!((progress.left_s(Duration::ZERO) - of_b).abs() < 1e-9);
    }
}
