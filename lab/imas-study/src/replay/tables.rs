// SPDX-License-Identifier: Apache-2.0
//! The tables of the study, over all programs and over the classes that are judged by themselves.

use std::collections::{BTreeMap, BTreeSet};

use imas_cli::table::Table;
use imas_core::stats::more;
use imas_replay::reliability::{PredictedFigure, ProgramClass, ReliabilityEntry};

use super::agreement::{Agreement, coverage, pairs};
use super::choice::{ChoiceObjective, ChoiceSummary};
use super::judged::{JudgedCandidate, JudgedProgram};
use super::reason::FailureReason;
use super::{ReplayJudgement, figure_name};

/// Worst predictions that are listed, for each figure.
const WORST: usize = 15;

pub(super) fn tables(judgement: &ReplayJudgement) -> Vec<Table> {
    vec![
        choices(judgement),
        agreement(judgement),
        candidates(judgement),
        classes(judgement),
        reasons(judgement),
        worst(judgement),
        reliability(judgement),
        left_out(judgement),
    ]
}

fn per_cent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn signed(log: f64) -> String {
    format!("{:+.1} %", more(log) * 100.0)
}

fn correlation(agreement: &Agreement) -> String {
    agreement.correlation.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn of(part: usize, whole: usize) -> String {
    format!("{part} of {whole}")
}

fn choices(judgement: &ReplayJudgement) -> Table {
    let columns = [
        "objective",
        "programs",
        "first choice within 3 % of the live best",
        "best of system and the first two within 3 %",
        "mean loss of system",
        "of the first choice",
        "of the best of system and the first two",
    ];
    let mut table =
        Table::new("choices", "What a choice by prediction costs against the live best", &columns);
    for objective in ChoiceObjective::ALL {
        let summary = ChoiceSummary::of(judgement.losses(objective));
        table.push(vec![
            objective.name().to_owned(),
            summary.programs.to_string(),
            of(summary.first_within, summary.programs),
            of(summary.two_within, summary.programs),
            per_cent(summary.system),
            per_cent(summary.first),
            per_cent(summary.two),
        ]);
    }
    table
}

fn agreement(judgement: &ReplayJudgement) -> Table {
    let columns = [
        "figure",
        "predictions",
        "correlation",
        "live over predicted, mean",
        "standard deviation",
        "within a tenth",
        "in the interval for 80 %, made from the other programs",
    ];
    let title = "Predicted and live change against system (correlation and deviation of logarithms)";
    let mut table = Table::new("agreement", title, &columns);
    for figure in PredictedFigure::ALL {
        let Some(found) = Agreement::of(&pairs(&judgement.programs, figure, |_| true)) else { continue };
        let covered = coverage(&judgement.programs, &judgement.others, figure);
        table.push(vec![
            figure_name(figure).to_owned(),
            found.pairs.to_string(),
            correlation(&found),
            signed(found.mean),
            per_cent(found.deviation),
            per_cent(found.within_tenth),
            covered.map_or_else(|| "-".to_owned(), per_cent),
        ]);
    }
    table
}

fn candidates(judgement: &ReplayJudgement) -> Table {
    let columns = [
        "candidate",
        "programs",
        "CPU correlation",
        "CPU mean",
        "CPU deviation",
        "memory correlation",
        "memory mean",
        "memory deviation",
        "memory within a tenth",
    ];
    let mut table =
        Table::new("candidates", "Predictions by candidate (mean: live over predicted)", &columns);
    let all = judgement.programs.iter().flat_map(|program| &program.candidates);
    let names: BTreeSet<&str> = all.map(|one| one.name.as_str()).collect();
    for name in names {
        let of = |figure| Agreement::of(&pairs(&judgement.programs, figure, |one| one.name == name));
        if let (Some(cpu), Some(memory)) = (of(PredictedFigure::Cpu), of(PredictedFigure::Memory)) {
            table.push(vec![
                name.to_owned(),
                cpu.pairs.to_string(),
                correlation(&cpu),
                signed(cpu.mean),
                per_cent(cpu.deviation),
                correlation(&memory),
                signed(memory.mean),
                per_cent(memory.deviation),
                per_cent(memory.within_tenth),
            ]);
        }
    }
    table
}

fn classes(judgement: &ReplayJudgement) -> Table {
    let columns = [
        "by",
        "class",
        "programs",
        "CPU correlation",
        "CPU deviation",
        "memory correlation",
        "memory deviation",
        "best of system and the first two within 3 %: CPU",
        "memory",
        "both",
        "mean loss (both): system",
        "first choice",
        "first two",
    ];
    let mut table = Table::new("classes", "By class of program", &columns);
    for by in ClassedBy::ALL {
        for (class, places) in by.classes(&judgement.programs) {
            table.push(class_row(judgement, by, class, &places));
        }
    }
    table
}

fn class_row(judgement: &ReplayJudgement, by: ClassedBy, class: String, places: &[usize]) -> Vec<String> {
    let programs = || places.iter().map(|at| &judgement.programs[*at]);
    let agree = |figure| Agreement::of(&pairs(programs(), figure, |_| true));
    let summary = |objective| {
        let losses = judgement.losses(objective);
        ChoiceSummary::of(&places.iter().map(|at| losses[*at]).collect::<Vec<_>>())
    };
    let mut row = vec![by.name().to_owned(), class, places.len().to_string()];
    for figure in [PredictedFigure::Cpu, PredictedFigure::Memory] {
        let found = agree(figure);
        row.push(found.as_ref().map_or_else(String::new, correlation));
        row.push(found.map_or_else(String::new, |found| per_cent(found.deviation)));
    }
    row.extend(ChoiceObjective::ALL.map(|objective| {
        let summary = summary(objective);
        of(summary.two_within, summary.programs)
    }));
    let both = summary(ChoiceObjective::Both);
    row.extend([both.system, both.first, both.two].map(per_cent));
    row
}

/// A prediction with its figure.
type Miss<'a> = (&'a JudgedProgram, &'a JudgedCandidate, PredictedFigure, f64);

fn misses(judgement: &ReplayJudgement, figure: PredictedFigure) -> Vec<Miss<'_>> {
    let all = judgement
        .programs
        .iter()
        .flat_map(|program| program.candidates.iter().map(move |one| (program, one)));
    let mut misses: Vec<Miss<'_>> =
        all.filter_map(|(program, one)| Some((program, one, figure, one.off(figure)?))).collect();
    misses.sort_by(|a, b| b.3.abs().total_cmp(&a.3.abs()));
    misses
}

/// Predictions that are off by more than a tenth, by reason.
fn reasons(judgement: &ReplayJudgement) -> Table {
    let columns =
        ["figure", "reason", "predictions", "off by more than a tenth", "mean of those, live over predicted"];
    let mut table = Table::new("reasons", "Where predictions fail, and why", &columns);
    for figure in [PredictedFigure::Cpu, PredictedFigure::Memory] {
        let misses = misses(judgement, figure);
        for reason in FailureReason::ALL {
            let of_reason =
                || misses.iter().filter(|miss| FailureReason::of(miss.0, miss.1, figure) == reason);
            let far: Vec<f64> =
                of_reason().map(|miss| miss.3).filter(|off| off.abs() > 1.1_f64.ln()).collect();
            let all = of_reason().count();
            if all > 0 {
                let mean = crate::band::mean(far.iter().copied());
                table.push(vec![
                    figure_name(figure).to_owned(),
                    reason.text().to_owned(),
                    all.to_string(),
                    far.len().to_string(),
                    if far.is_empty() { "-".to_owned() } else { signed(mean) },
                ]);
            }
        }
    }
    table
}

fn worst(judgement: &ReplayJudgement) -> Table {
    let columns =
        ["figure", "program", "candidate", "predicted", "live", "live over predicted", "likely reason"];
    let mut table = Table::new("worst", "The predictions that were furthest off", &columns);
    for figure in [PredictedFigure::Cpu, PredictedFigure::Memory] {
        for (program, one, figure, off) in misses(judgement, figure).into_iter().take(WORST) {
            let Some((predicted, live)) = one.pair(figure) else { continue };
            table.push(vec![
                figure_name(figure).to_owned(),
                program.name.clone(),
                one.name.clone(),
                signed(predicted),
                signed(live),
                signed(off),
                FailureReason::of(program, one, figure).text().to_owned(),
            ]);
        }
    }
    table
}

fn reliability(judgement: &ReplayJudgement) -> Table {
    let columns =
        ["figure", "candidate", "class", "predictions", "live over predicted, mean", "standard deviation"];
    let mut table = Table::new(
        "reliability",
        "Reliability by candidate and class (the table of --reliability)",
        &columns,
    );
    for entry in &judgement.reliability().entries {
        let ReliabilityEntry { figure, candidate, class, count, error } = entry;
        table.push(vec![
            figure_name(*figure).to_owned(),
            candidate.clone().unwrap_or_else(|| "any".to_owned()),
            class.map_or("any", ProgramClass::name).to_owned(),
            count.to_string(),
            signed(error.mean),
            per_cent(error.deviation),
        ]);
    }
    table
}

fn left_out(judgement: &ReplayJudgement) -> Table {
    let mut table = Table::new("left-out", "What is left out, and why", &["program", "candidate", "why"]);
    for (program, why) in judgement.predictions.dropped.reasons() {
        table.push(vec![program.to_owned(), "all".to_owned(), why.to_owned()]);
    }
    for line in &judgement.predictions.lines {
        if let Some(why) = &line.failure {
            table.push(vec![line.program.clone(), line.candidate.clone(), why.clone()]);
        }
    }
    for program in judgement.without_live() {
        table.push(vec![
            program.to_owned(),
            "all".to_owned(),
            "no live runs that can be compared".to_owned(),
        ]);
    }
    table
}

/// Property that programs are classed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassedBy {
    AllocatorShare,
    Memory,
    Threads,
    Category,
}

impl ClassedBy {
    pub(crate) const ALL: [Self; 4] = [Self::AllocatorShare, Self::Memory, Self::Threads, Self::Category];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllocatorShare => "allocator's part of the CPU time",
            Self::Memory => "peak memory",
            Self::Threads => "threads",
            Self::Category => "category",
        }
    }

    fn of(self, program: &JudgedProgram) -> String {
        match self {
            Self::AllocatorShare => PredictedFigure::Cpu.class(&program.facts).name().to_owned(),
            Self::Memory => PredictedFigure::Memory.class(&program.facts).name().to_owned(),
            Self::Threads if program.facts.threads > 1 => "several".to_owned(),
            Self::Threads => "one".to_owned(),
            Self::Category => program.category.clone(),
        }
    }

    /// Places of the programs of each class, in the order of the classes.
    pub(crate) fn classes(self, programs: &[JudgedProgram]) -> Vec<(String, Vec<usize>)> {
        let mut classes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, program) in programs.iter().enumerate() {
            classes.entry(self.of(program)).or_default().push(at);
        }
        let names = |figure: PredictedFigure| figure.classes().map(ProgramClass::name).to_vec();
        let order = match self {
            Self::AllocatorShare => names(PredictedFigure::Cpu),
            Self::Memory => names(PredictedFigure::Memory),
            Self::Threads => vec!["one", "several"],
            Self::Category => vec![],
        };
        let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
        let mut classes: Vec<_> = classes.into_iter().collect();
        classes.sort_by_key(|(name, _)| place(name));
        classes
    }
}
