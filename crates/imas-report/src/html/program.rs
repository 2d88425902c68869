// SPDX-License-Identifier: Apache-2.0
//! The parts of a page that show one program.

use imas_core::bench::CandidateRuns;
use imas_core::run::RawRun;

use super::{DecisionSection, ProgramFindings, ProgramSection, latency, memory};
use crate::chart::{Axis, Chart, CurveLine, Curves, Spacing, Timeline, TimelineMark};
use crate::page::{Block, FoldedPart};
use crate::split;
use imas_cli::table::Table;

const MIB: f64 = 1_048_576.0;

/// A program on the page.
pub(super) struct Program<'a> {
    pub(super) name: &'a str,
    section: &'a ProgramSection,
}

impl<'a> Program<'a> {
    pub(super) fn of(section: &'a ProgramSection) -> Self {
        Self { name: &section.name, section }
    }

    pub(super) fn findings(&self) -> &ProgramFindings {
        &self.section.findings
    }

    /// The balanced pick.
    pub(super) fn pick(&self) -> &str {
        self.findings().pick()
    }

    /// Runs of the candidate that has most.
    pub(super) fn rounds(&self) -> usize {
        self.section.runs.iter().map(|candidate| candidate.runs.len()).max().unwrap_or(0)
    }

    /// The result in one sentence, which names the program.
    pub(super) fn result(&self) -> String {
        format!("{}: {}", self.name, self.findings().sentence)
    }

    /// The table of candidates, and what to beware of.
    pub(super) fn candidates(&self) -> Vec<Block> {
        let warnings = self.findings().warnings.iter().chain(&self.section.remarks).cloned();
        let warnings: Vec<String> = warnings.collect();
        let mut blocks = vec![Block::Table(self.findings().table.clone())];
        if !warnings.is_empty() {
            blocks.push(Block::List(warnings));
        }
        blocks
    }

    /// Runs in order, memory, latencies and decisions; what is not known is left out.
    pub(super) fn details(&self) -> Vec<Block> {
        let series = [
            series("CPU time by run", "seconds", &self.section.runs, RawRun::compared_cpu_s),
            series("Mean resident memory by run", "MiB", &self.section.runs, |run| {
                run.mean_bytes as f64 / MIB
            }),
        ];
        let mut blocks = part("Runs in order", series.into_iter().flatten().collect());
        blocks.extend(part("Memory through a run", memory::charts(&self.section.memory)));
        blocks.extend(splits(self.section));
        blocks.extend(latency::blocks(&self.section.latencies));
        blocks.extend(decisions(&self.section.decisions));
        blocks
    }
}

/// A heading and its charts, if there are any.
fn part(heading: &str, charts: Vec<Chart>) -> Vec<Block> {
    match charts.is_empty() {
        true => vec![],
        false => vec![Block::Heading(heading.to_owned()), Block::Charts(charts)],
    }
}

/// One figure by run; None with fewer than two rounds, or when nothing was measured.
fn series(title: &str, unit: &str, candidates: &[CandidateRuns], get: fn(&RawRun) -> f64) -> Option<Chart> {
    let all = || candidates.iter().flat_map(|candidate| &candidate.runs);
    if candidates.iter().all(|candidate| candidate.runs.len() < 2)
        || all().map(get).fold(0.0, f64::max) <= 0.0
    {
        return None;
    }
    // Sessions that were appended to one file all begin with the first round.
    let is_rising = |candidate: &CandidateRuns| candidate.runs.is_sorted_by(|a, b| a.round < b.round);
    let has_rounds = candidates.iter().all(is_rising);
    let line = |candidate: &CandidateRuns| {
        let numbered = (1u32..).zip(&candidate.runs);
        let place = |number: u32, run: &RawRun| if has_rounds { run.round + 1 } else { number };
        let points = numbered.map(|(number, run)| (f64::from(place(number, run)), get(run)));
        CurveLine::new(&candidate.name, points.collect())
    };
    Curves {
        title: format!("{title}, {unit}"),
        x: Axis::new("run").spaced(Spacing::Whole),
        y: Axis::new(unit),
        lines: candidates.iter().map(line).collect(),
        ..Curves::default()
    }
    .draw()
}

fn splits(section: &ProgramSection) -> Vec<Block> {
    const NOTE: &str = "Mean over the time of the counted runs, per cent of the resident memory. What the allocator \
                        reports counts up to what is resident. A dash: the allocator reports nothing; what it keeps \
                        free is then part of the last column, as is memory that was mapped without malloc.";
    if section.splits.is_empty() {
        return vec![];
    }
    let mut table = Table::new("", "Where the resident memory was", &split::HEAD);
    for (name, split) in &section.splits {
        table.push(split::cells(name, split));
    }
    vec![Block::Heading(table.title.clone()), Block::Table(table), Block::Note(NOTE.to_owned())]
}

fn decisions(decisions: &[DecisionSection]) -> Vec<Block> {
    let mark = |decision: &DecisionSection| {
        let kind = if decision.trial { "trial of" } else { "in use:" };
        let text = format!("{}: {kind} {}. {}", decision.at, decision.candidate, decision.because);
        TimelineMark { name: decision.candidate.clone(), hollow: decision.trial, text }
    };
    let chart = Timeline {
        title: "Decisions in order of time".to_owned(),
        caption: "Hollow: a trial. Filled: what the program was started on.".to_owned(),
        marks: decisions.iter().map(mark).collect(),
    };
    let Some(chart) = chart.draw() else { return vec![] };
    let mut table = Table::new("", "", &["when", "candidate", "how", "why"]);
    for decision in decisions.iter().rev() {
        let kind = if decision.trial { "trial" } else { "in use" };
        table.push(vec![
            decision.at.clone(),
            decision.candidate.clone(),
            kind.to_owned(),
            decision.because.clone(),
        ]);
    }
    let title = format!("All {} decisions, newest first", decisions.len());
    let all = FoldedPart { title, blocks: vec![Block::Table(table)], ..FoldedPart::default() };
    vec![Block::Heading("Decisions".to_owned()), Block::Charts(vec![chart]), Block::Folded(all)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_whole_numbers_from_one_on() {
        let run = |round| RawRun { round, user_s: 1.0, ..RawRun::default() };
        let runs = [CandidateRuns { name: "system".to_owned(), runs: (0..3).map(run).collect() }];
        let svg = series("CPU time", "seconds", &runs, RawRun::compared_cpu_s).unwrap().document();
        let has = |label: &str| svg.contains(&format!("text-anchor=\"middle\">{label}</text>"));
        assert!(["1", "2", "3"].into_iter().all(has) && !has("0") && !has("1.5"), "{svg}");
        let twice = (0..3).chain(0..3).map(run).collect();
        let appended = [CandidateRuns { name: "system".to_owned(), runs: twice }];
        let svg = series("CPU time", "seconds", &appended, RawRun::compared_cpu_s).unwrap().document();
        assert!(svg.contains("text-anchor=\"middle\">6</text>"), "{svg}");
        let one = [CandidateRuns { name: "system".to_owned(), runs: vec![run(0)] }];
        assert!(series("CPU time", "seconds", &one, RawRun::compared_cpu_s).is_none());
    }
}
