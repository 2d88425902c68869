// SPDX-License-Identifier: Apache-2.0
//! `imas advise`: running processes that would run under their pick after a restart, and the saving in the
//! program's own trials.
//!
//! A saving is never guessed. There is advice where the policy takes the pick for proven better than the candidate of
//! the process: the same judge that made the pick.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::{self, counted, counted_verb};
use imas_core::stats::Interval;
use imas_engine::program_view::{ProgramView, Restart, state};
use imas_linux::foreign_process;
use imas_linux::index::{ServiceUnit, detail_of_unit};
use imas_linux::interpreter_target::is_meant;
use imas_linux::running::Running;
use imas_linux::serving::{On, RealCandidates};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde::Serialize;

use crate::command_line::cli::JsonArgs;
use crate::look::heap_advice::{self, HeapRow, LimitRow, Looks, RuntimeRow};
use imas_cli::output;
use imas_engine::context::Context;

/// Exit status when there is nothing to advise.
const NO_ADVICE: u8 = 1;

/// One running process that is not under its pick.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    unit: Option<ServiceUnit>,
    /// The candidate that it runs under.
    on: String,
    /// The pick of its program.
    pick: String,
    /// Ratio of CPU time, pick to present candidate, with its 95 % interval; absent without
    /// enough trials.
    cpu: Option<Interval>,
    /// Ratio of resident memory, pick to present candidate, with its 95 % interval; absent without enough
    /// trials.
    memory: Option<Interval>,
    /// Median of the resident bytes in the trials of the present candidate.
    memory_bytes: Option<f64>,
    /// Number of valid trials, of the present candidate and of the pick.
    trials: [usize; 2],
    /// Whether a restart is advised.
    gain: bool,
    /// The advised command.
    how: String,
}

#[derive(Debug, Serialize)]
struct Advice {
    schema: u32,
    processes: Vec<Row>,
    /// Number of programs whose processes all run under their pick, or that have no running process.
    as_decided: usize,
    /// Number of programs whose tests are not complete.
    not_settled: usize,
    /// Processes whose glibc holds free pages: this needs no trial.
    heaps: Vec<HeapRow>,
    /// Processes of a language runtime whose settings are worth a trial: this needs none before.
    runtimes: Vec<RuntimeRow>,
    /// Control groups whose limit does not fit, or could be lower, each with its largest process.
    limits: Vec<LimitRow>,
    /// Number of processes that were not looked at, or not to the end.
    unseen: usize,
}

impl Advice {
    /// Note on processes that are not in the advice.
    fn note(&self) -> String {
        let processes = counted(self.unseen, "process");
        let why = "looks at the processes of its owner took too long, or it has too much to be looked at";
        if self.unseen > 0 {
            format!("\nnot looked at, or not to the end: {processes}: {why}\n")
        } else {
            String::new()
        }
    }
}

pub(crate) fn run(args: JsonArgs, context: &Context) -> Result<ExitCode> {
    let store = crate::stored::view(context)?;
    let advice = advice(context, &store)?;
    let without_trials = || {
        heap_advice::page(&advice.heaps)
            + &heap_advice::limit_page(&advice.limits)
            + &heap_advice::runtime_page(&advice.runtimes)
    };
    output::json_or(args.json, &advice, || page(&advice) + &without_trials() + &advice.note())?;
    let by_reading = !advice.heaps.is_empty()
        || advice.limits.iter().any(LimitRow::is_proven)
        || advice.runtimes.iter().any(RuntimeRow::is_proven);
    let any = advice.processes.iter().any(|row| row.gain) || by_reading;
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(NO_ADVICE) })
}

fn advice(context: &Context, store: &Store) -> Result<Advice> {
    let running = imas_linux::running::all();
    let candidates = RealCandidates::of(context.catalogue.all());
    let looks = Looks::of(&candidates);
    // Looks at large heaps may use up the time that the helper has for an owner's processes.
    let runtimes = heap_advice::runtime_rows(context, &running, &looks);
    let limits = heap_advice::limit_rows(&running, &looks);
    let heaps = heap_advice::rows(context, &running, &looks);
    let unseen = foreign_process::take_unseen().len();
    let mut advice = Advice {
        schema: 1,
        processes: vec![],
        as_decided: 0,
        not_settled: 0,
        heaps,
        runtimes,
        limits,
        unseen,
    };
    let programs = store.programs()?;
    for program in programs.clone() {
        let state = state(context, store, program, &crate::command_line::cli::RulesArgs::of_environment())?;
        let Some(pick) = state.settled() else {
            advice.not_settled += 1;
            continue;
        };
        let found = running.iter().filter(|process| runs(process, &state.known.program, &programs));
        let found = found.filter_map(|process| row(&candidates, &state, pick, process)).collect::<Vec<_>>();
        advice.as_decided += usize::from(found.is_empty());
        advice.processes.extend(found);
    }
    advice.processes.sort_by(|a, b| b.gain.cmp(&a.gain).then_with(|| a.pid.cmp(&b.pid)));
    Ok(advice)
}

/// Whether the process runs that program. A service with its own program history is not also a process of the
/// executable's.
fn runs(process: &Running, program: &StoredProgram, programs: &[StoredProgram]) -> bool {
    let of_file = |program: &StoredProgram| process.program.path.as_os_str() == program.path.as_str();
    let its_service = |program: &StoredProgram| {
        process.system_unit().is_some_and(|unit| detail_of_unit(unit) == program.detail) && of_file(program)
    };
    let elsewhere =
        || is_meant(&program.detail, &process.program.detail) && !programs.iter().any(its_service);
    of_file(program) && (its_service(program) || elsewhere())
}

/// `None` if the process runs under the pick, or if its candidate is unknown.
fn row(candidates: &RealCandidates, state: &ProgramView, pick: &str, process: &Running) -> Option<Row> {
    let program = &state.known.program;
    if !candidates.has(pick) || process.is_on(pick, candidates) != On::No {
        return None;
    }
    let on = process.name_of_candidate(candidates)?;
    let Restart { cpu, memory, memory_bytes, trials, is_proven } = Restart::of(state, on, pick);
    Some(Row {
        pid: process.pid,
        program: program.to_string(),
        unit: process.unit.clone(),
        gain: is_proven,
        memory_bytes,
        trials,
        how: how(process, pick, program.id),
        on: on.to_owned(),
        pick: pick.to_owned(),
        cpu,
        memory,
    })
}

fn how(process: &Running, pick: &str, number: i64) -> String {
    match process.system_unit() {
        Some(unit) => format!("imas apply {unit} --candidate {pick} --write --now"),
        None => format!("end it and start it again with 'imas run -- ...' (imas explain {number})"),
    }
}

fn page(advice: &Advice) -> String {
    if advice.processes.is_empty() {
        let by_trials = if advice.heaps.is_empty() { "" } else { "by trials, " };
        let seen = if advice.unseen > 0 { "no process that was looked at" } else { "no running process" };
        return format!(
            "{by_trials}{seen} would gain from a restart: {} as decided or not at all, of {} the tests are not done\n",
            counted_verb(advice.as_decided, "program", "runs", "run"),
            counted(advice.not_settled, "program")
        );
    }
    let rows = advice.processes.iter().map(|row| {
        vec![
            row.pid.to_string(),
            row.unit.as_ref().map_or_else(|| row.program.clone(), ServiceUnit::to_string),
            row.on.clone(),
            row.pick.clone(),
            change(row.cpu),
            change(row.memory),
            if row.gain { row.how.clone() } else { verdict(row).to_owned() },
        ]
    });
    imas_cli::table::plain(&["pid", "what", "on", "pick", "CPU", "memory", "what to do"], rows)
}

fn verdict(row: &Row) -> &'static str {
    match row.cpu.is_none() && row.memory.is_none() {
        true => "no data: too few trials of both to say what it would save",
        false => "nothing to do: no gain beyond the noise",
    }
}

/// The change in per cent, with its interval.
fn change(ratio: Option<Interval>) -> String {
    ratio.as_ref().map_or_else(|| "no data".to_owned(), format::change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_in_per_cent() {
        assert_eq!(change(None), "no data");
        assert_eq!(change(Some(Interval { lo: 0.5, mid: 0.9, hi: 1.1 })), "-10.0 % [-50.0, +10.0]");
    }
}
