// SPDX-License-Identifier: Apache-2.0
//! The progress of `imas bench` on standard error: a live line on a terminal, a line now and then elsewhere, and a hint
//! while the first run does not end. And when no further round is made.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use imas_cli::format::seconds;
use imas_cli::message;
use imas_core::bench::Looks;
use imas_core::judgement::{BenchCourse, BenchEnding, BenchJudgement, JudgedFigure};
use imas_report::bench::RoundsEnd;
use imas_runs::schedule::RoundKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

    /// Takes the estimate from the runs so far.
    pub(super) fn looked(&mut self, judgement: &BenchJudgement) {
        self.estimate = estimate(judgement).map_or_else(String::new, |text| format!("; so far {text}"));
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
        let (at, of, left) = (bar.position(), bar.length().unwrap_or(0), bar.eta());
        // Nothing is known before the first run has ended, nor where there are more runs than were planned.
        let is_known = at > 1 && left.as_secs() > 0;
        let left =
            if is_known { format!(" (about {} left)", seconds(left.as_secs_f64())) } else { String::new() };
        message::say(&format!("imas: run {at} of {of}: {}{left}", bar.message()));
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
fn estimate(judgement: &BenchJudgement) -> Option<String> {
    let name = match (&judgement.ending, judgement.best()) {
        (_, Some(pick)) => pick,
        (BenchEnding::LooksBetter { candidate, .. }, None) => candidate,
        _ => return Some("nothing is proven better than system".to_owned()),
    };
    let percent = |figure: &JudgedFigure| (figure.ratio.mid - 1.0) * 100.0;
    let figures = &judgement.candidate(name)?.figures;
    let change = |name: &str, what: &str| Some(format!("{:+.0} % {what}", percent(figures.get(name)?)));
    let parts: Vec<String> =
        [change("cpu", "CPU"), change("memory", "memory")].into_iter().flatten().collect();
    Some(format!("{name} {}", parts.join(", ")))
}

/// When `imas bench` makes no further round.
pub(super) struct StopRule {
    /// After which rounds the runs are looked at; None: their number is fixed.
    pub(super) looks: Option<Looks>,
    max_time: Option<Duration>,
    began: Instant,
    /// Why no further round is made, once that is decided.
    pub(super) ended: Option<RoundsEnd>,
}

impl StopRule {
    /// `began` is what `max_time_s` counts from.
    pub(super) fn new(looks: Option<Looks>, max_time_s: Option<f64>, began: Instant) -> Self {
        let max_time = max_time_s.map(Duration::from_secs_f64);
        Self { looks, max_time, began, ended: None }
    }

    /// Whether the runs are tested after this number of rounds.
    pub(super) fn is_look(&self, rounds: u32) -> bool {
        self.looks.is_some_and(|looks| rounds >= looks.first)
    }

    pub(super) fn looked(&mut self, course: BenchCourse) {
        self.ended = match course {
            BenchCourse::Open => None,
            BenchCourse::Settled => Some(RoundsEnd::Settled),
            BenchCourse::Hopeless => Some(RoundsEnd::Hopeless),
        };
    }

    /// Every candidate has a run: the time counts.
    pub(super) fn check_time(&mut self) {
        let is_up = self.max_time.is_some_and(|max_time| self.began.elapsed() >= max_time);
        self.ended = self.ended.or_else(|| is_up.then_some(RoundsEnd::MaxTime));
    }
}

/// Calls a function again and again, on a thread of its own, until it is dropped.
pub(crate) struct Ticker {
    /// The thread ends when this end of the channel is dropped.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Ticker that calls `tick` after every gap. The first call comes after one gap.
    pub(crate) fn every(gap: Duration, mut tick: impl FnMut() + Send + 'static) -> Self {
        let (alive, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(gap) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        });
        Self { alive: Some(alive), thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a message that failed must not end the command
        }
    }
}
