// SPDX-License-Identifier: Apache-2.0
//! `imas advise`: running processes that would run under their pick after a restart, and the saving in the
//! program's own trials.
//!
//! A saving is never guessed. With too few trials on either side, the output states that. If the interval of
//! a saving includes none, there is no advice.

use std::process::ExitCode;

use anyhow::Result;
use imas_core::TrialRecord;
use imas_core::sample::PageKind;
use imas_core::stats::{Interval, RESAMPLES, bootstrap, median};
use imas_linux::index::unit_of_detail;
use imas_linux::running::{On, Running};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde::Serialize;

use crate::arena_advice::{self, ArenaRow};
use crate::choice;
use crate::cli::JsonArgs;
use crate::context::Context;
use crate::output;
use imas_view::program_view::{State, state};

/// With fewer trials on either side, no saving is reported.
const FEWEST: usize = 3;
/// A smaller saving does not justify a restart. The limit is that of picks of `imas bench`.
const CPU_MARGIN: f64 = 0.02;
const MEMORY_MARGIN: f64 = 0.05;
/// Exit status when there is nothing to advise.
const NO_ADVICE: u8 = 1;

/// One running process that is not under its pick.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    unit: Option<String>,
    /// The candidate that it runs under.
    on: String,
    /// Its pick.
    pick: String,
    /// Ratio of CPU seconds per operation, pick to present candidate, with its 95 % interval; absent without
    /// enough trials.
    cpu: Option<Interval>,
    /// The same for resident memory.
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
    /// Processes with many arenas of glibc, with an estimate that needs no trial.
    arenas: Vec<ArenaRow>,
}

pub(crate) fn run(args: JsonArgs, context: &Context) -> Result<ExitCode> {
    let store = crate::harvest::view(context)?;
    let advice = advice(context, &store)?;
    if args.json {
        output::json(&advice)?;
    } else {
        output::text(&(page(&advice) + &arena_advice::page(&advice.arenas)))?;
    }
    let any = advice.processes.iter().any(|row| row.gain);
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(NO_ADVICE) })
}

fn advice(context: &Context, store: &Store) -> Result<Advice> {
    let running = imas_linux::running::all();
    let arenas = arena_advice::rows(context, &running);
    let mut advice = Advice { schema: 1, processes: vec![], as_decided: 0, not_settled: 0, arenas };
    let programs = store.programs()?;
    for program in programs.clone() {
        let state = state(context, store, program, &crate::cli::RulesArgs::of_environment())?;
        let Some(pick) = choice::settled(&state) else {
            advice.not_settled += 1;
            continue;
        };
        let found = running.iter().filter(|process| runs(process, &state.known.program, &programs));
        let found = found.filter_map(|process| row(context, &state, pick, process)).collect::<Vec<_>>();
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
        let unit = unit_of_detail(&program.detail);
        unit.is_some() && unit == process.unit.as_deref() && of_file(program)
    };
    let elsewhere = || process.program.detail == program.detail && !programs.iter().any(its_service);
    of_file(program) && (its_service(program) || elsewhere())
}

/// `None` if the process runs under the pick, or if its candidate is unknown.
fn row(context: &Context, state: &State, pick: &str, process: &Running) -> Option<Row> {
    let program = &state.known.program;
    let candidates = context.catalogue.candidates();
    let wanted = context.catalogue.find(pick)?;
    if process.is_on(wanted, candidates) != On::No {
        return None;
    }
    let on = process.candidate(candidates)?;
    let sides = [Side::of(state, &on.name), Side::of(state, pick)];
    let cpu = ratio(&sides[0].cpu, &sides[1].cpu);
    let memory = ratio(&sides[0].memory, &sides[1].memory);
    let proven =
        |ratio: &Option<Interval>, margin: f64| ratio.is_some_and(|r| r.hi < 1.0 && r.mid <= 1.0 - margin);
    Some(Row {
        pid: process.pid,
        program: program.to_string(),
        unit: process.unit.clone(),
        gain: proven(&cpu, CPU_MARGIN) || proven(&memory, MEMORY_MARGIN),
        memory_bytes: median(&sides[0].memory),
        trials: [sides[0].trials, sides[1].trials],
        how: how(process, pick, program.id),
        on: on.name.clone(),
        pick: pick.to_owned(),
        cpu,
        memory,
    })
}

fn how(process: &Running, pick: &str, number: i64) -> String {
    match &process.unit {
        Some(unit) => format!("imas apply {unit} --candidate {pick} --write --now"),
        None => format!("end it and start it again with 'imas run -- ...' (imas explain {number})"),
    }
}

/// Figures of the valid trials of one candidate with the present build.
struct Side {
    trials: usize,
    /// CPU seconds per million operations. The work differs between runs, but the cost of an operation less
    /// so.
    cpu: Vec<f64>,
    /// Mean resident bytes of each run.
    memory: Vec<f64>,
}

impl Side {
    fn of(state: &State, candidate: &str) -> Self {
        let records = &state.known.records;
        let view = state.profile.candidate(candidate);
        let left_out = |id: &str| view.is_none_or(|view| view.left_out.iter().any(|out| out.trial_id == id));
        let counts = |record: &&TrialRecord| {
            let sample = &record.sample;
            sample.candidate == candidate
                && sample.kind == PageKind::Trial
                && record.is_of_build(&state.known.build_id)
                && !left_out(&sample.trial_id)
        };
        let counted: Vec<_> = records.iter().filter(counts).collect();
        Self {
            trials: counted.len(),
            cpu: counted.iter().filter_map(|record| cpu_of(record)).collect(),
            memory: counted.iter().filter_map(|record| memory_of(record)).collect(),
        }
    }
}

fn cpu_of(record: &TrialRecord) -> Option<f64> {
    let usage = record.sample.usage.as_ref()?;
    let operations: u64 = record.sample.classes().iter().map(|class| class.calls).sum();
    let seconds = usage.user_s + usage.system_s;
    (operations > 0 && seconds > 0.0).then(|| seconds * 1e6 / operations as f64)
}

fn memory_of(record: &TrialRecord) -> Option<f64> {
    let memory = &record.sample.memory;
    (memory.snapshots > 0 && memory.resident() > 0).then_some(memory.resident() as f64)
}

/// Ratio of the medians, pick to present candidate, with its bootstrap interval.
fn ratio(present: &[f64], pick: &[f64]) -> Option<Interval> {
    if present.len() < FEWEST || pick.len() < FEWEST {
        return None;
    }
    let tagged: Vec<(bool, f64)> =
        present.iter().map(|&x| (false, x)).chain(pick.iter().map(|&x| (true, x))).collect();
    let of = |drawn: &[(bool, f64)], side: bool| {
        median(&drawn.iter().filter(|(tag, _)| *tag == side).map(|(_, x)| *x).collect::<Vec<_>>())
    };
    bootstrap(&tagged, RESAMPLES, 1, |drawn| {
        let below = of(drawn, false).filter(|x| *x > 0.0)?;
        Some(of(drawn, true)? / below)
    })
}

fn page(advice: &Advice) -> String {
    if advice.processes.is_empty() {
        return format!(
            "no running process would gain from a restart: {} programs run as decided or not at all, of {} the tests are not done\n",
            advice.as_decided, advice.not_settled
        );
    }
    let rows = advice.processes.iter().map(|row| {
        vec![
            row.pid.to_string(),
            row.unit.clone().unwrap_or_else(|| row.program.clone()),
            row.on.clone(),
            row.pick.clone(),
            change(row.cpu),
            change(row.memory),
            if row.gain { row.how.clone() } else { verdict(row).to_owned() },
        ]
    });
    imas_report::table::plain(&["pid", "what", "on", "pick", "CPU", "memory", "what to do"], rows)
}

fn verdict(row: &Row) -> &'static str {
    match row.cpu.is_none() && row.memory.is_none() {
        true => "no data: too few trials of both to say what it would save",
        false => "nothing to do: no gain beyond the noise",
    }
}

/// The change in per cent, with its interval.
fn change(ratio: Option<Interval>) -> String {
    let percent = |x: f64| (x - 1.0) * 100.0;
    ratio.map_or_else(
        || "no data".to_owned(),
        |r| format!("{:+.1} % [{:+.1}, {:+.1}]", percent(r.mid), percent(r.lo), percent(r.hi)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_trials_on_both_sides() {
        assert_eq!(ratio(&[1.0, 1.0], &[1.0, 1.0, 1.0]), None);
        assert_eq!(ratio(&[1.0, 1.0, 1.0], &[]), None);
        let half = ratio(&[2.0, 2.0, 2.0, 2.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!((half.lo, half.mid, half.hi), (0.5, 0.5, 0.5));
    }

    #[test]
    fn noise_is_wide() {
        let wide = ratio(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!(wide.lo < 1.0 && wide.hi > 1.0, "{wide:?}");
        assert_eq!(change(None), "no data");
        assert_eq!(change(Some(Interval { lo: 0.5, mid: 0.9, hi: 1.1 })), "-10.0 % [-50.0, +10.0]");
    }
}
