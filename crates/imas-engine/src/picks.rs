// SPDX-License-Identifier: Apache-2.0
//! The picks of a program by its stored trials, and where its candidates stand: the same for `show`, `explain` and the page
//! of `report`.

use imas_cli::format::{self, counted};
use imas_core::adaptive::{self, AdaptiveState, ExpectedGain, Status};
use imas_core::paper::Pick;
use imas_core::profile::{CandidateView, PolicyPick};
use imas_core::quarantine::Quarantine;
use imas_core::sample::PageKind;
use imas_core::stats::Interval;
use imas_core::{ProfileView, SYSTEM};
use serde_json::Value;
use serde_json::json;

use crate::program_view::ProgramView;

/// One of the three picks.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPick {
    /// Which of the three picks this is.
    pub pick: Pick,
    /// Name of the candidate; `system` where none is proven better.
    pub candidate: String,
    /// Gain that is expected of the candidate; None under `paper`, which has no such figure.
    pub gain: Option<ExpectedGain>,
}

/// The picks by the policy in force: the fastest, the leanest and the balanced one. Empty as long as nothing
/// is compared: trials of `system` alone choose nothing.
#[must_use]
pub fn picks(profile: &ProfileView) -> Vec<StoredPick> {
    if !is_compared(profile) {
        return vec![];
    }
    let stored = |one: PolicyPick| StoredPick {
        pick: one.pick,
        candidate: profile.candidates[one.candidate].name.clone(),
        gain: one.gain,
    };
    profile.policy.picks().into_iter().map(stored).collect()
}

/// Whether a trial of another candidate than `system` counts. Rounds of a bench have no counted calls, and count for the
/// policy alone.
fn is_compared(profile: &ProfileView) -> bool {
    let counts =
        |(at, view): (usize, &CandidateView)| view.summary.count > 0 || profile.policy.has_figures_of(at);
    profile.candidates.iter().enumerate().filter(|(_, view)| view.name != SYSTEM).any(counts)
}

/// The picks that a candidate is.
#[must_use]
pub fn marks(picks: &[StoredPick], name: &str) -> Vec<&'static str> {
    picks.iter().filter(|one| one.candidate == name).map(StoredPick::word).collect()
}

/// `{"fastest": NAME, ...}`; null as long as nothing is known.
#[must_use]
pub fn names_json(picks: &[StoredPick]) -> Value {
    match picks.is_empty() {
        true => Value::Null,
        false => picks.iter().map(|one| (one.word().to_owned(), json!(one.candidate))).collect(),
    }
}

/// The expected gains with their intervals.
#[must_use]
pub fn gains_json(picks: &[StoredPick]) -> Vec<Value> {
    let of = |one: &StoredPick| {
        let gain = one.gain?;
        Some(json!({
            "pick": one.pick,
            "candidate": one.candidate,
            "gain": gain.gain,
            "interval": gain.interval,
            "rounds": gain.rounds,
        }))
    };
    picks.iter().filter_map(of).collect()
}

/// A line for each pick with its expected change.
#[must_use]
pub fn change_lines(picks: &[StoredPick]) -> Vec<String> {
    picks.iter().filter_map(StoredPick::change_line).collect()
}

/// The picks in one sentence.
#[must_use]
pub fn sentence(picks: &[StoredPick]) -> String {
    let [fastest, leanest, balanced] = picks else {
        return "Nothing is compared with system yet.".to_owned();
    };
    let mut sentence = match balanced.candidate.as_str() {
        SYSTEM => "No candidate is proven better than system in CPU and memory together".to_owned(),
        name => format!("Use {name} ({})", balanced.change_words()),
    };
    for (pick, when) in [(fastest, "CPU is short"), (leanest, "memory is short")] {
        if pick.candidate != balanced.candidate && pick.candidate != SYSTEM {
            sentence.push_str(&format!("; {} when {when} ({})", pick.candidate, pick.change_words()));
        }
    }
    sentence + "."
}

impl StoredPick {
    /// `fastest`, `leanest` or `balanced`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.pick {
            Pick::Fastest => "fastest",
            Pick::Leanest => "leanest",
            Pick::Balanced => "balanced",
        }
    }

    fn what(&self) -> &'static str {
        match self.pick {
            Pick::Fastest => "CPU",
            Pick::Leanest => "memory",
            Pick::Balanced => "CPU and memory together",
        }
    }

    /// The pick's change in words: `CPU -8.3 % [-11.4, -5.1], over 12 rounds`; the rules of the paper only name it.
    #[must_use]
    pub fn change_words(&self) -> String {
        let Some(ExpectedGain { gain, interval: Some((lo, hi)), rounds, .. }) = self.gain else {
            return format!("the {} by the rules of the paper", self.word());
        };
        let ratio = Interval { lo: 1.0 - hi, mid: 1.0 - gain, hi: 1.0 - lo };
        format!("{} {}, over {}", self.what(), format::change(&ratio), counted(rounds, "round"))
    }

    fn change_line(&self) -> Option<String> {
        let gain = self.gain?;
        let (word, name) = (self.word(), &self.candidate);
        Some(match gain.interval {
            Some(_) => format!("expected under the {word}, {name}: {}", self.change_words()),
            None => format!("expected under the {word}, {name}: no change, as no candidate is proven better"),
        })
    }
}

/// A candidate's CPU time and memory as ratios to `system`, by index: the figures of `show`, with 95
/// % intervals.
#[must_use]
pub fn ratios(known: &AdaptiveState) -> Vec<[Option<Interval>; 2]> {
    let [cpu, memory] = [1.0, 0.0].map(|weight| known.judge(weight).standings);
    let ratio = |standing: &adaptive::Standing| {
        let is_known = standing.rounds > 0 && standing.within > 0.0 && standing.within.is_finite();
        let at = |gain: f64| (-gain).exp();
        let adaptive::Standing { gain, within, .. } = *standing;
        is_known.then(|| Interval { lo: at(gain + within), mid: at(gain), hi: at(gain - within) })
    };
    cpu.iter().zip(&memory).map(|(cpu, memory)| [ratio(cpu), ratio(memory)]).collect()
}

// Where the candidates of a program stand, in words and rows.

/// How many of the stored starts were trials.
#[must_use]
pub fn trial_count(state: &ProgramView) -> usize {
    state.known.records.iter().filter(|record| record.sample.kind == PageKind::Trial).count()
}

/// Where a candidate stands, in words.
#[must_use]
pub fn standing_words(view: &CandidateView, status: Status) -> String {
    let words = words(view, status);
    match status {
        Status::Left => words.to_owned(),
        _ if view.tested => words.to_owned(),
        _ => format!("{words}; not in the set"),
    }
}

fn hung(view: &CandidateView) -> bool {
    view.quarantine.as_ref().is_some_and(Quarantine::is_hang)
}

/// A status in words.
fn words(view: &CandidateView, status: Status) -> &'static str {
    match status {
        _ if view.name == SYSTEM => "the reference",
        Status::Incumbent => "in use",
        Status::Open => "open",
        Status::Proven => "proven better",
        Status::Worse => "worse than the best",
        Status::TooCostly => "costs more than a pick may",
        Status::NoBetter => "no better than the best",
        Status::NotProvable => "cannot be proven better",
        Status::Regressed => "was better, now worse",
        Status::Void => "its trials yield no figures",
        Status::Ineligible if hung(view) => "quarantined: hung",
        Status::Ineligible if view.quarantine.is_some() => "quarantined",
        Status::Ineligible if !view.available => "not usable here",
        Status::Ineligible => "above the memory limit",
        Status::Left => "not in the set",
    }
}

/// The columns of [`paper_rows`].
pub const PAPER_HEAD: [&str; 7] =
    ["candidate", "tests", "ns per operation", "fragmentation %", "heap MiB", "picks", ""];

/// A row for each candidate.
pub fn paper_rows<'a>(
    profile: &'a ProfileView,
    picks: &'a [StoredPick],
) -> impl Iterator<Item = Vec<String>> + 'a {
    profile.candidates.iter().map(|view| {
        let summary = &view.summary;
        let figure = |text: String| if summary.has_data() { text } else { "-".to_owned() };
        vec![
            view.name.clone(),
            summary.count.to_string(),
            figure(format!("{:.1}", summary.ns_per_op)),
            figure(format!("{:.1}", summary.frag * 100.0)),
            figure(format::mib(summary.heap_bytes)),
            marks(picks, &view.name).join(", "),
            remark(view),
        ]
    })
}

fn remark(view: &CandidateView) -> String {
    let left = (!view.tested).then(|| "not in the set".to_owned());
    left.into_iter()
        .chain(Some(short_state(view)).filter(|text| !text.is_empty()))
        .collect::<Vec<_>>()
        .join("; ")
}

fn short_state(view: &CandidateView) -> String {
    match (&view.quarantine, view.available, view.left_out.len()) {
        (Some(_), _, _) if hung(view) => "quarantined: hung".to_owned(),
        (Some(_), _, _) => "quarantined".to_owned(),
        (None, false, _) => "not usable here".to_owned(),
        (None, true, 0) => String::new(),
        (None, true, left_out) => format!("{left_out} not counted"),
    }
}
