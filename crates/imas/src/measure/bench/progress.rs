// SPDX-License-Identifier: Apache-2.0
//! The progress of `imas bench` on standard error: a live line on a terminal, a line now and then elsewhere,
//! and a hint while the first run does not end.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use imas_core::bench::{Comparison, Outlook};
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;
use imas_runs::schedule::RoundKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::measure::ticker::Ticker;
use imas_cli::message;

/// Between two lines where there is no terminal, and before the hint.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

pub(super) struct Progress {
    bar: ProgressBar,
    estimate: String,
    first_run: FirstRun,
    _ticker: Option<Ticker>,
}

impl Progress {
    /// The number of steps; fewer are made if the answer is settled before.
    pub(super) fn start(steps: usize, may_end_sooner: bool, is_shown: bool) -> Self {
        let bar = bar(steps, is_shown);
        let left = if may_end_sooner { "at most {eta} left" } else { "about {eta} left" };
        let style = ProgressStyle::with_template(&format!("{{bar:20}} {{pos}}/{{len}} {{msg}} ({left})"));
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let ticker = is_shown.then(|| ticker(&bar)).flatten();
        Self { first_run: FirstRun::begins(&bar), bar, estimate: String::new(), _ticker: ticker }
    }

    /// A run has ended, however it did.
    pub(super) fn ended(&self) {
        self.first_run.ended();
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

/// A bar for that number of runs, drawn on a terminal only.
pub(super) fn bar(runs: usize, is_shown: bool) -> ProgressBar {
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(runs as u64), target)
}

/// Prints the bar's position now and then where standard error is no terminal.
pub(super) fn ticker(bar: &ProgressBar) -> Option<Ticker> {
    let bar = bar.clone();
    let tell = move || {
        let (at, of) = (bar.position(), bar.length().unwrap_or(0));
        message::say(&format!("imas: run {at} of {of}: {}", bar.message()));
    };
    (!std::io::stderr().is_terminal()).then(|| Ticker::every(NOW_AND_THEN, tell))
}

/// Gives a hint, once, while the first run of a command does not end: it may be a server.
pub(super) struct FirstRun {
    has_ended: Arc<AtomicBool>,
    _hint: Ticker,
}

impl FirstRun {
    pub(super) fn begins(bar: &ProgressBar) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (is_done, bar) = (Arc::clone(&has_ended), bar.clone());
        let hint = move || {
            if !is_done.swap(true, Ordering::SeqCst) {
                bar.suspend(|| message::say(&does_not_end()));
            }
        };
        Self { has_ended, _hint: Ticker::every(NOW_AND_THEN, hint) }
    }

    fn ended(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }
}

fn does_not_end() -> String {
    format!(
        "hint: the first run has not ended after {} s; does not end? --ready and --load measure a server \
         (docs/services.md)",
        NOW_AND_THEN.as_secs()
    )
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
