// SPDX-License-Identifier: Apache-2.0
//! A program in one line: what it is started on, what that gained and what is still to be gained.

use imas_core::SYSTEM;
use imas_core::decision::Conditions;
use imas_core::sample::PageKind;
use imas_core::stats::Interval;
use imas_engine::decide::{UnderWay, decide};
use imas_engine::live::process_state;
use imas_engine::picks;
use imas_engine::program_view::ProgramView;
use imas_store::RowId;
use serde::Serialize;

/// One program.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ProgramLine {
    /// Number of the program in the store.
    pub(crate) id: RowId,
    /// For people: control characters are replaced.
    pub(crate) name: String,
    /// `own`, `everybody` or the uid.
    pub(crate) domain: String,
    /// Trials stored.
    pub(crate) trials: usize,
    /// Other starts stored.
    pub(crate) starts: usize,
    /// Trials and other starts that crashed or hung.
    pub(crate) crashes: usize,
    /// Candidate of a start that is no trial.
    pub(crate) candidate: String,
    /// Candidate that is tried with the next start.
    pub(crate) trial: Option<String>,
    /// The trial that runs now.
    pub(crate) under_way: Option<UnderWay>,
    /// Id of the reason.
    pub(crate) reason: String,
    /// The reason in words.
    pub(crate) because: String,
    /// State of its next starts in a word.
    pub(crate) standing: &'static str,
    /// The state as all pages have it.
    pub(crate) state: String,
    pub(crate) quarantined: Vec<QuarantinedCandidate>,
    /// Cost of the program under `candidate` as a ratio to `system`; None under `system` and where nothing is
    /// known.
    pub(crate) gained: Option<Gain>,
    /// The best gain that is known and not in use.
    pub(crate) possible: Option<Gain>,
    /// Median of the bytes that the program held under `candidate`.
    pub(crate) resident_bytes: Option<u64>,
    /// When the newest decision was made.
    pub(crate) decided_unix_s: Option<f64>,
}

/// A candidate that the program does not get.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct QuarantinedCandidate {
    pub(crate) candidate: String,
    pub(crate) since_unix_s: f64,
    pub(crate) is_hang: bool,
    /// Word for the program's behaviour under the candidate.
    pub(crate) because: &'static str,
}

/// Cost under a candidate.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Gain {
    pub(crate) candidate: String,
    /// CPU time as a ratio to that under `system`.
    pub(crate) cpu: Interval,
    /// Memory as a ratio to that under `system`.
    pub(crate) memory: Interval,
    /// Whether the policy holds it for proven.
    pub(crate) is_proven: bool,
}

impl Gain {
    /// Fraction of CPU and memory together that is saved; negative if more is used.
    pub(crate) fn together(&self) -> f64 {
        1.0 - (self.cpu.mid * self.memory.mid).sqrt()
    }

    /// Bytes saved of a program that holds `resident_bytes` under this candidate.
    pub(crate) fn saved_bytes(&self, resident_bytes: u64) -> f64 {
        resident_bytes as f64 * (1.0 / self.memory.mid - 1.0)
    }
}

impl ProgramLine {
    /// The state in one line.
    pub(crate) fn of(state: &ProgramView, conditions: &Conditions, decided_unix_s: Option<f64>) -> Self {
        // Anew: what is kept of the program may be of another state of the machine.
        let candidate = decide(&state.profile, &state.giving, conditions).production.candidate;
        let records = &state.known.records;
        let trials = records.iter().filter(|record| record.sample.kind == PageKind::Trial).count();
        let gains = gains(state);
        let now = process_state(state, None);
        let of = |name: &str| gains.iter().find(|gain| gain.candidate == name).cloned();
        Self {
            id: state.known.program.id,
            name: state.known.program.to_string(),
            domain: state.known.program.domain.word(),
            trials,
            starts: records.len() - trials,
            crashes: records.iter().filter(|record| record.sample.ended.is_crash()).count(),
            trial: state.decision.trial.then(|| state.decision.candidate.clone()),
            under_way: state.under_way.clone(),
            reason: state.decision.reason.id().to_owned(),
            because: state.decision.reason.sentence().to_owned(),
            standing: now.word(),
            state: now.words(),
            quarantined: quarantined(state),
            gained: of(&candidate).filter(|_| candidate != SYSTEM),
            possible: possible(&gains, &candidate),
            resident_bytes: resident(state, &candidate).or_else(|| resident(state, SYSTEM)),
            decided_unix_s,
            candidate,
        }
    }

    /// Fraction of CPU and memory together that is saved by what is in use.
    pub(crate) fn gained_together(&self) -> f64 {
        self.gained.as_ref().map_or(0.0, Gain::together)
    }

    /// Fraction that could be saved beyond that.
    pub(crate) fn possible_together(&self) -> f64 {
        self.possible.as_ref().map_or(0.0, Gain::together)
    }
}

fn quarantined(state: &ProgramView) -> Vec<QuarantinedCandidate> {
    let quarantines = state.profile.candidates.iter().filter_map(|view| view.quarantine.as_ref());
    let of = |quarantine: &imas_core::quarantine::Quarantine| QuarantinedCandidate {
        candidate: quarantine.candidate.clone(),
        since_unix_s: quarantine.since_unix_s,
        is_hang: quarantine.is_hang(),
        because: quarantine.verb(),
    };
    quarantines.map(of).collect()
}

/// Gains of the candidates whose CPU and memory figures are both known.
fn gains(state: &ProgramView) -> Vec<Gain> {
    let Some(known) = state.profile.adaptive() else { return vec![] };
    let picked = picks::picks(&state.profile);
    let views = state.profile.candidates.iter().zip(picks::ratios(known));
    let gain = |(view, [cpu, memory]): (&imas_core::profile::CandidateView, [Option<Interval>; 2])| {
        (view.is_usable() && view.name != SYSTEM).then_some(())?;
        let is_proven = picked.iter().any(|pick| pick.candidate == view.name);
        Some(Gain { candidate: view.name.clone(), cpu: cpu?, memory: memory?, is_proven })
    };
    views.filter_map(gain).collect()
}

/// The best candidate beyond the one in use, where it is better.
fn possible(gains: &[Gain], candidate: &str) -> Option<Gain> {
    let now = gains.iter().find(|gain| gain.candidate == candidate).map_or(0.0, Gain::together);
    let best = gains.iter().max_by(|a, b| a.together().total_cmp(&b.together()))?;
    (best.candidate != candidate && best.together() > now.max(0.0)).then(|| best.clone())
}

/// Median of what the program held under the candidate in trials of its present build.
fn resident(state: &ProgramView, candidate: &str) -> Option<u64> {
    let is_one = |record: &&imas_core::TrialRecord| {
        record.sample.candidate == candidate && record.is_of_build(&state.known.build_id)
    };
    let held = state.known.records.iter().filter(is_one).map(|record| record.sample.memory.resident());
    let mut held: Vec<u64> = held.filter(|bytes| *bytes > 0).collect();
    held.sort_unstable();
    let at = |index: usize| held.get(index).copied();
    Some(u64::midpoint(at(held.len().saturating_sub(1) / 2)?, at(held.len() / 2)?))
}
