// SPDX-License-Identifier: Apache-2.0
//! Contents of the journal of earlier sessions, for one that goes on with it; and how long a session may
//! take: whole rounds only, so that every program has been run as often as every other.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use imas_core::raw_runs::Varying;
use imas_core::raw_runs::data::{Dropped, Line};
use imas_core::run::{RawRun, RunKey, RunKind};

/// A round of a program.
pub(crate) type BegunRound = (String, RunKind, u32);

/// Contents of a journal.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Each run once, the first that was written.
    pub(crate) runs: Vec<RawRun>,
    /// Candidates of the session that began a round, by round. A candidate that joined later has no run in
    /// that round. Hours may lie between, and runs of one round are compared with each other.
    pub(crate) begun: BTreeMap<BegunRound, Rc<BTreeSet<String>>>,
    /// Programs that were left out as a whole.
    pub(crate) dropped: Dropped,
    /// Programs whose output varies; no candidate is rejected in their runs.
    pub(crate) varying: Varying,
    seen: BTreeSet<RunKey>,
    candidates: Rc<BTreeSet<String>>,
}

impl Sessions {
    /// Reads the lines. Those that are neither header nor run are skipped.
    pub(crate) fn of(text: &str) -> Self {
        let mut sessions = Self::default();
        text.lines().for_each(|line| sessions.read(line));
        for run in &mut sessions.runs {
            if sessions.varying.accept(&run.program, &mut run.ok, &mut run.why) {
                run.message = None;
            }
        }
        sessions
    }

    fn read(&mut self, line: &str) {
        match Line::parse(line) {
            Ok(Line::Header(header)) => self.candidates = Rc::new(header.versions.into_keys().collect()),
            Ok(Line::Run(run)) => self.ran(*run),
            Ok(Line::NotRun(line)) => self.dropped.left_out(line),
            Ok(Line::OutputVaries(line)) => self.varying.record(line),
            Err(_) => {}
        }
    }

    fn ran(&mut self, run: RawRun) {
        self.dropped.ran(&run.program, run.at_s);
        if run.ok {
            self.varying.saw(&run.program, &run.candidate, run.output.as_deref());
        }
        // Lines without a header, put together by hand, do not name the candidates of the round.
        if !self.candidates.is_empty() {
            let round = (run.program.clone(), run.kind, run.round);
            self.begun.entry(round).or_insert_with(|| Rc::clone(&self.candidates));
        }
        if self.seen.insert(run.key()) {
            self.runs.push(run);
        }
    }
}

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

    /// Two candidates: two measured rounds and a counted one.
    #[test]
    fn a_journal_of_before_is_gone_on_with() {
        let text = include_str!("../../../../crates/imas-runs/tests/fixtures/suite.jsonl");
        let sessions = Sessions::of(text);
        assert_eq!(sessions.runs.len(), 6);
        let round = ("lit-phases".to_owned(), RunKind::Measured, 0);
        assert_eq!(sessions.begun[&round].iter().collect::<Vec<_>>(), ["mimalloc", "system"]);
        let twice = Sessions::of(&text.repeat(2));
        assert_eq!(twice.runs, sessions.runs, "each run once");
    }

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
