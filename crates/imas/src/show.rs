// SPDX-License-Identifier: Apache-2.0
//! `imas show`: the paper's table for one program, or a line for each program known.

use std::process::ExitCode;

use anyhow::Result;
use imas_core::adaptive::{self, Judgement, Status};
use imas_core::decision::Decision;
use imas_core::paper::Picks;
use imas_core::profile::CandidateView;
use imas_core::quarantine::Quarantine;
use imas_core::{ProfileView, SYSTEM};
use imas_engine::state::ProgramState;
use imas_report::format;
use imas_store::Store;
use imas_store::samples::Program;
use serde_json::{Value, json};

use crate::cli::{RulesArgs, ShowArgs};
use crate::context::Context;
use crate::output;
use crate::profile::{self, find};
use crate::start::{conditions, unfit_decision};
use crate::under_way::{self, UnderWay};

pub(crate) fn run(args: &ShowArgs, context: &Context) -> Result<ExitCode> {
    let store = context.open_store()?;
    crate::harvest::harvest_quietly(context, &store);
    match &args.program {
        Some(word) => one(args, context, &store, find(&store, word)?),
        None => all(args, context, &store),
    }
}

/// Profile and present decision of a program.
pub(crate) struct State {
    pub(crate) known: ProgramState,
    pub(crate) profile: ProfileView,
    pub(crate) decision: Decision,
    /// The trial that another start is making, and that the next start therefore does not make.
    pub(crate) under_way: Option<UnderWay>,
    /// How `adaptive` sees the candidates now; None under `paper`.
    pub(crate) judgement: Option<Judgement>,
    /// Of CPU in the score, by the machine's state or the user's word.
    pub(crate) weight: f64,
    /// Nothing may be preloaded into the program as it is on disk now.
    pub(crate) unfit: bool,
}

/// Works both out from the store, for the executable as it is on disk now.
pub(crate) fn state(context: &Context, store: &Store, program: Program, rules: &RulesArgs) -> Result<State> {
    let command = imas_linux::program::Command {
        file: program.path.clone().into(),
        argv: vec![],
        program: imas_linux::program::Program {
            path: program.path.clone().into(),
            detail: program.detail.clone(),
        },
        privileged: false,
    };
    // A program that is gone can still be shown, by the build its last trial was of.
    let executable = crate::commands::inspect(&command, Some(store)).ok();
    let last_build = store.trials(program.id)?.pop().map(|record| record.build_id).unwrap_or_default();
    let build_id = executable.as_ref().map_or(last_build, |executable| executable.build_id.clone());
    // Before the trials are read: what ends from here on is not looked at.
    let seen = store.newest_trial()?;
    let known = profile::state(context, store, program, &build_id)?;
    let profile = profile::profile(&known, context, rules);
    // imasd decides by the machine alone, whatever group we are in.
    let conditions = match context.of_the_system {
        true => imas_linux::conditions::now()?,
        false => conditions()?,
    };
    let unfit = executable.and_then(|executable| executable.unfit);
    let (decision, under_way) = match &unfit {
        Some(why) => (unfit_decision(why), None),
        None => under_way::next((context, store), (&known.program, seen), &profile, &conditions)?,
    };
    let objective = profile.adaptive.as_ref().map(|known| known.settings.objective);
    let weight = adaptive::weight(&conditions, objective.unwrap_or_default()).w;
    let judgement = profile.adaptive.as_ref().map(|known| known.judge(weight));
    Ok(State { known, profile, decision, under_way, judgement, weight, unfit: unfit.is_some() })
}

fn one(args: &ShowArgs, context: &Context, store: &Store, program: Program) -> Result<ExitCode> {
    let state = state(context, store, program, &args.rules)?;
    if args.json.json {
        output::json(&one_json(&state))?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = &state.known.program;
    let mut text = format!("{program} (number {})\n\n", program.id);
    text.push_str(&table(&state));
    text.push('\n');
    text.push_str(&splits(&state));
    text.push_str(&next_line(&state));
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What the next start will be, in one line, and what keeps it from being a trial in another.
pub(crate) fn next_line(state: &State) -> String {
    let State { decision, under_way, .. } = state;
    let kind = if decision.trial { "a trial of" } else { "under" };
    let next = format!("next start: {kind} {}: {}\n", decision.candidate, decision.reason.sentence());
    under_way.iter().fold(next, |next, under_way| format!("{next}now: {}\n", under_way.words()))
}

/// What is known of every candidate, as the policy in force sees it.
pub(crate) fn table(state: &State) -> String {
    match &state.judgement {
        Some(judgement) => adaptive_table(&state.profile, judgement),
        None => paper_table(&state.profile),
    }
}

/// Where the resident memory was under each candidate, closed by an empty line; empty when no trial says.
pub(crate) fn splits(state: &State) -> String {
    let views = state.profile.candidates.iter();
    let rows: Vec<_> = views.filter_map(|view| Some((view.name.as_str(), view.split?))).collect();
    let text = imas_report::split::text(&rows);
    if text.is_empty() { text } else { text + "\n" }
}

/// Differences to `system` over the rounds, and where each candidate stands.
fn adaptive_table(profile: &ProfileView, judgement: &Judgement) -> String {
    let rows =
        profile.candidates.iter().zip(&judgement.standings).enumerate().map(|(i, (view, standing))| {
            let is_known = standing.rounds > 0 && standing.within > 0.0;
            let percent = |difference: f64| format!("{:+.1} %", imas_core::stats::more(difference) * 100.0);
            let figure = |text: String| if is_known { text } else { "-".to_owned() };
            let pick = if i == judgement.pick { "pick" } else { "" };
            vec![
                view.name.clone(),
                standing.rounds.to_string(),
                figure(percent(standing.cpu)),
                figure(percent(standing.memory)),
                figure(format!("{} +- {:.1}", percent(-standing.gain), standing.within * 100.0)),
                standing_words(view, standing.status),
                pick.to_owned(),
            ]
        });
    let head = ["candidate", "rounds", "CPU", "memory", "together", "standing", ""];
    imas_report::table::plain(&head, rows)
}

/// Where a candidate stands, in words.
fn standing_words(view: &CandidateView, status: Status) -> String {
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
        Status::NoBetter => "no better than the best",
        Status::NotProvable => "cannot be proven better",
        Status::Regressed => "was better, now worse",
        Status::Void => "its trials yield no figures",
        Status::Barred if hung(view) => "quarantined: hung",
        Status::Barred if view.quarantine.is_some() => "quarantined",
        Status::Barred if !view.available => "not usable here",
        Status::Barred => "above the memory limit",
        Status::Left => "not in the set",
    }
}

/// Tables 2 and 3 of the paper: ns per operation, fragmentation, heap, picks marked.
pub(crate) fn paper_table(profile: &ProfileView) -> String {
    let marks = |index: usize| profile.picks.as_ref().map(|picks| marks(picks, index)).unwrap_or_default();
    let rows = profile.candidates.iter().enumerate().map(|(index, view)| {
        let summary = &view.summary;
        let figure = |text: String| if summary.has_data() { text } else { "-".to_owned() };
        vec![
            view.name.clone(),
            summary.count.to_string(),
            figure(format!("{:.1}", summary.ns_per_op)),
            figure(format!("{:.1}", summary.frag * 100.0)),
            figure(format::mib(summary.heap_bytes)),
            marks(index).join(", "),
            remark(view),
        ]
    });
    let head = ["candidate", "tests", "ns per operation", "fragmentation %", "heap MiB", "picks", ""];
    imas_report::table::plain(&head, rows)
}

fn marks(picks: &Picks, index: usize) -> Vec<&'static str> {
    [("fastest", picks.fastest), ("leanest", picks.leanest), ("balanced", picks.balanced)]
        .into_iter()
        .filter(|(_, picked)| *picked == index)
        .map(|(word, _)| word)
        .collect()
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

/// The shape of `imas show PROGRAM --json`.
fn one_json(state: &State) -> Value {
    let profile = &state.profile;
    let name = |index: usize| profile.candidates[index].name.clone();
    let picks = profile.picks.as_ref().map(|picks| {
        json!({ "fastest": name(picks.fastest), "leanest": name(picks.leanest), "balanced": name(picks.balanced) })
    });
    json!({
        "schema": 1,
        "program": state.known.program,
        "build_id": state.known.build_id,
        "candidates": profile.candidates,
        "standings": state.judgement.as_ref().map(|judgement| &judgement.standings),
        "picks": picks,
        "pinned": profile.pinned,
        "excluded": profile.excluded,
        "trials": state.known.records.len(),
        "next": state.decision,
        "under_way": state.under_way,
    })
}

fn all(args: &ShowArgs, context: &Context, store: &Store) -> Result<ExitCode> {
    let states = store
        .programs()?
        .into_iter()
        .map(|program| state(context, store, program, &args.rules))
        .collect::<Result<Vec<_>>>()?;
    if args.json.json {
        let programs: Vec<_> = states
            .iter()
            .map(|s| json!({ "program": s.known.program, "trials": s.known.records.len(), "next": s.decision }))
            .collect();
        output::json(&json!({ "schema": 1, "programs": programs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if states.is_empty() {
        output::text("nothing is known yet; start a program with 'imas run -- PROGRAM ...'")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = states.iter().map(|state| {
        let next = if state.decision.trial { "trial of " } else { "" };
        vec![
            state.known.program.id.to_string(),
            state.known.program.to_string(),
            state.known.records.len().to_string(),
            format!("{next}{}", state.decision.candidate),
            state.decision.reason.id().to_owned(),
        ]
    });
    output::text(&imas_report::table::plain(&["number", "program", "trials", "next start", "why"], rows))?;
    Ok(ExitCode::SUCCESS)
}
