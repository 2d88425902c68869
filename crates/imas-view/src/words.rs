// SPDX-License-Identifier: Apache-2.0
//! Where the candidates of a program stand, in words and rows.

use imas_cli::format;
use imas_core::adaptive::Status;
use imas_core::profile::CandidateView;
use imas_core::quarantine::Quarantine;
use imas_core::sample::PageKind;
use imas_core::{ProfileView, SYSTEM};

use crate::picks::{self, StoredPick};
use crate::program_view::ProgramView;

/// How many of the stored starts were trials.
#[must_use]
pub fn trials(state: &ProgramView) -> usize {
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
            picks::marks(picks, &view.name).join(", "),
            remark(view),
        ]
    })
}

fn remark(view: &CandidateView) -> String {
    let left = (!view.tested).then(|| "not in the set".to_owned());
    left.into_iter().chain(Some(counted(view)).filter(|text| !text.is_empty())).collect::<Vec<_>>().join("; ")
}

fn counted(view: &CandidateView) -> String {
    match (&view.quarantine, view.available, view.left_out.len()) {
        (Some(_), _, _) if hung(view) => "quarantined: hung".to_owned(),
        (Some(_), _, _) => "quarantined".to_owned(),
        (None, false, _) => "not usable here".to_owned(),
        (None, true, 0) => String::new(),
        (None, true, left_out) => format!("{left_out} not counted"),
    }
}
