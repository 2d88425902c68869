// SPDX-License-Identifier: Apache-2.0
//! Gains of services by sets of candidates, and the limits on what a pick costs: the figures of
//! docs/decisions/0027.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::format::counted;
use imas_cli::message::Hinted;
use imas_cli::{output, table};
use imas_core::server_bench::GuardRail;
use imas_engine::context::Context;
use imas_study::services::{CandidateSet, PickRule, RoundChanges, SetGain, SetGains, set_rules};

use super::journal::read_whole;

#[derive(Debug, Args)]
pub(super) struct SetsArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Largest number of candidates beside system in a set
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=16))]
    most: u32,
    /// Number of sets that are printed of each size
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// The least memory under system, MB, of a service that counts
    #[arg(long, value_name = "MB", default_value_t = 0.0)]
    at_least: f64,
    /// Other work on the machine made CPU time and latency worthless: no guard rails
    #[arg(long)]
    memory_only: bool,
    /// Candidates that are in no set
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    without: Vec<String>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints the best sets of each size, the default set of services, and all candidates together.
pub(super) fn sets(args: &SetsArgs, context: &Context) -> Result<ExitCode> {
    let journal = read_whole(&args.file)?;
    let runs: Vec<_> =
        journal.runs.into_iter().filter(|run| !args.without.contains(&run.candidate)).collect();
    let measured = RoundChanges::of_all(&runs);
    let counts = |one: &&RoundChanges| {
        !journal.own_allocator.contains(&one.service)
            && one.memory_bytes.is_some_and(|bytes| bytes >= args.at_least * 1e6)
    };
    let services: Vec<&RoundChanges> = measured.iter().filter(counts).collect();
    if services.is_empty() {
        return Err(nothing(&args.file));
    }
    let rules = set_rules(&rails(args.memory_only));
    let (heads, rules): (Vec<&str>, Vec<PickRule>) = rules.into_iter().unzip();
    let Some(gains) = SetGains::new(&services, &rules) else {
        return Err(Hinted::error("sets are of 1 to 16 candidates", "leave some out with --without LIST"));
    };
    let rows = rows(args, context, &gains);
    if args.json {
        output::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let how = if gains.is_held_out {
        "each round judges what the others chose"
    } else {
        "NOT held out: no service has two rounds, so the round that chose also judges"
    };
    let cells = rows.iter().map(|(what, set)| {
        let of = |gain: &Option<SetGain>| gain.map_or_else(|| "-".to_owned(), |gain| text(&gain));
        [what.clone(), set.candidates.join(" ")].into_iter().chain(set.gains.iter().map(of)).collect()
    });
    let heads: Vec<&str> = ["set, beside system", "candidates"].into_iter().chain(heads).collect();
    output::text(&format!(
        "{} that use malloc; {how}. Gains in 100 x logarithm: 1 is about 1 %. Guard rails: {}. Settings of a language \
         runtime are in no set.\n\n{}",
        counted(services.len(), "service"),
        in_words(&rails(args.memory_only)),
        table::plain(&heads, cells)
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn rows(args: &SetsArgs, context: &Context, gains: &SetGains) -> Vec<(String, CandidateSet)> {
    let most = args.most.min(u32::try_from(gains.names().len()).unwrap_or(u32::MAX));
    let named = |default: fn(&imas_linux::catalogue::CatalogueCandidate) -> bool| {
        let all = context.catalogue.candidates().iter().filter(|one| default(one));
        gains.of(&all.map(|one| one.name.clone()).collect::<Vec<_>>())
    };
    let best = (1..=most).flat_map(|size| {
        let of = move |(place, set)| (format!("{} of {size}", ordinal(place)), set);
        (1..).zip(gains.best(size, args.top)).map(of)
    });
    let known = [
        ("all that were measured".to_owned(), gains.of(gains.names())),
        ("default of services".to_owned(), named(|one| one.service_default)),
        ("default of programs, as far as measured".to_owned(), named(|one| one.default)),
    ];
    known.into_iter().chain(best).collect()
}

fn ordinal(place: usize) -> String {
    match place {
        1 => "best".to_owned(),
        other => format!("no. {other}"),
    }
}

fn text(gain: &SetGain) -> String {
    format!("{:.1} [{:.1}, {:.1}]", gain.mean.mid, gain.mean.lo, gain.mean.hi)
}

/// The error of a journal in which nothing can be compared.
pub(super) fn nothing(file: &std::path::Path) -> anyhow::Error {
    Hinted::error(
        format!("{} has no valid run of a service under system", file.display()),
        "name a journal of 'imas-lab services run'",
    )
}

/// Guard rails for CPU time and p99, as `imas bench` had them before decision 59; none where only memory counts.
pub(super) fn rails(memory_only: bool) -> Vec<GuardRail> {
    let usual = [("cpu", 0.02), ("p99", 0.05)].into_iter().filter(|_| !memory_only);
    usual.map(|(figure, most)| GuardRail { figure: figure.to_owned(), most }).collect()
}

/// Guard rails as they are printed: `cpu+2%, p99+5%`.
pub(super) fn in_words(rails: &[GuardRail]) -> String {
    if rails.is_empty() {
        return "none".to_owned();
    }
    rails.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
