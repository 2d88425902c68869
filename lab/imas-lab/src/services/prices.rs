// SPDX-License-Identifier: Apache-2.0
//! Prints what each candidate takes of memory and CPU time, by kind of service: the expectations by which `imas apply
//! --auto` and others choose, and the prices that `imas advise` and `imas explain` name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::output;
use imas_core::stats::median;
use imas_engine::prices::{CandidatePrice, PriceTable};
use imas_linux::runtime::Runtime;
use imas_study::services::RoundChanges;

use super::journal::read;

/// Fewer rounds of a service do not count.
const LEAST_ROUNDS: usize = 3;
/// A smaller cost is within the noise of a service, as a part of 1.
const LEAST_COST: f64 = 0.05;
/// Services whose work a language runtime does; all others are compiled.
const RUNTIMES: [(&str, Runtime); 16] = [
    ("celery", Runtime::Cpython),
    ("gunicorn-django", Runtime::Cpython),
    ("gunicorn-flask", Runtime::Cpython),
    ("puma", Runtime::Ruby),
    ("sidekiq", Runtime::Ruby),
    ("php-fpm", Runtime::Php),
    ("php-fpm-malloc", Runtime::Php),
    ("rabbitmq", Runtime::Beam),
    ("java", Runtime::Jvm),
    ("tomcat", Runtime::Jvm),
    ("node", Runtime::Node),
    ("express", Runtime::Node),
    ("caddy", Runtime::Go),
    ("etcd", Runtime::Go),
    ("nats-server", Runtime::Go),
    ("prometheus", Runtime::Go),
];

#[derive(Debug, Args)]
pub(super) struct PricesArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Prints the table as JSON.
pub(super) fn prices(args: &PricesArgs) -> Result<ExitCode> {
    let name = args.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let services = RoundChanges::of_all(&read(&args.file)?);
    let source = format!("imas-lab services prices lab/results/{name}");
    output::json(&PriceTable { schema: 2, source, prices: prices_of(&services) })?;
    Ok(ExitCode::SUCCESS)
}

/// A price for each candidate that is for every program, and kind of service.
fn prices_of(services: &[RoundChanges]) -> Vec<CandidatePrice> {
    let mut prices: BTreeMap<(&str, Option<Runtime>), Vec<Measured<'_>>> = BTreeMap::new();
    for service in services {
        for (index, candidate) in service.candidates.iter().enumerate() {
            if Runtime::of_candidate(candidate).is_none()
                && let Some(measured) = Measured::of(service, index)
            {
                prices.entry((candidate, runtime_of(&service.service))).or_default().push(measured);
            }
        }
    }
    prices.into_iter().map(|((candidate, runtime), all)| price(candidate, runtime, &all)).collect()
}

/// One service under a candidate: changes to `system` as logarithms.
struct Measured<'a> {
    service: &'a str,
    memory: f64,
    cpu: Vec<f64>,
}

impl<'a> Measured<'a> {
    fn of(service: &'a RoundChanges, index: usize) -> Option<Self> {
        let of = |figure: &str| service.changes(index, &service.rounds, figure);
        let (memory, cpu) = (of("memory"), of("cpu"));
        let is_enough = cpu.len() >= LEAST_ROUNDS;
        is_enough.then_some(Self { service: &service.service, memory: median(&memory)?, cpu })
    }
}

fn price(candidate: &str, runtime: Option<Runtime>, all: &[Measured<'_>]) -> CandidatePrice {
    let mean = |logs: Vec<f64>| logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let ratio = |logs: Vec<f64>| (mean(logs).exp() * 1000.0).round() / 1000.0;
    CandidatePrice {
        candidate: candidate.to_owned(),
        runtime,
        services: u32::try_from(all.len()).unwrap_or(u32::MAX),
        memory: ratio(all.iter().map(|one| one.memory).collect()),
        cpu: ratio(all.iter().filter_map(|one| median(&one.cpu)).collect()),
        paid: all.iter().filter_map(|one| Some((one.service.to_owned(), cost(&one.cpu)?))).collect(),
    }
}

fn runtime_of(service: &str) -> Option<Runtime> {
    RUNTIMES.iter().find(|(name, _)| *name == service).map(|(_, runtime)| *runtime)
}

/// The cost of these rounds, whose changes are logarithms, in whole per cent. None where a round cost nothing.
fn cost(changes: &[f64]) -> Option<f64> {
    let cost = median(changes)?.exp() - 1.0;
    let is_paid = cost >= LEAST_COST && changes.iter().all(|change| *change > 0.0);
    is_paid.then(|| (cost * 100.0).round() / 100.0)
}
