// SPDX-License-Identifier: Apache-2.0
//! Benches in words. First twenty of real programs and servers, as `imas bench` prints them: each kind of ending is among
//! them. The texts are made of stored runs, so a change of words or rules changes `examples.txt`, and the change is read in
//! review.
//!
//! `IMAS_WRITE_EXAMPLES=1 cargo test -p imas-report --test examples` writes the file anew.
//!
//! Then made-up servers under load: the pick, its limits, and when the rounds end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use imas_core::bench::{Options, Warning};
use imas_core::compare::CostLimits;
use imas_core::judgement::{BenchCourse, BenchJudgement, Goal};
use imas_core::raw_runs::data::{Data, read};
use imas_core::run::RawRun;
use imas_core::server_bench::{GuardRail, ServiceComparison, ServiceOptions, compare_services, memory_goal};
use imas_core::server_run::{Failure, Figure, ServerRun, Stage};
use imas_report::bench::{BenchLayout, BenchReport};
use imas_report::service::{self, sentence, verdict};

const WIDTHS: [usize; 2] = [80, 100];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(name)
}

/// The options that a bench was started with.
fn options(data: &Data, name: &str) -> Options {
    let most_cost = match name.ends_with("max-memory-0") {
        true => CostLimits { memory: 0.0, ..CostLimits::USUAL },
        false => CostLimits::USUAL,
    };
    Options { most_cost, seed: 1, ..data.options(name) }
}

fn command(data: &Data, name: &str) -> (String, BenchJudgement) {
    let (runs, comparison) = data.observed(name).compare(&options(data, name));
    let report = BenchReport::of_runs(vec![name.to_owned()], runs, comparison);
    let table = |width| report.table(&BenchLayout { width: Some(width), ..BenchLayout::default() });
    let warnings =
        Warning::few_lines(&report.warnings).into_iter().map(|(what, _)| format!("warning: {what}\n"));
    let noise = Warning::noise(&report.warnings).map(|noise| noise + "\n");
    let tables: String = WIDTHS.map(|width| table(width) + "\n").concat();
    let told: String = warnings.chain(noise).collect();
    (format!("{tables}{}\n{told}", report.sentence()), report.judgement)
}

fn server(data: &Data, name: &str) -> (String, BenchJudgement) {
    let names: Vec<String> = data.candidates_of(name).into_iter().map(str::to_owned).collect();
    let runs: Vec<RawRun> = data.runs.iter().filter(|run| run.program == name).cloned().collect();
    let rails: Vec<GuardRail> = ["cpu+2%", "p99+5%"].map(|rail| rail.parse().unwrap()).to_vec();
    let comparison =
        compare_services(&names, &runs, &ServiceOptions { rails, seed: 1, ..ServiceOptions::default() });
    let tables = WIDTHS.map(|width| service::terminal_table(&comparison, &[], width) + "\n").concat();
    (format!("{tables}{}\n", service::sentence(&comparison)), comparison.judgement)
}

#[test]
fn the_texts_of_twenty_benches_are_these() {
    let data = read(&std::fs::read_to_string(file("runs.jsonl")).unwrap());
    let mut names: Vec<&str> = data.runs.iter().map(|run| run.program.as_str()).collect();
    names.dedup();
    assert!(names.len() >= 20, "{}", names.len());
    let mut text = String::new();
    let mut endings = BTreeMap::new();
    for name in names {
        let (shown, judgement) = match name.starts_with("server") {
            true => server(&data, name),
            false => command(&data, name),
        };
        text += &format!("==== {name}\n{shown}\n");
        *endings.entry(serde_json::to_value(&judgement.ending).unwrap()["kind"].to_string()).or_insert(0) +=
            1;
    }
    println!("{endings:?}");
    if std::env::var_os("IMAS_WRITE_EXAMPLES").is_some() {
        std::fs::write(file("examples.txt"), &text).unwrap();
    }
    let stored = std::fs::read_to_string(file("examples.txt")).unwrap();
    for (now, before) in text.lines().zip(stored.lines()) {
        assert_eq!(now, before, "IMAS_WRITE_EXAMPLES=1 writes examples.txt anew");
    }
    assert_eq!(text, stored);
}

fn run(candidate: &str, round: u32, memory: f64, cpu: f64, p99: f64) -> RawRun {
    // The machine's speed changes from round to round. Pairing must remove this.
    let drift = 1.0 + f64::from(round) / 4.0;
    let figures = [
        Figure::lower("memory", memory, "B"),
        Figure::lower("cpu", cpu * drift, "s"),
        Figure::lower("p99", p99 * drift, "ms"),
        Figure::higher("rate", 100.0 / cpu / drift, "1/s"),
    ];
    RawRun { candidate: candidate.into(), round, user_s: cpu * drift, ..RawRun::default() }
        .with_server(ServerRun::of(figures))
}

fn runs() -> Vec<RawRun> {
    (0..4)
        .flat_map(|round| {
            [
                run("system", round, 100e6, 1.0, 5.0),
                run("lean", round, 60e6, 1.3, 5.0),
                run("two", round, 69e6, 1.01, 5.1),
            ]
        })
        .collect()
}

fn words(found: &ServiceComparison, at: usize) -> String {
    verdict(found, &found.candidates[at])
}

fn is_settled(found: &ServiceComparison) -> bool {
    found.judgement.course == BenchCourse::Settled
}

fn compare(runs: &[RawRun], goal: Goal, rails: &[&str]) -> ServiceComparison {
    let names = ["system", "lean", "two"].map(str::to_owned);
    let rails: Vec<GuardRail> = rails.iter().map(|rail| rail.parse().unwrap()).collect();
    compare_services(&names, runs, &ServiceOptions { goal, rails, seed: 1, ..ServiceOptions::default() })
}

#[test]
fn the_leanest_within_the_guard_rails_is_picked() {
    let found = compare(&runs(), Goal::Memory, &["cpu+2%", "p99+5%"]);
    assert_eq!(found.pick(), "two");
    assert_eq!(found.candidates[1].exceeds, ["cpu+2%"]);
    assert_eq!(words(&found, 2), "same CPU, 31 % less memory, same p99, *leanest*");
    assert_eq!(compare(&runs(), Goal::Memory, &[]).pick(), "lean");
    assert_eq!(compare(&runs(), Goal::Memory, &["rate+10%", "cpu+2%"]).candidates[1].exceeds.len(), 2);
    assert_eq!(compare(&runs(), Goal::Cpu, &[]).pick(), "system", "no candidate uses less CPU");
    assert_eq!(compare(&runs(), Goal::Balanced, &[]).pick(), "two");
}

/// A noise of 5 % of CPU, the same in each round of a seed.
fn noisy(cost: f64) -> Vec<RawRun> {
    let deviations = [0.05, -0.04, 0.03, -0.05, 0.06, -0.03];
    let of = |(round, deviation): (u32, f64)| {
        let two = run("two", round, 69e6, cost * (1.0 + deviation), 5.0);
        [run("system", round, 100e6, 1.0, 5.0), run("lean", round, 100e6, 1.0 - deviation / 2.0, 5.0), two]
    };
    (0..).zip(deviations).flat_map(of).collect()
}

#[test]
fn a_cost_within_the_noise_is_said_and_a_proven_one_rejects() {
    let found = compare(&noisy(1.01), Goal::Memory, &["cpu+2%", "p99+5%"]);
    assert_eq!((found.pick(), found.candidates[2].exceeds.len()), ("two", 0));
    assert_eq!(found.candidates[2].unproven.len(), 1);
    assert!(sentence(&found).ends_with("not shown to cost more than 2 %."), "{}", sentence(&found));
    // The estimate is above the limit, and the noise allows that the cost is not.
    let found = compare(&noisy(1.03), Goal::Memory, &["cpu+2%", "p99+5%"]);
    let two = &found.candidates[2];
    assert_eq!((found.pick(), two.exceeds.len(), two.unproven.len()), ("two", 0, 1), "{two:?}");
    let found = compare(&noisy(1.15), Goal::Memory, &["cpu+2%", "p99+5%"]);
    assert_eq!(
        (found.pick(), found.candidates[2].exceeds.as_slice()),
        ("system", ["cpu+2%".to_owned()].as_slice())
    );
}

/// A load that prints no latency proves nothing about it, not even that no candidate is better.
#[test]
fn an_objective_that_was_not_measured_is_named() {
    let mut all = runs();
    for run in &mut all {
        run.server.as_mut().unwrap().figures.remove("p99");
    }
    let found = compare(&all, Goal::Latency, &["cpu+2%"]);
    assert_eq!(found.pick(), "system");
    assert!(sentence(&found).contains("has the figure of the objective"), "{}", sentence(&found));
}

/// Requests that fail under a candidate alone have no ratio to those under `system`.
#[test]
fn a_cost_that_system_has_nothing_of_breaks_a_limit() {
    let judged = |errors: [f64; 4]| {
        let mut all = runs();
        for run in &mut all {
            let count = if run.candidate == "two" { errors[run.round as usize] } else { 0.0 };
            run.server.as_mut().unwrap().record(Figure::lower("errors", count, ""));
        }
        let found = compare(&all, Goal::Memory, &["cpu+2%", "errors+0%"]);
        let two = &found.candidates[2];
        (found.pick().to_owned(), two.exceeds.clone(), two.unproven.len())
    };
    let broken = "errors+0%";
    let wanted = |pick: &str, exceeds: &[&str], unproven: usize| {
        let exceeds: Vec<String> = exceeds.iter().map(|one| (*one).to_owned()).collect();
        (pick.to_owned(), exceeds, unproven)
    };
    assert_eq!(judged([9.0, 1.0, 3.0, 2.0]), wanted("system", &[broken], 0));
    assert_eq!(judged([0.0, 1.0, 0.0, 0.0]), wanted("two", &[], 1));
    assert_eq!(judged([0.0; 4]), wanted("two", &[], 0));
}

/// Three runs under `system` in a round: their mean is the reference, and their pairs are the noise.
#[test]
fn several_runs_of_system_are_one_reference_and_the_noise() {
    let mut all = vec![];
    for round in 0..4 {
        let system = [90e6, 100e6, 1e8 / 0.9].map(|memory| run("system", round, memory, 1.0, 5.0));
        let system = system.into_iter().zip(0_u32..).map(|(run, at)| RawRun { at_s: f64::from(at), ..run });
        all.extend(system.chain([run("lean", round, 60e6, 1.0, 5.0)]));
    }
    let found = compare(&all, Goal::Memory, &[]);
    let ratio = found.candidates[1].figures["memory"].ratio.unwrap();
    assert!((ratio.mid - 0.6).abs() < 1e-9, "against the geometric mean: {ratio:?}");
    assert_eq!((found.candidates[0].rounds, found.pick()), (4, "lean"));
    assert_eq!((found.candidates[0].runs, found.candidates[1].runs), (12, 4));
    let mut failed = all.clone();
    let failure = Failure::new(Stage::Load, "x".into());
    let server = failed[0].of_server().clone();
    failed[0].set_server(ServerRun { failure: Some(failure), ..server });
    assert_eq!(words(&compare(&failed, Goal::Memory, &[]), 0), "reference; failed in 1 of 12 runs");
    let noise = found.noise["memory"];
    assert!((noise.deviation - 2.0_f64.sqrt() * 0.9_f64.ln().abs()).abs() < 1e-3, "{noise:?}");
    assert_eq!(noise.freedom, 8.0);
    assert!(compare(&runs(), Goal::Memory, &[]).noise.is_empty(), "one run a round shows none");
}

#[test]
fn the_pause_counts_as_much_as_the_load_and_a_day_more_than_both() {
    let of = |figures: &[(&str, f64)]| {
        memory_goal(|name| figures.iter().find(|one| one.0 == name).map(|one| one.1))
    };
    assert_eq!(of(&[("memory", 4.0)]), Some(4.0));
    assert_eq!(of(&[("memory", 4.0), ("memory_idle", 1.0)]), Some(2.0));
    assert_eq!(of(&[("memory", 4.0), ("memory_idle", 1.0), ("memory_day", 7.0)]), Some(7.0));
    assert_eq!(of(&[("memory_idle", 1.0)]), None);
}

#[test]
fn rounds_end_when_no_rival_is_left() {
    assert!(is_settled(&compare(&runs(), Goal::Memory, &[])));
    let few: Vec<RawRun> = runs().into_iter().filter(|run| run.round < 1).collect();
    assert!(!is_settled(&compare(&few, Goal::Memory, &[])), "two may be better than system");
    let mut wide = noisy(1.0);
    wide.retain(|run| run.candidate != "two");
    for (at, run) in wide.iter_mut().enumerate().filter(|(_, run)| run.candidate == "lean") {
        let memory = if at % 4 == 1 { 60e6 } else { 130e6 };
        run.set_server(ServerRun::of([Figure::lower("memory", memory, "B")]));
    }
    let found = compare(&wide, Goal::Memory, &[]);
    assert!(!is_settled(&found) && found.candidates[1].is_open(), "{found:?}");
}

/// Two rounds that agree exclude a gain, two that differ do not, and one never does.
#[test]
fn two_rounds_exclude_a_gain_if_they_agree() {
    let is_open = |ratios: &[f64]| {
        let of = |(round, ratio): (u32, &f64)| {
            [run("system", round, 100e6, 1.0, 5.0), run("lean", round, 100e6 * ratio, 1.0, 5.0)]
        };
        let all: Vec<RawRun> = (0..).zip(ratios).flat_map(of).collect();
        compare(&all, Goal::Memory, &[]).candidates[1].is_open()
    };
    assert!(!is_open(&[1.12, 1.13]) && !is_open(&[1.0, 1.001]));
    assert!(is_open(&[1.0, 1.12]) && is_open(&[0.96, 0.97]) && is_open(&[1.5]));
    assert!(!is_open(&[0.96, 0.97, 0.98]), "three lie above the margin");
}

#[test]
fn one_round_proves_nothing() {
    let one: Vec<RawRun> = runs().into_iter().filter(|run| run.round == 0).collect();
    let found = compare(&one, Goal::Memory, &[]);
    assert_eq!((found.pick(), words(&found, 1).as_str()), ("system", "too few rounds (1) to say"));
    assert!(found.candidates[1].figures["memory"].ratio.is_some());
}

#[test]
fn a_failure_that_is_nobodys_fault_does_not_count_against_a_candidate() {
    let pick = |stage| {
        let failure = Some(Failure::new(stage, "x".into()));
        let mut all = runs();
        all.push(run("two", 4, 69e6, 1.01, 5.1));
        all.last_mut().unwrap().set_server(ServerRun { failure, ..ServerRun::default() });
        compare(&all, Goal::Memory, &["cpu+2%", "p99+5%"]).pick().to_owned()
    };
    assert_eq!([pick(Stage::Died), pick(Stage::Taken)], ["system", "two"]);
}

#[test]
fn a_failed_candidate_is_not_picked() {
    let mut all = runs();
    let failure = Failure { signal: Some(11), ..Failure::new(Stage::Died, "x".into()) };
    let two = all.iter_mut().find(|run| run.candidate == "two").unwrap();
    two.set_server(ServerRun { failure: Some(failure), ..two.of_server().clone() });
    let found = compare(&all, Goal::Memory, &["cpu+2%"]);
    assert_eq!(found.pick(), "system");
    assert!(words(&found, 2).contains("failed in 1 of 4 runs"), "{}", words(&found, 2));
}

#[test]
fn a_load_by_the_clock_limits_the_rate_in_place_of_the_cpu() {
    let mut all = runs();
    all[0].server.as_mut().unwrap().by_clock = true;
    let found = compare(&all, Goal::Memory, &["cpu+2%"]);
    let lean = &found.candidates[1];
    assert_eq!((found.pick(), lean.exceeds.join(" ")), ("two", "rate+2%".to_owned()));
    assert!(words(&found, 1).contains("CPU not comparable"), "{}", words(&found, 1));
    let found = compare(&all, Goal::Memory, &[]);
    assert_eq!((found.pick(), found.candidates[1].exceeds.len()), ("lean", 0));
}

/// Runs whose load prints this latency alone.
fn with_latency(name: Option<&str>, two: f64) -> Vec<RawRun> {
    let of = |candidate: &str, round: u32, memory: f64, latency: f64| {
        let drift = 1.0 + 0.001 * f64::from(round);
        let mut figures =
            vec![Figure::lower("memory", memory * drift, "B"), Figure::lower("cpu", drift, "s")];
        figures.extend(name.map(|name| Figure::lower(name, latency * drift, "ms")));
        RawRun { candidate: candidate.into(), round, user_s: drift, ..RawRun::default() }
            .with_server(ServerRun::of(figures))
    };
    (0..6)
        .flat_map(|round| {
            [of("system", round, 100e6, 5.0), of("lean", round, 72e6, 5.0), of("two", round, 70e6, two)]
        })
        .collect()
}

/// sysbench prints the 95th percentile. The limit of the 99th counts for it, and a limit that no figure tests
/// is named.
#[test]
fn a_limit_is_tested_by_what_the_load_prints_or_said_to_be_untested() {
    let slow = compare(&with_latency(Some("p95"), 8.0), Goal::Memory, &["p99+5%"]);
    assert_eq!((slow.pick(), slow.candidates[2].exceeds.as_slice()), ("lean", &["p95+5%".to_owned()][..]));
    assert!(!sentence(&slow).contains("not tested"), "{}", sentence(&slow));
    let both = compare(&with_latency(None, 5.0), Goal::Memory, &["p99+5%", "cpu+2%"]);
    assert_eq!(both.pick(), "two");
    assert!(
        sentence(&both).contains("p99+5% is not tested, as no run has that figure"),
        "{}",
        sentence(&both)
    );
}

#[test]
fn a_variable_that_gives_nine_tenths_of_the_gain_is_named() {
    let variables = [("lean".to_owned(), "MALLOC_ARENA_MAX=1".to_owned())];
    let mut found = compare(&with_latency(Some("p99"), 5.0), Goal::Memory, &[]);
    found.look_for_one_variable(&variables);
    let said = sentence(&found);
    assert!(
        said.starts_with("Use two") && said.contains("MALLOC_ARENA_MAX=1 alone (lean) gives -28"),
        "{said}"
    );
    let mut picked = compare(&runs(), Goal::Memory, &[]);
    picked.look_for_one_variable(&variables);
    assert_eq!((picked.pick(), picked.one_variable.as_ref()), ("lean", None), "the pick itself");
}
