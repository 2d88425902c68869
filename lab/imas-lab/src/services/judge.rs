// SPDX-License-Identifier: Apache-2.0
//! Gains of services by their picks, judged on raw runs, and how often `imas advise` was right.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::format::{self, counted};
use imas_cli::output;
use imas_cli::table::Table;
use imas_core::run::RawRun;
use imas_core::stats::Interval;
use imas_linux::runtime::Runtime;
use imas_report::measure::Unit;
use imas_study::services::{
    AgainstSingle, AnswerOptions, Answers, CandidateForAll, EqualPairs, JUDGED, JournalJudgement,
    JudgeOptions, JudgedService, LeftOutOfGain, MadeWorse, MemoryGain, ROUNDS_FOR_PROOF, ServiceJudgement,
    of_fewer_services,
};

use super::journal::read_whole;
use super::sets::{in_words, nothing, rails};

const MB: f64 = 1e6;

#[derive(Debug, Args)]
pub(super) struct JudgeArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The least memory under system, MB, of a service that counts for the gain
    #[arg(long, value_name = "MB", default_value_t = 50.0)]
    at_least: f64,
    /// Count for the gain the services with so much in glibc's heaps under system, MB, whatever else they have
    #[arg(long, value_name = "MB", conflicts_with = "at_least")]
    heap_at_least: Option<f64>,
    /// Judge by memory alone: other work on the machine made CPU time and latency worthless
    #[arg(long)]
    memory_only: bool,
    /// Runs to the answer of a bench, and what the answer gains: the course of imas bench on these runs, beside the rule
    /// before it and single settings for all
    #[arg(long, conflicts_with_all = ["at_least", "heap_at_least", "memory_only"])]
    answers: bool,
    /// Worth of 1 % of CPU time in per cent of memory, as of imas bench
    #[arg(long, requires = "answers", default_value_t = 2.0, value_name = "N")]
    worth: f64,
    /// Candidates of a bench of --answers
    #[arg(
        long,
        requires = "answers",
        value_delimiter = ',',
        default_value = "glibc:arena1,glibc:lean-trim,jemalloc:trim"
    )]
    with: Vec<String>,
    /// Print JSON instead of the text
    #[arg(long)]
    json: bool,
}

/// Prints the judgement.
pub(super) fn judge(args: &JudgeArgs) -> Result<ExitCode> {
    let journal = read_whole(&args.file)?;
    if args.answers {
        return answers(args, &journal.runs);
    }
    let options = JudgeOptions {
        rails: rails(args.memory_only),
        least_bytes: args.at_least * MB,
        own_allocator: &journal.own_allocator,
        least_heap_bytes: args.heap_at_least.map(|mb| mb * MB),
    };
    let judgement = JournalJudgement::of(&journal.runs, &options);
    if judgement.services.is_empty() {
        return Err(nothing(&args.file));
    }
    output::json_or(args.json, &judgement, || page(&judgement, args) + of_runtimes(&journal.runs))?;
    Ok(ExitCode::SUCCESS)
}

/// Benches of equal candidates.
const EQUAL_BENCHES: usize = 2000;

/// Prints how soon a bench has its answer, and what the answer gains.
fn answers(args: &JudgeArgs, runs: &[RawRun]) -> Result<ExitCode> {
    let options = AnswerOptions { candidates: args.with.clone(), worth: args.worth, old_rails: rails(false) };
    let found = Answers::of(runs, &options);
    if found.services.is_empty() {
        return Err(nothing(&args.file));
    }
    let equal = || {
        let pairs = EqualPairs::of(runs);
        let (picked, runs) =
            pairs.courses(&options.how(), &options.course(), args.with.len(), EQUAL_BENCHES)?;
        let share = picked as f64 / EQUAL_BENCHES as f64 * 100.0;
        Some(format!(
            "Of {EQUAL_BENCHES} benches of equal candidates with the noise of this file {share:.1} % pick one, after {runs:.1} \
             runs each (mean).\n"
        ))
    };
    output::json_or(args.json, &found, || {
        let (few, all) = found.within(6);
        format!(
            "{}\n{}\n{few} of {all} services have their answer within 6 runs.\n{}",
            found.table().plain(),
            found.each().plain(),
            equal().unwrap_or_default()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where settings of runtimes are judged, in a journal that has some.
fn of_runtimes(runs: &[RawRun]) -> &'static str {
    match runs.iter().any(|run| Runtime::of_candidate(&run.candidate).is_some()) {
        true => {
            "\nSettings of a language runtime are for its own programs, so none is a candidate for all: \
             'imas-lab services runtimes' judges them.\n"
        }
        false => "",
    }
}

impl JudgeArgs {
    /// The services that count for the gain, in words.
    fn counted(&self) -> String {
        match self.heap_at_least {
            Some(mb) => format!("with {mb} MB and more in glibc's heaps"),
            None => format!("of {} MB and more that use malloc", self.at_least),
        }
    }
}

fn page(judgement: &JournalJudgement, args: &JudgeArgs) -> String {
    let which = args.counted();
    let rails = in_words(&rails(args.memory_only));
    let parts = [
        format!(
            "The leanest candidate of each service (guard rails: {rails}; \
             at least 5 % less memory, else system)\n\n{}",
            services(&judgement.services)
        ),
        gains(judgement, &which),
        worse(judgement),
        against_single(judgement, &which),
        format!(
            "One candidate for {}\n\n{}",
            counted(judgement.services.len(), "service"),
            for_all(&judgement.for_all, judgement.services.len())
        ),
        format!(
            "One candidate for the {} {which}\n\n{}",
            counted(judgement.gain_by_all.services, "service"),
            for_all(&judgement.for_all_counted, judgement.gain_by_all.services)
        ),
    ];
    parts.join("\n") + &not_measured(judgement)
}

fn for_all(all: &[CandidateForAll], services: usize) -> String {
    let rows = all.iter().map(|one| (one.candidate.as_str(), one.services));
    CandidateForAll::table(all).plain() + &line(of_fewer_services(services, rows))
}

/// The sentence as a line of its own, where there is one.
fn line(sentence: String) -> String {
    if sentence.is_empty() { sentence } else { sentence + "\n" }
}

/// Gain of a choice for each service over one setting for all.
fn against_single(judgement: &JournalJudgement, which: &str) -> String {
    let part = |what: String, all: &[AgainstSingle]| {
        let most = all.iter().map(|one| one.services).max().unwrap_or(0);
        let rows = all.iter().map(|one| (one.candidate.as_str(), one.services));
        match most {
            0 => format!("{what}\n\nnothing can be judged: too few rounds\n"),
            most => {
                format!("{what}\n\n{}", AgainstSingle::table(all).plain())
                    + &line(of_fewer_services(most, rows))
            }
        }
    };
    [
        part(
            "The picks beside one setting for all services, on rounds that did not choose the pick: the leanest as \
             measured; below 0 is a gain of the picks"
                .to_owned(),
            &judgement.against_single,
        ),
        part(
            "The same, the leanest that is proven, as imas bench picks".to_owned(),
            &judgement.proven_against_single,
        ),
        part(
            format!("The same, the leanest as measured, services {which}"),
            &judgement.against_single_counted,
        ),
    ]
    .join("\n")
}

fn not_measured(judgement: &JournalJudgement) -> String {
    let names = judgement.not_measured.join(", ");
    if names.is_empty() { names } else { format!("\nWithout a valid run under system: {names}\n") }
}

fn services(services: &[ServiceJudgement]) -> String {
    const FIGURES: [&str; JUDGED.len()] = ["memory", "CPU", "p99", "pause", "day", "CPU of the day"];
    let held_out = FIGURES.map(|figure| if figure == "memory" { "held out: memory" } else { figure });
    let heads =
        ["service", "rounds", "MiB", "pick"].into_iter().chain(FIGURES).chain(held_out).chain(["note"]);
    let mut table = Table::new("services", "Services", &heads.collect::<Vec<_>>());
    for one in services {
        let JudgedService { service, rounds, memory_bytes, by_all, held_out } = &one.as_measured;
        let own = [service.clone(), rounds.to_string(), memory_bytes.map_or_else(dash, format::mib)];
        let held_out_cells = held_out
            .as_ref()
            .map_or_else(|| [(); JUDGED.len()].map(|()| dash()), |found| found.ratios.map(change));
        let cells = own
            .into_iter()
            .chain([by_all.candidate.clone()])
            .chain(by_all.ratios.map(change))
            .chain(held_out_cells)
            .chain([note(one)]);
        table.push(cells.collect());
    }
    // A service whose pick is `system` has no change of a figure that nobody measured.
    imas_study::without_empty_columns(table).plain()
}

fn note(one: &ServiceJudgement) -> String {
    let why = one.not_counted.map(|why| match why {
        LeftOutOfGain::OwnAllocator => "allocator of its own".to_owned(),
        LeftOutOfGain::Small => "small".to_owned(),
        LeftOutOfGain::LittleHeap => "little in glibc's heaps".to_owned(),
    });
    let held_out = one.as_measured.held_out.as_ref();
    let others = held_out.filter(|found| found.candidates.len() > 1);
    let others = others.map(|found| format!("picks: {}", found.candidates.join(" ")));
    let failed = held_out.filter(|found| found.failed > 0);
    let failed =
        failed.map(|found| format!("failed in {} of {}", found.failed, counted(found.judged, "round")));
    let notes: Vec<String> = why.into_iter().chain(others).chain(failed).collect();
    notes.join("; ")
}

fn gains(judgement: &JournalJudgement, which: &str) -> String {
    let words = |gain: &MemoryGain, what: &str, aim: &str| {
        format!(
            "{} of {} take at least 25 % less{what}; geometric mean {} (aim: {aim} %)",
            gain.quarter_less,
            counted(gain.services, "service"),
            interval(gain.mean)
        )
    };
    let line = |gain: &MemoryGain| words(gain, " memory (aim: half of them)", "-20");
    let held_out = match judgement.gain_held_out.services {
        0 => "nothing: no service has two rounds".to_owned(),
        _ => line(&judgement.gain_held_out),
    };
    let others = [
        ("after the pause", &judgement.idle_gain_held_out, "-25"),
        ("over the day", &judgement.day_gain_held_out, "-20"),
    ];
    let measured = others.into_iter().filter(|(_, gain, _)| gain.services > 0);
    let others = measured.map(|(what, gain, aim)| format!("the same {what}: {}\n", words(gain, "", aim)));
    format!(
        "Services {which}\n\
         by all rounds, which both chose and judged (this flatters): {}\n\
         held out, each round judges what the others chose: {held_out}\n{}",
        line(&judgement.gain_by_all),
        others.collect::<String>()
    )
}

fn worse(judgement: &JournalJudgement) -> String {
    let line = |found: &MadeWorse, few: &str| match found.services {
        0 => format!("cannot be judged: {few}"),
        services => format!(
            "of {}: memory {}, CPU {}, p99 {} (proven: {}, {}, {}); the pick of {} failed",
            counted(services, "service"),
            found.worse[0],
            found.worse[1],
            found.worse[2],
            found.proven[0],
            found.proven[1],
            found.proven[2],
            found.failed
        ),
    };
    format!(
        "Made worse than system by more than 5 % of memory, 2 % of CPU or 5 % of p99, \
         on rounds that did not choose\n\
         by the leanest as measured: {}\n\
         by the leanest that is proven, as imas bench picks: {}\n",
        line(&judgement.made_worse, "no service has two rounds"),
        line(
            &judgement.proven_made_worse,
            &format!("no service has {ROUNDS_FOR_PROOF} rounds, three to prove and one to judge")
        ),
    )
}

fn dash() -> String {
    "-".to_owned()
}

fn change(ratio: Option<f64>) -> String {
    ratio.map_or_else(dash, |ratio| Unit::PercentChange.text((ratio - 1.0) * 100.0))
}

fn interval(ratio: Option<Interval>) -> String {
    ratio.map_or_else(dash, |ratio| format::change(&ratio))
}
