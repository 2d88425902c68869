// SPDX-License-Identifier: Apache-2.0
//! The live line of `imas bench`: on a terminal only, on standard error.

use imas_core::bench::{Comparison, Outlook};
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;
use imas_runs::schedule::RoundKind;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) struct Progress {
    bar: ProgressBar,
    estimate: String,
}

impl Progress {
    /// The number of steps; fewer are made if the answer is settled before.
    pub(super) fn start(steps: usize, may_end_sooner: bool, is_shown: bool) -> Self {
        let bar = if is_shown { ProgressBar::new(steps as u64) } else { ProgressBar::hidden() };
        let left = if may_end_sooner { "at most {eta} left" } else { "about {eta} left" };
        let style = ProgressStyle::with_template(&format!("{{bar:20}} {{pos}}/{{len}} {{msg}} ({left})"));
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, estimate: String::new() }
    }

    pub(super) fn step(&self, candidate: &str, kind: RoundKind) {
        let what = match kind {
            RoundKind::Warmup => "warm-up",
            RoundKind::Measured { .. } => "measured",
            RoundKind::Counted { .. } => "counted",
        };
        self.bar.set_message(format!("{candidate}, {what}{}", self.estimate));
        self.bar.inc(1);
    }

    /// What the runs say so far.
    pub(super) fn looked(&mut self, comparison: &Comparison) {
        self.estimate = estimate(comparison).map_or_else(String::new, |text| format!("; so far {text}"));
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The candidate that looks best, and by how much.
fn estimate(comparison: &Comparison) -> Option<String> {
    let picks = &comparison.picks;
    let picks = [&picks.balanced, &picks.fastest, &picks.leanest];
    let name = match (&comparison.outlook, picks.into_iter().find(|pick| *pick != SYSTEM)) {
        (_, Some(pick)) => pick,
        (Outlook::LooksBetter { candidate, .. }, None) => candidate,
        _ => return Some("nothing is better than system".to_owned()),
    };
    let ratio = comparison.candidates.iter().find(|one| one.name == *name)?.ratio;
    let change = |what: &str, ratio: Option<Interval>| {
        ratio.map(|ratio| format!("{:+.0} % {what}", (ratio.mid - 1.0) * 100.0))
    };
    let parts: Vec<String> =
        [change("CPU", ratio.cpu), change("memory", ratio.memory)].into_iter().flatten().collect();
    Some(format!("{name} {}", parts.join(", ")))
}
