// SPDX-License-Identifier: Apache-2.0
//! `imas show`: the paper's table for one program, or a line for each program known.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format;
use imas_core::ProfileView;
use imas_core::adaptive::Judgement;
use imas_core::candidate::NotCounted;
use imas_engine::lives;
use imas_engine::picks::{self, PAPER_HEAD, StoredPick, paper_rows, standing_words, trial_count};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde_json::{Value, json};

use crate::command_line::cli::{Places, ShowArgs};
use crate::stored::find;
use imas_cli::{message, output};
use imas_engine::context::Context;
use imas_engine::outside;
use imas_engine::program_view::{ProgramView, state};

pub(crate) fn run(args: &ShowArgs, places: &Places, context: &Context) -> Result<ExitCode> {
    let store = crate::stored::view(context)?;
    if let Some(file) = places.store.as_ref().filter(|file| !file.exists()) {
        message::say(&format!("imas: note: there is no store {} yet", file.display()));
    }
    match &args.program {
        Some(word) => one(args, context, &store, find(&store, word)?),
        None => all(args, context, &store),
    }
}

fn one(args: &ShowArgs, context: &Context, store: &Store, program: StoredProgram) -> Result<ExitCode> {
    let state = state(context, store, program, &args.rules)?;
    if args.json.json {
        output::json(&one_json(&state))?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = &state.known.program;
    let mut text = format!("{program} (number {})\n\n", program.id);
    text.push_str(&table(&state));
    text.push('\n');
    picks::change_lines(&picks::picks(&state.profile))
        .iter()
        .for_each(|line| text.push_str(&format!("{line}\n")));
    text.push_str(&splits(&state));
    text.push_str(&lives::text(&lives::lives(&state)));
    text.push_str(&next_line(&state));
    of_bench(&state).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    outside::words(&state.decision).for_each(|words| text.push_str(&format!("{words}\n")));
    text.push_str(&nothing_learned(&state));
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Trials that `imas bench` made.
pub(crate) fn count_of_bench(state: &ProgramView) -> usize {
    state.known.records.iter().filter(|record| record.sample.is_of_bench()).count()
}

/// A line on the trials that `imas bench` made. None without any.
pub(crate) fn of_bench(state: &ProgramView) -> Option<String> {
    let (of_bench, all) = (count_of_bench(state), trial_count(state));
    (of_bench > 0).then(|| format!("measured by imas bench: {of_bench} of {}", format::counted(all, "trial")))
}

/// The reason why no trial has figures; empty otherwise.
fn nothing_learned(state: &ProgramView) -> String {
    let made = trial_count(state);
    let candidates = &state.profile.candidates;
    let is_ours = |why: &NotCounted| !matches!(why, NotCounted::OtherCandidate | NotCounted::Flight);
    let reasons: Vec<_> = candidates
        .iter()
        .flat_map(|view| &view.left_out)
        .map(|one| &one.why)
        .filter(|why| is_ours(why))
        .collect();
    if made == 0 || reasons.len() < made {
        return String::new();
    }
    let mut words: Vec<_> = reasons.into_iter().map(why_not).collect();
    words.sort();
    words.dedup();
    format!("nothing was learned from {}: {}\n", format::counted(made, "trial"), words.join("; "))
}

/// Why a trial does not count, in words.
fn why_not(why: &NotCounted) -> String {
    match why {
        NotCounted::OtherCandidate => "they were of another candidate".to_owned(),
        NotCounted::OtherBuild => "they were of another build of the program".to_owned(),
        NotCounted::OtherVersion => "they were of another version of the allocator".to_owned(),
        NotCounted::Flight => "nothing was counted".to_owned(),
        NotCounted::Crashed => "the program crashed".to_owned(),
        NotCounted::Passed(reason) => format!("nothing could be counted in the program ({reason})"),
        NotCounted::ForeignServed(name) => format!("another allocator served the program ({name})"),
        NotCounted::NothingTimed => {
            "the program allocates too little to measure; if it starts other programs, put 'imas run --' before those".to_owned()
        }
        NotCounted::NoSnapshot => "the program ended before its memory could be read".to_owned(),
    }
}

/// Line about the next start, and a line with what keeps it from being a trial.
pub(crate) fn next_line(state: &ProgramView) -> String {
    let ProgramView { decision, under_way, .. } = state;
    let kind = if decision.trial { "a trial of" } else { "under" };
    let next = format!("next start: {kind} {}: {}\n", decision.candidate, decision.reason.sentence());
    under_way.iter().fold(next, |next, under_way| format!("{next}now: {}\n", under_way.words()))
}

/// Table of what is known of every candidate, as the policy in force sees it.
pub(crate) fn table(state: &ProgramView) -> String {
    let picks = picks::picks(&state.profile);
    match &state.judgement {
        Some(judgement) => adaptive_table(state, judgement, &picks),
        None => paper_table(&state.profile, &picks),
    }
}

/// Split of the resident memory under each candidate, closed by an empty line; empty when no trial has one.
pub(crate) fn splits(state: &ProgramView) -> String {
    let views = state.profile.candidates.iter();
    let rows: Vec<_> = views.filter_map(|view| Some((view.name.as_str(), view.split?))).collect();
    let text = imas_report::measure::split_text(&rows);
    if text.is_empty() { text } else { text + "\n" }
}

/// Differences to `system` over the rounds, and where each candidate stands.
fn adaptive_table(state: &ProgramView, judgement: &Judgement, picks: &[StoredPick]) -> String {
    let rows =
        state.profile.candidates.iter().zip(&judgement.standings).enumerate().map(|(i, (view, standing))| {
            let is_known = standing.rounds > 0 && standing.within > 0.0;
            let percent = |difference: f64| format!("{:+.1} %", imas_core::stats::more(difference) * 100.0);
            let figure = |text: String| if is_known { text } else { "-".to_owned() };
            let in_force = (i == judgement.pick).then_some("pick now");
            let marks: Vec<_> = picks::marks(picks, &view.name).into_iter().chain(in_force).collect();
            vec![
                view.name.clone(),
                standing.rounds.to_string(),
                figure(percent(standing.cpu)),
                figure(percent(standing.memory)),
                figure(format!("{} +- {:.1}", percent(-standing.gain), standing.within * 100.0)),
                standing_words(view, standing.status),
                marks.join(", "),
            ]
        });
    imas_cli::table::plain(&["candidate", "rounds", "CPU", "memory", "score", "standing", "picks"], rows)
}

/// Tables 2 and 3 of the paper: ns per operation, fragmentation, heap, picks marked.
fn paper_table(profile: &ProfileView, picks: &[StoredPick]) -> String {
    imas_cli::table::plain(&PAPER_HEAD, paper_rows(profile, picks))
}

/// The shape of `imas show PROGRAM --json`.
fn one_json(state: &ProgramView) -> Value {
    let profile = &state.profile;
    let picks = picks::picks(&state.profile);
    json!({
        "schema": 1,
        "program": state.known.program,
        "build_id": state.known.build_id,
        "candidates": profile.candidates,
        "standings": state.judgement.as_ref().map(|judgement| &judgement.standings),
        "picks": picks::names_json(&picks),
        "expected_gain": picks::gains_json(&picks),
        "pinned": profile.pinned,
        "excluded": profile.excluded,
        "trials": trial_count(state),
        "starts": state.known.records.len() - trial_count(state),
        "of_bench": count_of_bench(state),
        "next": state.decision,
        "under_way": state.under_way,
        "lives": lives::lives(state),
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
            .map(|s| {
                let (trials, all) = (trial_count(s), s.known.records.len());
                json!({ "program": s.known.program, "trials": trials, "starts": all - trials, "next": s.decision })
            })
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
            trial_count(state).to_string(),
            (state.known.records.len() - trial_count(state)).to_string(),
            format!("{next}{}", state.decision.candidate),
            state.decision.reason.id().to_owned(),
        ]
    });
    output::text(&imas_cli::table::plain(
        &["number", "program", "trials", "other starts", "next start", "why"],
        rows,
    ))?;
    Ok(ExitCode::SUCCESS)
}
