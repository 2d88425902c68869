// SPDX-License-Identifier: Apache-2.0
//! Totals, leads, every program under every candidate, and what was left out.

use imas_core::run::{RawRun, RunKind};
use imas_core::stats::{median, more};
use imas_simulate::{SimulatedProgram, cost};

use super::Judged;
use super::aims;
use super::best_worst;
use super::everyday;
use super::judge::Outcomes;
use super::pace;
use super::runtimes;
use super::strategy::{Aim, Strategy, analyse};
use super::total::{Metric, ahead, signed, total, with_interval};
use imas_cli::table::Table;

const MIB: f64 = 1_048_576.0;

pub(crate) fn tables(judged: &Judged) -> Vec<Table> {
    let of_all = three(judged, &judged.outcomes, ["aims", "totals", "leads"], TITLES);
    let both: Vec<Table> = match everyday::outcomes(judged) {
        None => of_all.into(),
        // Related tables follow each other.
        Some(outcomes) => {
            let ids = ["aims-everyday", "totals-everyday", "leads-everyday"];
            let everyday = three(judged, &outcomes, ids, [everyday::TITLE; 3]);
            of_all.into_iter().zip(everyday).flat_map(|(all, everyday)| [all, everyday]).collect()
        }
    };
    let others = [
        papers_totals(judged),
        best_worst::table(judged),
        programs(judged),
        measurements(judged),
        left_out(judged),
    ];
    both.into_iter().chain(others).chain(pace::table(judged)).chain(runtimes::table(judged)).collect()
}

const TITLES: [&str; 3] = [
    "What IMAS set itself",
    "Gains over system, over all programs (95 % intervals)",
    "IMAS against every single candidate (geometric means over the programs under which it runs, paired)",
];

/// The tables of aims, totals and leads.
fn three(judged: &Judged, outcomes: &Outcomes, ids: [&str; 3], titles: [&str; 3]) -> [Table; 3] {
    [
        aims::table(judged, outcomes, ids[0], titles[0]),
        totals(judged, outcomes, ids[1], titles[1]),
        leads(judged, outcomes, ids[2], titles[2]),
    ]
}

/// Strategies with an outcome, in the order of comparison.
pub(crate) fn strategies(judged: &Judged) -> Vec<Strategy> {
    let is_judged = |s: &Strategy| judged.outcomes.contains_key(s);
    Strategy::all(&judged.source.candidates).into_iter().filter(is_judged).collect()
}

fn totals(judged: &Judged, outcomes: &Outcomes, id: &str, title: &str) -> Table {
    let columns = [
        "what decides",
        "programs",
        "CPU gain %, mean",
        "CPU gain %, geometric",
        "memory gain %, mean",
        "memory gain %, geometric",
        "balanced gain %, mean",
        "balanced gain %, geometric",
    ];
    let mut table = Table::new(id, title, &columns);
    for strategy in strategies(judged) {
        let mut row = vec![strategy.name()];
        for metric in Metric::OURS {
            let total = total(outcomes, &strategy, metric, judged.by);
            if row.len() == 1 {
                row.push(total.map_or(0, |t| t.programs).to_string());
            }
            row.push(total.map_or_else(no_figure, |t| with_interval(&t.mean)));
            row.push(total.and_then(|t| t.geometric).map_or_else(no_figure, |i| with_interval(&i)));
        }
        table.push(row);
    }
    table
}

fn papers_totals(judged: &Judged) -> Table {
    let columns = [
        "what decides",
        "programs",
        "time gain %, mean",
        "time gain %, geometric",
        "fragmentation gain, points, mean",
    ];
    let mut table =
        Table::new("paper-totals", "The same in the paper's metric (figure 8 as numbers)", &columns);
    for strategy in strategies(judged) {
        let Some(time) = total(&judged.outcomes, &strategy, Metric::Time, judged.by) else { continue };
        let frag = total(&judged.outcomes, &strategy, Metric::Frag, judged.by);
        table.push(vec![
            strategy.name(),
            time.programs.to_string(),
            with_interval(&time.mean),
            time.geometric.map_or_else(no_figure, |i| with_interval(&i)),
            frag.map_or_else(no_figure, |t| with_interval(&t.mean)),
        ]);
    }
    table
}

fn leads(judged: &Judged, outcomes: &Outcomes, id: &str, title: &str) -> Table {
    let columns = [
        "IMAS under",
        "against, for all programs",
        "common programs",
        "CPU: fastest picks ahead by %",
        "memory: leanest picks ahead by %",
        "both: balanced picks ahead by %",
    ];
    let mut table = Table::new(id, title, &columns);
    type Of = fn(Aim) -> Strategy;
    let policies: [(&str, Of); 2] = [("adaptive", Strategy::Adaptive), ("paper", Strategy::Paper)];
    for (policy, of) in policies {
        for candidate in &judged.source.candidates {
            let other = Strategy::Always(candidate.clone());
            let lead = |(aim, metric)| ahead(outcomes, (&of(aim), &other), metric, judged.by);
            let found = Aim::ALL.into_iter().zip(Metric::OURS).map(lead).collect::<Vec<_>>();
            let Some((programs, _)) = found[0] else { continue };
            let cells = found.iter().map(|f| f.map_or_else(no_figure, |(_, i)| with_interval(&i)));
            let head = [policy.to_owned(), against(candidate), programs.to_string()];
            table.push(head.into_iter().chain(cells).collect());
        }
    }
    table
}

/// Name of a candidate, with the setting's name where it is also known as one.
fn against(candidate: &str) -> String {
    match candidate {
        "glibc:arena1" => "glibc:arena1 (MALLOC_ARENA_MAX=1)".to_owned(),
        "glibc:arena2" => "glibc:arena2 (MALLOC_ARENA_MAX=2)".to_owned(),
        other => other.to_owned(),
    }
}

fn programs(judged: &Judged) -> Table {
    let columns = [
        "program",
        "measured rounds",
        "counted rounds",
        "noise: CPU %",
        "noise: CPU ratio %",
        "noise: memory %",
        "adaptive fastest: CPU gain %",
        "adaptive leanest: memory gain %",
        "adaptive balanced: CPU gain %",
        "adaptive balanced: memory gain %",
        "balanced picks",
    ];
    let mut table = Table::new("programs", "Program by program", &columns);
    for (i, program) in judged.source.programs.iter().enumerate() {
        let gain = |aim, metric: Metric| {
            let outcome = judged.outcomes.get(&Strategy::Adaptive(aim)).and_then(|o| o.get(&i));
            let value = outcome.and_then(|o| metric.of(o));
            value.map_or_else(no_figure, |value| signed(metric.gain(value)))
        };
        let noise = judged.noises[i];
        let percent = |x: Option<f64>| x.map_or_else(no_figure, |x| format!("{:.1}", x * 100.0));
        let balanced = judged.outcomes.get(&Strategy::Adaptive(Aim::Balanced)).and_then(|o| o.get(&i));
        table.push(vec![
            program.name.clone(),
            program.rounds.len().to_string(),
            program.counted.len().to_string(),
            percent(noise.map(|n| n.cpu)),
            percent(noise.map(|n| n.paired_cpu)),
            percent(noise.map(|n| n.memory)),
            gain(Aim::Fastest, Metric::Cpu),
            gain(Aim::Leanest, Metric::Memory),
            gain(Aim::Balanced, Metric::Cpu),
            gain(Aim::Balanced, Metric::Memory),
            balanced.map_or_else(no_figure, |o| best_worst::shares(&o.picks)),
        ]);
    }
    table
}

/// Tables 2 and 3 of the paper, with our figures.
fn measurements(judged: &Judged) -> Table {
    let columns = [
        "program",
        "candidate",
        "ns per operation",
        "fragmentation %",
        "heap MiB",
        "picks (paper, on all counted runs)",
        "CPU s",
        "CPU vs system %",
        "memory MiB",
        "memory vs system %",
        "note",
    ];
    let title = "Every program under every candidate (tables 2 and 3 of the paper, and our figures)";
    let mut table = Table::new("measurements", title, &columns);
    for program in &judged.source.programs {
        let counted: Vec<usize> = (0..program.counted.len()).collect();
        let picks = analyse(program, &counted, |_| true);
        for candidate in &judged.source.candidates {
            table.push(measurement(judged, program, candidate, picks.as_ref()));
        }
    }
    table
}

fn measurement(
    judged: &Judged,
    program: &SimulatedProgram,
    candidate: &str,
    picks: Option<&imas_core::paper::Picks>,
) -> Vec<String> {
    let middle = |kind, get: fn(&RawRun) -> Option<f64>, decimals: usize| {
        let values: Vec<f64> = judged.source.runs(&program.name, candidate, kind).filter_map(get).collect();
        median(&values).map_or_else(no_figure, |x| format!("{x:.decimals$}"))
    };
    let index = program.candidates.iter().position(|name| name == candidate);
    let rounds: Vec<usize> = (0..program.rounds.len()).collect();
    let point = index.and_then(|i| cost(program, &rounds, i));
    let change = |x: Option<f64>| x.map_or_else(no_figure, |x| format!("{:+.1}", more(x) * 100.0));
    let marks = picks.zip(index).map(|(picks, i)| {
        let all = [("fastest", picks.fastest), ("leanest", picks.leanest), ("balanced", picks.balanced)];
        all.into_iter().filter(|(_, pick)| *pick == i).map(|(word, _)| word).collect::<Vec<_>>().join(", ")
    });
    vec![
        program.name.clone(),
        candidate.to_owned(),
        middle(RunKind::Counted, |r| r.ns_per_op, 1),
        middle(RunKind::Counted, |r| r.frag.map(|f| f * 100.0), 1),
        middle(RunKind::Counted, |r| r.heap_bytes.map(|b| b as f64 / MIB), 2),
        marks.unwrap_or_default(),
        middle(RunKind::Measured, |r| Some(r.user_s + r.system_s), 3),
        change(point.map(|p| p.cpu)),
        middle(RunKind::Measured, |r| Some(r.mean_bytes as f64 / MIB), 2),
        change(point.map(|p| p.memory)),
        judged.source.excluded(program, candidate).unwrap_or_default(),
    ]
}

fn left_out(judged: &Judged) -> Table {
    let title = "Left out of every mean, with the reason";
    let mut table = Table::new("left-out", title, &["program", "candidate", "why"]);
    for one in &judged.source.left_out {
        table.push(vec![one.name.clone(), "all".to_owned(), one.why.clone()]);
    }
    for (name, why) in without_the_papers_figures(judged) {
        table.push(vec![name.to_owned(), "all, in the paper's policy and metric".to_owned(), why]);
    }
    for ((program, candidate), failure) in &judged.source.failures {
        table.push(vec![program.clone(), candidate.clone(), failure.text()]);
    }
    table
}

/// Programs without an outcome for the paper's policy and metric, but with one for others.
fn without_the_papers_figures(judged: &Judged) -> Vec<(&str, String)> {
    let judged_by_it = judged.outcomes.get(&Strategy::Paper(Aim::Balanced));
    let has = |i: &usize| judged_by_it.is_some_and(|o| o.get(i).is_some_and(|o| o.paper.is_some()));
    let all = judged.source.programs.iter().enumerate();
    let without: Vec<_> = all.filter(|(i, _)| !has(i)).map(|(_, program)| program).collect();
    if without.len() == judged.source.programs.len() {
        return vec![];
    }
    let why = |program: &SimulatedProgram| {
        let all = judged.source.data.runs.iter();
        match all.filter(|run| run.kind == RunKind::Counted && run.program == program.name).count() {
            0 => "it was not run counted".to_owned(),
            n => {
                format!("{n} counted runs, of which {} rounds have figures of system", program.counted.len())
            }
        }
    };
    without.into_iter().map(|program| (program.name.as_str(), why(program))).collect()
}

fn no_figure() -> String {
    "-".to_owned()
}
