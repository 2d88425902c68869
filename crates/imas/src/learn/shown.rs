// SPDX-License-Identifier: Apache-2.0
//! What `imas learn` prints.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_store::samples::StoredProgram;
use imas_view::forecast::forecasts;
use imas_view::program_view::{ProgramView, state};
use serde_json::{Value, json};

use super::{Learner, Lesson, Outcome};
use crate::look::show;
use imas_cli::output;

/// Prints what became of each program. Exit status 1 where nothing could be learned from one, or nothing taken back.
pub(super) fn show(learner: &Learner<'_>, made: &[(StoredProgram, Outcome)]) -> Result<ExitCode> {
    if learner.args.json.json {
        let programs = made.iter().map(|one| as_json(learner, one)).collect::<Result<Vec<_>>>()?;
        output::json(&json!({ "schema": 1, "programs": programs }))?;
    } else if made.is_empty() {
        output::text("no recording waits for its replay")?;
    } else {
        let texts = made.iter().map(|one| as_text(learner, one)).collect::<Result<Vec<_>>>()?;
        output::text(&texts.join("\n"))?;
    }
    let is_no = |(_, outcome): &(StoredProgram, Outcome)| {
        matches!(outcome, Outcome::Failed(_) | Outcome::Cancelled(false))
    };
    Ok(if made.iter().any(is_no) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn view(learner: &Learner<'_>, program: &StoredProgram) -> Result<ProgramView> {
    state(learner.context, learner.store, program.clone(), &learner.args.rules)
}

fn as_json(learner: &Learner<'_>, (program, outcome): &(StoredProgram, Outcome)) -> Result<Value> {
    let mut facts = json!({ "program": program, "state": word(outcome) });
    match outcome {
        Outcome::Learned(lesson) => {
            let view = view(learner, program)?;
            facts["recorded"] = json!({ "calls": lesson.calls, "processes": lesson.processes });
            facts["no_replay"] = json!(lesson.failed);
            facts["predictions"] = json!(forecasts(&view));
            facts["next"] = json!(view.decision);
        }
        Outcome::Running(pid) => facts["pid"] = json!(pid),
        Outcome::Failed(error) => facts["why"] = json!(format!("{error:#}")),
        Outcome::Asked(_) | Outcome::Cancelled(_) => {}
    }
    Ok(facts)
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Asked(_) => "asked",
        Outcome::Running(_) => "running",
        Outcome::Learned(_) => "learned",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled(true) => "cancelled",
        Outcome::Cancelled(false) => "nothing-to-cancel",
    }
}

fn as_text(learner: &Learner<'_>, (program, outcome): &(StoredProgram, Outcome)) -> Result<String> {
    let number = program.id;
    let (start, then) = ("start by 'imas run'", "when it has ended, 'imas learn --pending' replays it");
    let cancel = learner.context.on_this_store("imas learn --cancel");
    Ok(match outcome {
        Outcome::Asked(true) => {
            format!("{program}: the next {start} is recorded; {then}\nundo: {cancel} {number}")
        }
        Outcome::Asked(false) => {
            format!("{program}: it is asked for already; its next {start} is recorded, and {then}")
        }
        Outcome::Running(pid) => {
            format!("{program}: process {pid}, or one that it started, is being recorded; {then}")
        }
        Outcome::Failed(error) => {
            format!(
                "{program}: nothing could be learned from its recording: {error:#}\nagain: imas learn {number}"
            )
        }
        Outcome::Cancelled(true) => format!("{program}: it is no longer recorded"),
        Outcome::Cancelled(false) => format!("{program}: no recording was asked for"),
        Outcome::Learned(lesson) => {
            let view = view(learner, program)?;
            let unused = match view.profile.adaptive {
                Some(_) => "",
                None => "the policy in force makes no use of predictions: --policy adaptive does\n",
            };
            let (table, next) = (show::table(&view), show::next_line(&view));
            format!("{program}: {}\n\n{table}\n{next}{unused}", heading(lesson))
        }
    })
}

fn heading(lesson: &Lesson) -> String {
    let failed = lesson.failed.iter().map(|(name, why)| format!("\n{name}: no replay: {why}"));
    format!(
        "{} of {} recorded, replayed under {}{}",
        counted(lesson.calls, "call"),
        counted(lesson.processes, "process"),
        counted(lesson.candidates, "candidate"),
        failed.collect::<String>()
    )
}
