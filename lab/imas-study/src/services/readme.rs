// SPDX-License-Identifier: Apache-2.0
//! The table of services in the README: a row for each service with a gain, one for those without, and what
//! one candidate for all would have done.

use imas_cli::format::counted;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::compare::FEWEST_ROUNDS;
use imas_core::server_run::{C_LIBRARY, ServerRun};
use imas_core::stats::{Interval, attainable_confidence};

use crate::services::against_single::AgainstSingle;
use crate::services::judge::{CandidateForAll, JUDGED, JUDGED_COLUMNS};
use crate::services::judgement::JournalJudgement;
use crate::services::no_effect::{NoEffect, share_of_glibc};
use crate::study::without_empty_columns;
use imas_core::compare::smallest_difference;
use imas_core::server_bench::{CandidateFigures, ServiceComparison};
use imas_report::service::{MeasuredService, best, leanest};

/// Settings of glibc that anybody can give to all services without a measurement: what a pick has to beat.
pub const BASELINES: [&str; 2] = ["glibc:arena1", "glibc:lean"];
/// Settings for all services that picks are compared with: the baselines, and the leanest.
const COMPARED: [&str; 3] = [BASELINES[0], BASELINES[1], "glibc:lean-trim"];

/// How the services were measured in a sentence, and the table. Services without a valid run under `system`
/// are named only.
#[must_use]
pub fn readme(services: &[MeasuredService<'_>], judgement: &JournalJudgement) -> String {
    let mut rows: Vec<ReadmeRow> = services.iter().filter_map(ReadmeRow::of).collect();
    rows.sort_by(|a, b| a.memory_ratio().total_cmp(&b.memory_ratio()));
    let of = |kind| rows.iter().filter(move |row| row.kind == kind);
    let others: Vec<ReadmeRow> = of(RowKind::Nothing).cloned().collect();
    let baselines = ["memory with `glibc:arena1`", "with `glibc:lean`"];
    let columns = [&["service", "MiB", "best"][..], &JUDGED_COLUMNS, &baselines].concat();
    let mut table = Table::new("services", "Services", &columns);
    let mut add = |cells: Vec<String>| {
        table.push(cells.into_iter().chain(std::iter::repeat(String::new())).take(columns.len()).collect());
    };
    of(RowKind::Proven).chain(of(RowKind::NotProven)).for_each(|row| add(row.cells()));
    without_gain(&others).into_iter().for_each(&mut add);
    of_each(judgement).into_iter().for_each(&mut add);
    beside_one_for_all(&judgement.against_single).into_iter().for_each(&mut add);
    of_proven(&judgement.proven_against_single).into_iter().for_each(&mut add);
    judgement.for_all.iter().map(row_for_all).for_each(&mut add);
    let notes = not_measured(judgement)
        + &malloc_of_system(services)
        + &not_glibc(services)
        + &of_other_services(judgement);
    format!("{}{notes}\n\n{}", how(&rows), compact(&without_empty_columns(table)))
}

/// Result of the best candidate of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// Its gain is proven; with too few rounds for a proof, as measured.
    Proven,
    /// It is leaner by the margin, and that is not proven.
    NotProven,
    /// No candidate is leaner by the margin.
    Nothing,
}

/// Row of one service in the table.
#[derive(Debug, Clone)]
struct ReadmeRow {
    service: String,
    rounds: usize,
    mib: f64,
    best: String,
    kind: RowKind,
    /// The figures of [`JUDGED`].
    changes: [Option<Interval>; JUDGED.len()],
    /// Memory under [`BASELINES`], and whether that is proven, in words.
    baselines: [String; BASELINES.len()],
}

impl ReadmeRow {
    fn of(service: &MeasuredService<'_>) -> Option<Self> {
        let system = service.comparison.named(SYSTEM).filter(|system| system.rounds > 0)?;
        let proven = best(service.comparison);
        let best = proven.or_else(|| leanest(service.comparison));
        let kind = match best {
            Some(_) if proven.is_some() => RowKind::Proven,
            Some(_) => RowKind::NotProven,
            None => RowKind::Nothing,
        };
        let change = |figure: &str| best?.figures.get(figure)?.ratio;
        Some(Self {
            service: service.name.to_owned(),
            rounds: system.rounds,
            mib: system.figures.get("memory")?.median / f64::from(1 << 20),
            best: best.map_or(SYSTEM, |best| best.name.as_str()).to_owned(),
            kind,
            changes: JUDGED.map(change),
            baselines: BASELINES.map(|name| baseline(service.comparison, name)),
        })
    }

    fn memory_ratio(&self) -> f64 {
        self.changes[0].map_or(1.0, |ratio| ratio.mid)
    }

    fn cells(&self) -> Vec<String> {
        let cell = |ratio: Option<Interval>| match ratio {
            Some(ratio) if self.rounds > 1 => within(&ratio),
            Some(ratio) => percent(ratio.mid),
            None => "-".to_owned(),
        };
        let doubt = if self.kind == RowKind::NotProven { ", not proven" } else { "" };
        let own = [self.service.clone(), format!("{:.0}", self.mib), format!("`{}`{doubt}", self.best)];
        own.into_iter().chain(self.changes.map(cell)).chain(self.baselines.iter().cloned()).collect()
    }
}

/// Change of memory under one setting. A gain above the margin that the rounds do not prove is marked.
fn baseline(comparison: &ServiceComparison, name: &str) -> String {
    let found = comparison.named(name).and_then(|one| Some((one, one.figures.get("memory")?.ratio?)));
    found.map_or_else(
        || "-".to_owned(),
        |(one, ratio)| {
            let is_open = !one.is_better() && ratio.mid <= 1.0 - smallest_difference("memory");
            format!("{}{}", percent(ratio.mid), if is_open { ", not proven" } else { "" })
        },
    )
}

/// Markdown without padding: one row has many names.
fn compact(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); table.columns.len()];
    let rows = table.rows.iter().map(|row| line(row));
    [line(&table.columns), line(&rule)].into_iter().chain(rows).collect()
}

/// Number of rounds, and what follows from it.
fn how(rows: &[ReadmeRow]) -> String {
    let rounds = || rows.iter().map(|row| row.rounds);
    let (fewest, most) = (rounds().min().unwrap_or(0), rounds().max().unwrap_or(0));
    let times = if fewest == most { counted(most, "round") } else { format!("{fewest} to {most} rounds") };
    let follows = match most {
        0 | 1 => "**One round: no change of a service has an interval, and none is proven.**".to_owned(),
        _ if fewest < FEWEST_ROUNDS => {
            format!("{}. **Fewer than {FEWEST_ROUNDS} rounds prove nothing.**", intervals(fewest))
        }
        _ => format!("{}. A gain is proven unless the row says otherwise.", intervals(fewest)),
    };
    format!("{}, {times}. {follows}", counted(rows.len(), "service"))
}

/// Explanation of the brackets.
fn intervals(rounds: usize) -> String {
    let percent = attainable_confidence(rounds) * 100.0;
    let percent = if percent.fract() == 0.0 { format!("{percent:.0}") } else { format!("{percent:.1}") };
    format!("Brackets: intervals of {percent} % at most")
}

/// Sentence with the services whose `system` is not the C library's malloc.
fn malloc_of_system(services: &[MeasuredService<'_>]) -> String {
    let of = |service: &MeasuredService<'_>| Some(format!("{}: {}", service.name, other_malloc(service)?));
    let others: Vec<String> = services.iter().filter_map(of).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!("\n\nMalloc under `{SYSTEM}` is not the C library's in {}.", others.join("; ")),
    }
}

/// Malloc under `system` that is not the C library's. A library behind a preloaded C library is named as well, and serves
/// nothing: an older IMAS did not look for preloads, and redis-server overwrites the environment that has them. Then
/// glibc's heaps have most of the memory.
fn other_malloc(service: &MeasuredService<'_>) -> Option<String> {
    let system = service.runs.iter().filter(|run| run.candidate == SYSTEM);
    let system: Vec<&ServerRun> = system.map(|run| run.of_server()).collect();
    let first = |of: fn(&ServerRun) -> &Vec<String>| {
        system.iter().map(|run| of(run)).find(|malloc| !malloc.is_empty()).map(|malloc| malloc.join(" and "))
    };
    let named = first(|run| &run.malloc_by).or_else(|| first(|run| &run.malloc))?;
    let serves = || share_of_glibc(&service.runs).is_none_or(|share| share <= 0.5);
    (named != C_LIBRARY && serves()).then_some(named)
}

/// Services on which some candidates cannot act: their `system` is not glibc's malloc, or no library was loaded.
fn not_glibc(services: &[MeasuredService<'_>]) -> String {
    let why = |service: &MeasuredService<'_>| {
        let of = |one: &CandidateFigures| NoEffect::of(&one.name, &service.runs);
        service.comparison.candidates.iter().filter_map(of).collect::<Vec<_>>()
    };
    let names = |kind: NoEffect| -> Vec<&str> {
        services.iter().filter(|service| why(service).contains(&kind)).map(|service| service.name).collect()
    };
    let line = |names: Vec<&str>, what: &str| {
        if names.is_empty() { String::new() } else { format!("\n\n{what}: {}.", names.join(", ")) }
    };
    line(names(NoEffect::NoHeap), "Hardly any memory in glibc's heaps, whose settings cannot act")
        + &line(names(NoEffect::NotLoaded), "No library was ever loaded, so nothing was measured")
}

fn not_measured(judgement: &JournalJudgement) -> String {
    let names = judgement.not_measured.join(", ");
    if names.is_empty() { names } else { format!("\nWithout a valid run under `{SYSTEM}`: {names}.") }
}

/// The rows of one candidate for all that rest on fewer services than the others.
fn of_other_services(judgement: &JournalJudgement) -> String {
    let sentence = judgement.of_fewer_services();
    if sentence.is_empty() { sentence } else { format!("\n\n{sentence}") }
}

/// One row for all services without a gain.
fn without_gain(rows: &[ReadmeRow]) -> Option<Vec<String>> {
    let names: Vec<&str> = rows.iter().map(|row| row.service.as_str()).collect();
    let mib = |pick: fn(f64, f64) -> f64| rows.iter().map(|row| row.mib).reduce(pick);
    let range = format!("{:.0} to {:.0}", mib(f64::min)?, mib(f64::max)?);
    let what = format!("nothing better in {}: {}", names.len(), names.join(", "));
    Some(
        [what, range, format!("`{SYSTEM}`")]
            .into_iter()
            .chain([(); JUDGED.len()].map(|()| "-".to_owned()))
            .collect(),
    )
}

/// The best candidate for each service, on rounds that did not choose if there are any.
fn of_each(judgement: &JournalJudgement) -> Option<Vec<String>> {
    let held_out = judgement.held_out_mean();
    let (what, means) = match held_out {
        [Some(_), ..] => ("**its best for each**, on rounds that did not choose", held_out),
        _ => ("**its best for each**, on the round that chose", judgement.by_all_mean()),
    };
    means[0]?;
    let cells = means.map(|mean| mean.map_or_else(|| "-".to_owned(), |mean| within(&mean)));
    Some([what.to_owned(), String::new(), String::new()].into_iter().chain(cells).collect())
}

/// Picks beside each of [`COMPARED`] given to all, on rounds that did not choose.
fn beside_one_for_all(picks: &[AgainstSingle]) -> Vec<Vec<String>> {
    let of = |name: &&str| {
        let found = picks.iter().find(|one| one.candidate == **name)?;
        beside(found, format!("... compared with `{name}` for all"))
    };
    COMPARED.iter().filter_map(of).collect()
}

/// Picks whose gain the rounds that choose prove, beside `system` and each of [`COMPARED`]. Empty with too few rounds
/// for a proof.
fn of_proven(picks: &[AgainstSingle]) -> Vec<Vec<String>> {
    let what = "**its best for each, if it is proven**, as `imas bench` picks".to_owned();
    let system = picks.iter().find(|one| one.candidate == SYSTEM);
    let Some(first) = system.and_then(|found| beside(found, what)) else { return vec![] };
    std::iter::once(first).chain(beside_one_for_all(picks)).collect()
}

/// Row of picks beside one setting; None where no service has both.
fn beside(found: &AgainstSingle, what: String) -> Option<Vec<String>> {
    found.ratios[0]?;
    let ([leaner, proven_leaner], [fatter, proven_fatter]) = (found.leaner, found.fatter);
    let counts = format!(
        "less memory in {leaner} of {} ({proven_leaner} proven), more in {fatter} ({proven_fatter} proven)",
        found.services
    );
    let cells = found.ratios.map(|ratio| ratio.map_or_else(|| "-".to_owned(), |ratio| within(&ratio)));
    Some([what, String::new(), counts].into_iter().chain(cells).collect())
}

fn row_for_all(one: &CandidateForAll) -> Vec<String> {
    let worse = format!("more memory in {} of {}", one.worse[0], one.services);
    let cells = one.ratios.map(|ratio| ratio.map_or_else(|| "-".to_owned(), |ratio| within(&ratio)));
    [format!("`{}` for all", one.candidate), String::new(), worse].into_iter().chain(cells).collect()
}

fn percent(ratio: f64) -> String {
    format!("{} %", points(ratio))
}

/// Adding 0 turns minus zero into plus zero.
fn points(ratio: f64) -> String {
    format!("{:+.0}", ((ratio - 1.0) * 100.0).round() + 0.0)
}

fn within(ratio: &Interval) -> String {
    format!("{} [{}, {}]", percent(ratio.mid), points(ratio.lo), points(ratio.hi))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::services::judgement::JudgeOptions;
    use imas_core::run::RawRun;
    use imas_core::server_bench::{ServiceOptions, compare_services};
    use imas_core::server_run::{ArenaHeaps, Figure};

    fn runs(service: &str, rounds: u32, leaner: f64) -> Vec<RawRun> {
        let one = |candidate: &str, round: u32, mib: f64| {
            RawRun { program: service.into(), candidate: candidate.into(), round, ..RawRun::default() }
                .with_server(ServerRun::of([Figure::lower("memory", mib * 1048576.0, "B")]))
        };
        (0..rounds)
            .flat_map(|round| [one(SYSTEM, round, 100.0), one("jemalloc", round, 100.0 * leaner)])
            .collect()
    }

    fn text(rounds: u32) -> String {
        let all = [runs("gains", rounds, 0.7), runs("same", rounds, 1.2)].concat();
        let names = [SYSTEM, "jemalloc"].map(str::to_owned);
        let compared: Vec<_> = ["gains", "same"]
            .map(|service| {
                let own: Vec<RawRun> = all.iter().filter(|run| run.program == service).cloned().collect();
                (
                    service,
                    compare_services(&names, &own, &ServiceOptions { seed: 1, ..ServiceOptions::default() }),
                )
            })
            .into();
        let services: Vec<MeasuredService<'_>> = compared
            .iter()
            .map(|(name, comparison)| MeasuredService { name, comparison, runs: vec![] })
            .collect();
        readme(&services, &judged(&all))
    }

    fn judged(runs: &[RawRun]) -> JournalJudgement {
        let (rails, own_allocator) = (vec![], &BTreeSet::new());
        JournalJudgement::of(
            runs,
            &JudgeOptions { rails, least_bytes: 0.0, own_allocator, least_heap_bytes: None },
        )
    }

    /// A library that serves malloc is named, the C library is not; the day has a column where there is one.
    #[test]
    fn another_malloc_and_a_day_are_shown() {
        assert!(!text(4).contains("over the day") && !text(4).contains("Malloc under"));
        let with = |malloc: &str, heap: Option<&ArenaHeaps>, is_older: bool| {
            let mut all = runs("gains", 4, 0.7);
            for run in &mut all {
                let mut server = run.of_server().clone();
                let named = vec![malloc.to_owned()];
                if is_older {
                    server.malloc = named;
                } else {
                    server.malloc_by = named;
                }
                server.heaps = heap.into_iter().cloned().collect();
                server.record(Figure::lower("memory_day", server.value("memory").unwrap() * 2.0, "B"));
                run.set_server(server);
            }
            let names = [SYSTEM, "jemalloc"].map(str::to_owned);
            let options = ServiceOptions { seed: 1, ..ServiceOptions::default() };
            let comparison = compare_services(&names, &all, &options);
            let runs = all.iter().collect();
            let services = [MeasuredService { name: "gains", comparison: &comparison, runs }];
            readme(&services, &judged(&all))
        };
        let text = with("libjemalloc.so.2", None, false);
        assert!(text.contains("not the C library's in gains: libjemalloc.so.2."), "{text}");
        assert!(text.contains("| over the day |"), "{text}");
        let heap = ArenaHeaps { bytes: 10, main_bytes: 9, ..ArenaHeaps::default() };
        let is_named =
            |malloc: &str, heap, is_older| with(malloc, heap, is_older).contains("not the C library's");
        assert!(!is_named(C_LIBRARY, None, false) && !is_named(C_LIBRARY, None, true));
        for is_older in [false, true] {
            assert!(is_named("libjemalloc.so.2", None, is_older));
            assert!(!is_named("libjemalloc.so.2", Some(&heap), is_older), "libc is before it");
        }
    }

    #[test]
    fn one_round_has_no_interval_and_the_text_says_so() {
        let text = text(1);
        assert!(text.contains("no change of a service has an interval"), "{text}");
        assert!(text.contains("| gains ") && text.contains(" -30 % "), "{text}");
        assert!(text.contains("nothing better in 1: same"), "{text}");
        assert!(text.contains("on the round that chose") && !text.contains("did not choose"), "{text}");
        assert!(text.contains("`jemalloc` for all") && text.contains("more memory in 1 of 2"), "{text}");
    }

    #[test]
    fn rounds_have_intervals_and_judge_what_the_others_chose() {
        let text = text(4);
        assert!(
            text.contains("2 services, 4 rounds")
                && text.contains("-30 % [-30, -30]")
                && text.contains("87.5 % at most"),
            "{text}"
        );
        assert!(text.contains("on rounds that did not choose"), "{text}");
    }

    /// Three rounds choose and a fourth judges, or nothing is proven.
    #[test]
    fn proven_picks_have_rows_of_their_own() {
        let proven =
            "| **its best for each, if it is proven**, as `imas bench` picks |  | less memory in 1 of 2 ";
        let (four, three) = (text(4), text(3));
        assert!(four.contains(proven) && !three.contains("if it is proven"), "{four}{three}");
        assert!(!four.contains("compared with"), "none of the settings was measured: {four}");
        let mut runs = [runs("gains", 4, 0.7), runs("same", 4, 1.2)].concat();
        runs.iter_mut()
            .filter(|run| run.candidate == "jemalloc")
            .for_each(|run| run.candidate = COMPARED[2].into());
        let rows = of_proven(&judged(&runs).proven_against_single);
        let named: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert!(named.len() == 2 && named[1] == "... compared with `glibc:lean-trim` for all", "{named:?}");
        assert!(rows[1][2].starts_with("less memory in 1 of 2 (1 proven), more in 0"), "{rows:?}");
    }
}
