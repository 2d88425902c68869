// SPDX-License-Identifier: Apache-2.0
//! The one loop that makes runs: limits, failing runs, the check of outputs, the journal and interruption are
//! here and nowhere else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_core::bench::OutputJudgement;
use imas_core::candidate::SYSTEM;
use imas_core::raw_runs::data::NotRun;
use imas_core::raw_runs::{OTHER_OUTPUT, OutputVaries};
use imas_core::run::RunKind;
use imas_core::sample::is_crash_signal;
use imas_linux::host::now_unix_s;

use crate::executor::{Execution, Executor};
use crate::interruption::Interruption;
use crate::journal::Journal;
use crate::schedule::{RoundKind, Step};
use crate::subject::Subject;

/// When a candidate is not tried with a subject again. A failure that is nobody's fault is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elimination {
    /// After one crash, hang or timeout; `system` never.
    Fatal,
    /// After one crash, hang or timeout, or after this number of runs that do not count; `system` never.
    FatalOrFailures(usize),
    /// After this number of runs that do not count. A subject that fails as often under `system` is out.
    Failures(usize),
    /// After this number of measured runs that do not count, as [`Self::Failures`]. A counted run may fail by the hook.
    MeasuredFailures(usize),
    /// After this number of runs in a row that do not count.
    FailuresInARow(usize),
    /// Never.
    Never,
}

/// Rules that differ from caller to caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// When a candidate is not tried again.
    pub elimination: Elimination,
    /// The first warm-up must succeed, or the subject is left out; what it wrote is what `system` writes. Else, and
    /// once one has succeeded, it only fills caches.
    pub warmup_must_succeed: bool,
}

/// Decision after a look at the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The step is made.
    Make,
    /// No further step is made.
    Stop,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// All steps were made.
    Finished,
    /// The observer stopped the session.
    Stopped,
    /// This signal interrupted the session.
    Interrupted(i32),
}

/// Who wants to know how far the session is, and what its runs brought.
pub trait Observer {
    /// A step is about to be made; `subjects` are as they stand.
    ///
    /// # Errors
    /// Ends the session.
    fn before(&mut self, _step: &Step, _subjects: &[Subject]) -> Result<NextStep> {
        Ok(NextStep::Make)
    }

    /// A step was left out: its candidate or its subject is out.
    fn skipped(&mut self, _step: &Step) {}

    /// A step was made; the time that it took, with any result.
    fn made(&mut self, _step: &Step, _took: Duration) {}

    /// A run is judged, and written where there is a journal. Of a warm-up: how it ended.
    ///
    /// # Errors
    /// Ends the session.
    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep>;

    /// A run could not be made. The answer is why its subject is left out.
    ///
    /// # Errors
    /// Ends the session: so it does by default.
    fn failed(&mut self, _step: &Step, error: anyhow::Error) -> Result<String> {
        Err(error)
    }

    /// Two runs of `system` wrote different things.
    fn output_varies(&mut self, _subject: &Subject) {}

    /// Nothing more is done with the subject.
    fn left_out(&mut self, _subject: &Subject, _why: &str) {}
}

/// A session: subjects under candidates.
#[derive(Debug)]
pub struct Runner<'a> {
    /// Names of the candidates, by the index that steps have.
    pub candidates: Vec<String>,
    /// The subjects, by the index that steps have.
    pub subjects: Vec<Subject>,
    /// Rules that differ from caller to caller.
    pub rules: Rules,
    /// Where the records go.
    pub journal: Option<Journal>,
    interruption: &'a Interruption,
    /// Runs from before the first of `system`, which cannot be judged yet.
    waiting: Vec<(Step, Execution)>,
    /// Subjects and candidates with a crash, hang or timeout.
    fatal: BTreeSet<(usize, usize)>,
    /// Subjects with a warm-up that succeeded.
    warm: BTreeSet<usize>,
}

/// A session goes on, or has ended.
type Ended = Option<SessionEnd>;

impl<'a> Runner<'a> {
    /// A session in which nothing was run yet.
    #[must_use]
    pub fn new(
        candidates: Vec<String>,
        subjects: Vec<Subject>,
        rules: Rules,
        interruption: &'a Interruption,
    ) -> Self {
        Self {
            candidates,
            subjects,
            rules,
            journal: None,
            interruption,
            waiting: vec![],
            fatal: BTreeSet::new(),
            warm: BTreeSet::new(),
        }
    }

    /// Makes the steps. What was measured when it ends, in whatever way, has been given to the observer and
    /// the journal.
    ///
    /// # Errors
    /// When a run cannot be made or written, or the observer returns an error.
    pub fn run(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<SessionEnd> {
        let ended = self.all(steps, executor, observer);
        // Without a run of system no candidate is to blame.
        for (step, mut run) in std::mem::take(&mut self.waiting) {
            let output = run.record.output.as_deref().unwrap_or_default();
            if self.subjects[step.subject].outputs.judge(output) == OutputJudgement::Differs {
                blame(&mut run);
            }
            self.keep(&step, run, observer)?;
        }
        ended
    }

    fn all(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<SessionEnd> {
        for step in steps {
            if let Some(signal) = self.interruption.signal() {
                return Ok(SessionEnd::Interrupted(signal));
            }
            if self.is_out(&step) {
                observer.skipped(&step);
                continue;
            }
            if observer.before(&step, &self.subjects)? == NextStep::Stop {
                return Ok(SessionEnd::Stopped);
            }
            if let Some(ended) = self.step(&step, executor, observer)? {
                return Ok(ended);
            }
        }
        Ok(SessionEnd::Finished)
    }

    /// Whether the subject is out, or the candidate for it.
    fn is_out(&self, step: &Step) -> bool {
        let subject = &self.subjects[step.subject];
        let candidate = self.candidates[step.candidate].as_str();
        let is_fatal = || candidate != SYSTEM && self.fatal.contains(&(step.subject, step.candidate));
        let has_failed = |chances| candidate != SYSTEM && subject.failures_of(candidate) >= chances;
        subject.left_out
            || match self.rules.elimination {
                Elimination::Never => false,
                Elimination::Fatal => is_fatal(),
                Elimination::FatalOrFailures(chances) => is_fatal() || has_failed(chances),
                Elimination::Failures(chances) | Elimination::MeasuredFailures(chances) => {
                    [SYSTEM, candidate].iter().any(|name| subject.failures_of(name) >= chances)
                }
                Elimination::FailuresInARow(chances) => subject.failures_of(candidate) >= chances,
            }
    }

    fn step(
        &mut self,
        step: &Step,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Ended> {
        let began = Instant::now();
        let made = match self.execute(step, executor) {
            Made::Run(made) => made,
            Made::Interrupted(signal) => return Ok(Some(SessionEnd::Interrupted(signal))),
        };
        observer.made(step, began.elapsed());
        let mut run = match made {
            Ok(run) => run,
            Err(error) => {
                let why = observer.failed(step, error)?;
                self.leave_out(step.subject, &why, observer)?;
                return Ok(None);
            }
        };
        let Some((kind, round)) = step.kind.kept() else { return self.warm_up(step, run, observer) };
        run.record.kind = kind;
        run.record.round = round;
        self.judge(step, run, executor, observer)
    }

    /// Makes the run. What a signal ended says nothing of the program: then the session is over.
    fn execute(&mut self, step: &Step, executor: &mut dyn Executor) -> Made {
        let candidate = self.candidates[step.candidate].clone();
        let limits = self.subjects[step.subject].limits(&candidate);
        let at_s = now_unix_s();
        let made = executor.execute(step, &limits);
        let by_signal = made.as_ref().ok().and_then(|run| run.outcome.signal);
        if let Some(signal) = self.interruption.signal_after(by_signal) {
            return Made::Interrupted(signal);
        }
        Made::Run(made.map(|mut run| {
            let subject = &mut self.subjects[step.subject];
            subject.saw(&candidate, &run);
            run.record.program.clone_from(&subject.name);
            run.record.candidate = candidate;
            run.record.at_s = at_s;
            run
        }))
    }

    fn warm_up(&mut self, step: &Step, run: Execution, observer: &mut dyn Observer) -> Result<Ended> {
        let record = run.record.clone();
        let next = observer.after(step, run)?;
        if self.rules.warmup_must_succeed {
            match &record.why {
                None => {
                    self.warm.insert(step.subject);
                    self.see(step.subject, record.output.as_deref(), observer)?;
                }
                Some(_) if self.warm.contains(&step.subject) => {}
                Some(why) => {
                    let message = record.message.unwrap_or_default();
                    let why = format!("it fails under system ({why}): {message}");
                    self.leave_out(step.subject, &why, observer)?;
                }
            }
        }
        Ok((next == NextStep::Stop).then_some(SessionEnd::Stopped))
    }

    /// Compares the output with the output of `system`, now or once there is one.
    fn judge(
        &mut self,
        step: &Step,
        run: Execution,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Ended> {
        let output = run.record.output.clone().filter(|_| run.record.ok);
        let Some(output) = output else { return self.keep(step, run, observer) };
        if run.record.candidate != SYSTEM {
            self.waiting.push((*step, run));
        } else {
            if let Some(ended) = self.keep(step, run, observer)? {
                return Ok(Some(ended));
            }
            self.see(step.subject, Some(&output), observer)?;
        }
        self.judge_waiting(step.subject, executor, observer)
    }

    fn judge_waiting(
        &mut self,
        subject: usize,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Ended> {
        while let Some((step, mut run)) = self.next_to_judge(subject) {
            let output = run.record.output.clone().unwrap_or_default();
            let differs = |of: &Self| of.subjects[subject].outputs.judge(&output) == OutputJudgement::Differs;
            if differs(self) && !self.subjects[subject].outputs.is_confirmed() {
                match self.confirm(subject, executor, observer)? {
                    Confirmation::Ended(ended) => return Ok(Some(ended)),
                    // The run is not kept: a session that goes on makes it again.
                    Confirmation::LeftOut => continue,
                    Confirmation::Made => {}
                }
            }
            if differs(self) {
                blame(&mut run);
            }
            if let Some(ended) = self.keep(&step, run, observer)? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// A waiting run of the subject, once there is an output of `system`.
    fn next_to_judge(&mut self, subject: usize) -> Option<(Step, Execution)> {
        let outputs = &self.subjects[subject].outputs;
        let can_be_judged = |(step, run): &(Step, Execution)| {
            let output = run.record.output.as_deref().unwrap_or_default();
            step.subject == subject && outputs.judge(output) != OutputJudgement::Unknown
        };
        let at = self.waiting.iter().position(can_be_judged)?;
        Some(self.waiting.remove(at))
    }

    /// One more run of `system`, which is not kept: a candidate is rejected only for what `system` writes
    /// twice.
    fn confirm(
        &mut self,
        subject: usize,
        executor: &mut dyn Executor,
        observer: &mut dyn Observer,
    ) -> Result<Confirmation> {
        let Some(candidate) = self.candidates.iter().position(|name| name == SYSTEM) else {
            return Ok(Confirmation::Made);
        };
        let step = Step { subject, candidate, kind: RoundKind::Measured { round: u32::MAX } };
        let run = match self.execute(&step, executor) {
            Made::Run(made) => made,
            Made::Interrupted(signal) => return Ok(Confirmation::Ended(SessionEnd::Interrupted(signal))),
        };
        let failed = match run {
            Ok(Execution { record, .. }) if record.ok => {
                self.see(subject, record.output.as_deref(), observer)?;
                return Ok(Confirmation::Made);
            }
            // The output of a failed run says nothing of what the program writes.
            Ok(Execution { record, .. }) => {
                let why = record.why.unwrap_or_default();
                anyhow::anyhow!("it fails under system ({why}) when its output was to be confirmed")
            }
            Err(error) => error,
        };
        let why = observer.failed(&step, failed)?;
        self.leave_out(subject, &why, observer)?;
        Ok(Confirmation::LeftOut)
    }

    /// An output of `system`.
    fn see(&mut self, subject: usize, output: Option<&str>, observer: &mut dyn Observer) -> Result<()> {
        let subject = &mut self.subjects[subject];
        if !output.is_some_and(|output| subject.outputs.see(output)) {
            return Ok(());
        }
        subject.accept_outputs();
        observer.output_varies(subject);
        let line = OutputVaries { output_varies: subject.name.clone(), at_s: now_unix_s() };
        self.write(&line)
    }

    fn leave_out(&mut self, subject: usize, why: &str, observer: &mut dyn Observer) -> Result<()> {
        let subject = &mut self.subjects[subject];
        subject.left_out = true;
        observer.left_out(subject, why);
        let line = NotRun { left_out: subject.name.clone(), why: why.to_owned(), at_s: now_unix_s() };
        self.write(&line)
    }

    /// The run is final.
    fn keep(&mut self, step: &Step, run: Execution, observer: &mut dyn Observer) -> Result<Ended> {
        self.write(&run.record)?;
        let subject = &mut self.subjects[step.subject];
        let name = &self.candidates[step.candidate];
        let forgives_counted = matches!(self.rules.elimination, Elimination::MeasuredFailures(_));
        let is_forgiven =
            run.record.is_nobodys_failure() || (forgives_counted && run.record.kind == RunKind::Counted);
        if !run.record.ok && !is_forgiven {
            subject.failed(name, run.record.why.as_deref().unwrap_or_default());
        } else if run.record.ok && matches!(self.rules.elimination, Elimination::FailuresInARow(_)) {
            subject.failures.remove(name);
        }
        if run.outcome.signal.is_some_and(is_fatal) {
            self.fatal.insert((step.subject, step.candidate));
        }
        let next = observer.after(step, run)?;
        Ok((next == NextStep::Stop).then_some(SessionEnd::Stopped))
    }

    fn write(&mut self, line: &impl serde::Serialize) -> Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.append(line).with_context(|| journal.path().display().to_string())
    }
}

/// Outcome of making a run.
#[expect(clippy::large_enum_variant, reason = "one exists at a time, and a run costs far more than its copy")]
enum Made {
    Run(Result<Execution>),
    Interrupted(i32),
}

/// Outcome of one more run of `system`.
enum Confirmation {
    Made,
    LeftOut,
    Ended(SessionEnd),
}

fn blame(run: &mut Execution) {
    run.record.ok = false;
    run.record.why = Some(OTHER_OUTPUT.to_owned());
    run.record.message = Some("its output is not that of system".to_owned());
}

/// No reason to wait for such an end again: a crash, or the limit of time.
fn is_fatal(signal: i32) -> bool {
    const SIGKILL: i32 = 9; // our own watchdog's
    signal == SIGKILL || u32::try_from(signal).is_ok_and(is_crash_signal)
}
