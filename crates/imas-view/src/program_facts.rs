// SPDX-License-Identifier: Apache-2.0
//! What IMAS has decided about one program, in the form in which it is shown with each of its processes.

use std::collections::BTreeMap;

use crate::program_view::ProgramView;
use crate::settled::settled;
use anyhow::Result;
use imas_core::adaptive::AdaptiveState;
use imas_core::sample::PageKind;
use imas_core::{Reason, SYSTEM};
use imas_store::Store;

use crate::restart::Restart;
use crate::snapshot::ProcessState;

/// Decisions looked through for the first one of the present answer.
const DECISIONS: u32 = 100;

/// One program.
#[derive(Debug)]
pub(crate) struct ProgramFacts {
    /// State of each process that is no trial.
    pub(crate) state: ProcessState,
    /// The candidate of the next starts, where one is settled.
    pub(crate) pick: Option<String>,
    pub(crate) quarantined: Vec<String>,
    /// Number of the next trial and the most trials there are, by candidate.
    trials: BTreeMap<String, (u32, u32)>,
    /// What a restart would gain, by the candidate that a process is on.
    gains: BTreeMap<String, Restart>,
}

impl ProgramFacts {
    /// Collects the facts from the state of the program; `on` are the candidates of its processes.
    pub(crate) fn of(store: &Store, state: &ProgramView, on: &[&str]) -> Result<Self> {
        let pick = settled(state).map(str::to_owned);
        let gain = |on: &&str| Some(((*on).to_owned(), Restart::of(state, on, pick.as_deref()?)));
        let is_other = |on: &&&str| pick.as_deref().is_some_and(|pick| pick != **on);
        let views = &state.profile.candidates;
        Ok(Self {
            state: process_state(state, since(store, state)?),
            quarantined: views
                .iter()
                .filter(|view| view.quarantine.is_some())
                .map(|view| view.name.clone())
                .collect(),
            trials: views.iter().map(|view| (view.name.clone(), trials(state, &view.name))).collect(),
            gains: on.iter().filter(is_other).filter_map(gain).collect(),
            pick,
        })
    }

    /// The state of a process that is a trial of the candidate.
    pub(crate) fn trial(&self, candidate: &str) -> ProcessState {
        let (number, of) = self.trials.get(candidate).copied().unwrap_or((1, 1));
        ProcessState::Trial { candidate: candidate.to_owned(), number, of }
    }

    /// The change from candidate `on` to the pick, and the pick. None on the pick itself, and where none is
    /// settled.
    pub(crate) fn gain(&self, on: &str) -> Option<(&Restart, &str)> {
        Some((self.gains.get(on)?, self.pick.as_deref()?))
    }
}

/// The next trial's number, and the most there are of a candidate.
fn trials(state: &ProgramView, candidate: &str) -> (u32, u32) {
    let done = state.profile.candidate(candidate).map_or(0, |view| view.summary.count);
    let most = match &state.profile.adaptive {
        Some(AdaptiveState { settings, .. }) => settings.max_rounds,
        None => state.profile.limits.max_tests,
    };
    (done + 1, most.max(done + 1))
}

/// When the present answer was first given, by the decisions that are kept.
fn since(store: &Store, state: &ProgramView) -> Result<Option<f64>> {
    let decisions = store.decisions(state.known.program.id, DECISIONS)?;
    let starts = decisions.iter().filter(|decided| !decided.trial);
    let same = starts.take_while(|decided| decided.candidate == state.decision.candidate);
    Ok(same.last().map(|decided| decided.at_s))
}

fn process_state(state: &ProgramView, since_unix_s: Option<f64>) -> ProcessState {
    let decision = &state.decision;
    let candidate = decision.candidate.clone();
    let because =
        || decision.evidence.first().map_or_else(|| decision.reason.sentence(), |one| one.value.as_str());
    match decision.reason {
        Reason::Excluded => ProcessState::Excluded,
        Reason::Pinned | Reason::PinnedUnavailable => {
            ProcessState::Pinned { candidate: state.profile.pinned.clone().unwrap_or(candidate) }
        }
        Reason::PinnedQuarantined | Reason::Quarantined => {
            ProcessState::Quarantined { candidate: quarantined(state), instead: candidate }
        }
        Reason::NoCandidate => ProcessState::LeftAlone { why: because().to_owned() },
        Reason::OwnMalloc
        | Reason::AllocatorInterface
        | Reason::Sanitizer
        | Reason::OwnFilter
        | Reason::StoodAside => ProcessState::LeftAlone { why: decision.reason.sentence().to_owned() },
        _ if settled(state).is_some() => ProcessState::Settled { candidate, since_unix_s },
        _ => ProcessState::Testing { trials: trials_made(state), next: candidate },
    }
}

/// Stored trials; other starts, in which nothing was counted, are none.
fn trials_made(state: &ProgramView) -> usize {
    state.known.records.iter().filter(|record| record.sample.kind == PageKind::Trial).count()
}

/// The pinned candidate, else the first that is quarantined.
fn quarantined(state: &ProgramView) -> String {
    let first = state.profile.candidates.iter().find(|view| view.quarantine.is_some());
    let pinned = state.profile.pinned.clone();
    pinned.or_else(|| first.map(|view| view.name.clone())).unwrap_or_else(|| SYSTEM.to_owned())
}
