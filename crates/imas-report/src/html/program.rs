// SPDX-License-Identifier: Apache-2.0
//! The parts of a page that show one program; findings about it, as the page shows them; and memory through a counted run:
//! what each candidate held from second to second, resident and in address space. The page computes no figure and makes no
//! pick: both are from the result that `imas bench` prints, or from the policy that decides.

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::bench::{CandidateRuns, Comparison, MedianRun};
use imas_core::judgement::{BenchEnding, Goal};
use imas_core::run::{MemorySnapshot, RawRun};
use imas_core::stats::Interval;
use serde::Serialize;

use super::{DecisionSection, MemorySection, ProgramSection, latency_blocks};
use crate::bench::{BenchReport, CandidateReport};
use crate::chart::{Axis, Chart, CurveLine, Curves, Plane, PlanePoint, Spacing, Timeline, TimelineMark};
use crate::measure;
use crate::page::{Block, FoldedPart};

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
        blocks.extend(part("Memory through a run", memory_charts(&self.section.memory)));
        blocks.extend(splits(self.section));
        blocks.extend(latency_blocks(&self.section.latencies));
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
    let mut table = Table::new("", "Where the resident memory was", &measure::SPLIT_HEAD);
    for (name, split) in &section.splits {
        table.push(measure::split_cells(name, split));
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

const HEADS: [&str; 9] =
    ["candidate", "picks", "runs", "CPU", "CPU change", "memory MiB", "memory change", "peak MiB", "verdict"];

/// The result for one program.
#[derive(Debug, Default)]
pub struct ProgramFindings {
    /// The result in one sentence.
    pub sentence: String,
    /// The result in a few words.
    pub short: String,
    /// Names of the fastest, the leanest and the balanced pick.
    pub picks: [String; 3],
    /// The candidates.
    pub table: Table,
    /// The candidates in one picture.
    pub picture: Option<Chart>,
    /// Warnings about the figures.
    pub warnings: Vec<String>,
}

/// The words for the picks, in the order of [`ProgramFindings::picks`].
const PICKS: [&str; 3] = ["fastest", "leanest", "balanced"];

/// One candidate in table and picture.
#[derive(Debug, Default)]
pub struct CandidateFindings {
    /// Name of the candidate.
    pub name: String,
    /// Runs, or rounds of trials, that its figures come from.
    pub runs: usize,
    /// Medians of the candidate's runs.
    pub median: Option<MedianRun>,
    /// Ratio of CPU time to `system`.
    pub cpu: Option<Interval>,
    /// Ratio of memory to `system`.
    pub memory: Option<Interval>,
    /// Whether the candidate can be picked.
    pub is_eligible: bool,
    /// The verdict in words.
    pub verdict: String,
}

impl CandidateFindings {
    fn of<Host: Serialize>(bench: &BenchReport<Host>, report: &CandidateReport) -> Self {
        Self {
            name: report.name.clone(),
            runs: report.runs.len(),
            median: report.median.clone(),
            cpu: report.ratio.cpu,
            memory: report.ratio.memory,
            is_eligible: report.ineligible.is_none(),
            verdict: bench.words(report),
        }
    }

    /// The change that a ratio means; a dash for `system` itself and where nothing is known.
    fn change(&self, ratio: Option<Interval>) -> String {
        let known = ratio.filter(|_| self.name != SYSTEM);
        known.map_or_else(dash, |ratio| format::change(&ratio))
    }

    fn cells(&self, picks: &[String; 3]) -> Vec<String> {
        let median = self.median.as_ref();
        let mib = |get: fn(&MedianRun) -> u64| median.map_or_else(dash, |run| format::mib(get(run) as f64));
        let marks = PICKS.iter().zip(picks).filter(|(_, name)| **name == self.name).map(|(word, _)| *word);
        vec![
            self.name.clone(),
            marks.collect::<Vec<_>>().join(", "),
            self.runs.to_string(),
            median.map_or_else(dash, |run| format::seconds(run.cpu_s)),
            self.change(self.cpu),
            mib(|run| run.mean_bytes),
            self.change(self.memory),
            mib(|run| run.peak_bytes),
            self.verdict.clone(),
        ]
    }

    fn point(&self) -> Option<PlanePoint> {
        let (cpu, memory) = (self.cpu?, self.memory?);
        let words = |ratio| format::change(&ratio);
        let text = format!("{}: CPU {}, memory {}", self.name, words(cpu), words(memory));
        Some(PlanePoint { name: self.name.clone(), cpu, memory, text })
    }
}

impl ProgramFindings {
    /// The findings of a benchmark's result: the same sentence, picks and figures.
    #[must_use]
    pub fn of_bench<Host: Serialize>(report: &BenchReport<Host>) -> Self {
        let goals = [Goal::Cpu, Goal::Memory, Goal::Balanced];
        let picks = goals.map(|goal| report.judgement.pick(goal).unwrap_or(SYSTEM).to_owned());
        let candidates: Vec<_> =
            report.candidates.iter().map(|one| CandidateFindings::of(report, one)).collect();
        let is_known = report.judgement.ending != BenchEnding::NothingToCompare;
        Self {
            sentence: report.sentence(),
            warnings: report.warnings.iter().map(imas_core::bench::Warning::what).collect(),
            ..Self::of_candidates(picks, &candidates, is_known)
        }
    }

    /// The findings of runs and their comparison: the result as `imas bench` printed it when it made those
    /// runs.
    #[must_use]
    pub fn of_runs(runs: &[CandidateRuns], comparison: Comparison) -> Self {
        Self::of_bench(&BenchReport::of_runs(vec![], runs.to_vec(), comparison))
    }

    /// Table, picture and short words of candidates and picks; the sentence is the caller's.
    #[must_use]
    pub fn of_candidates(picks: [String; 3], candidates: &[CandidateFindings], is_known: bool) -> Self {
        let mut table = Table::new("", "Changes against system, with 95 % intervals", &HEADS);
        candidates.iter().for_each(|one| table.push(one.cells(&picks)));
        Self {
            short: short(&picks[2], candidates, is_known),
            picture: plane(candidates),
            table,
            picks,
            ..Self::default()
        }
    }

    /// The balanced pick.
    pub(super) fn pick(&self) -> &str {
        &self.picks[2]
    }
}

/// The balanced pick and what it changes.
fn short(pick: &str, candidates: &[CandidateFindings], is_known: bool) -> String {
    match candidates.iter().find(|one| one.name == pick && pick != SYSTEM) {
        Some(one) => format!("{pick}: CPU {}, memory {}", one.change(one.cpu), one.change(one.memory)),
        None if is_known => "system, no other is better beyond the noise".to_owned(),
        None => "nothing could be compared".to_owned(),
    }
}

/// The candidates in the plane of CPU time and memory.
fn plane(candidates: &[CandidateFindings]) -> Option<Chart> {
    let eligible = candidates.iter().filter(|one| one.is_eligible);
    Plane {
        title: "Candidates by CPU time and memory".to_owned(),
        caption: "Ratio to system, with 95 % intervals; logarithmic axes. A hollow mark: another candidate is better \
                  on both."
            .to_owned(),
        points: eligible.filter_map(CandidateFindings::point).collect(),
    }
    .draw()
}

fn dash() -> String {
    "-".to_owned()
}

const KIB_OF_MIB: f64 = 1024.0;
/// An allocator that reserves address space at its start would flatten all others. One that exceeds
/// the least by more than this factor is named in the caption and not drawn.
const FAR_OUT: u64 = 16;

/// Resident memory and heap; those that have anything to draw.
fn memory_charts(memories: &[MemorySection]) -> Vec<Chart> {
    // A line needs two points.
    let drawn: Vec<&MemorySection> = memories.iter().filter(|memory| memory.looks.len() > 1).collect();
    let looks = drawn.iter().find(|memory| memory.candidate == SYSTEM).map(|memory| &memory.looks[..]);
    // It is 0 throughout where forked processes share their blocks: nothing is known then.
    let live = looks.filter(|looks| looks.iter().any(|look| look.live_kib > 0));
    let resident =
        memory_chart("Resident memory through one counted run", &drawn, &[], live, |look| look.resident_kib);
    let least = drawn.iter().map(|memory| peak(memory, heap)).min().unwrap_or(0);
    let (near, far): (Vec<&MemorySection>, Vec<&MemorySection>) =
        drawn.iter().partition(|memory| peak(memory, heap) <= least.saturating_mul(FAR_OUT));
    let space = memory_chart("Heap in address space", &near, &far, live, heap);
    [resident, space].into_iter().flatten().collect()
}

fn heap(look: &MemorySnapshot) -> u64 {
    look.heap_kib
}

fn peak(memory: &MemorySection, get: fn(&MemorySnapshot) -> u64) -> u64 {
    memory.looks.iter().map(get).max().unwrap_or(0)
}

fn memory_chart(
    title: &str,
    memories: &[&MemorySection],
    far: &[&MemorySection],
    live: Option<&[MemorySnapshot]>,
    get: fn(&MemorySnapshot) -> u64,
) -> Option<Chart> {
    memories.iter().map(|memory| peak(memory, get)).max().filter(|&top| top > 0)?;
    let points = |looks: &[MemorySnapshot], get: fn(&MemorySnapshot) -> u64| -> Vec<(f64, f64)> {
        looks.iter().map(|look| (look.ms as f64 / 1000.0, get(look) as f64 / KIB_OF_MIB)).collect()
    };
    let line = |memory: &&MemorySection| CurveLine::new(&memory.candidate, points(&memory.looks, get));
    Curves {
        title: format!("{title}, MiB"),
        caption: memory_caption(live.is_some(), far),
        x: Axis::new("seconds since the start"),
        y: Axis::new("MiB").from_zero(),
        lines: memories.iter().map(line).collect(),
        floor: live.map(|looks| CurveLine::new("live blocks", points(looks, |look| look.live_kib))),
        ..Curves::default()
    }
    .draw()
}

fn memory_caption(has_live: bool, far: &[&MemorySection]) -> String {
    let mut text = if has_live { "Dashed: bytes in live blocks under system." } else { "" }.to_owned();
    if !far.is_empty() {
        let one = |memory: &&MemorySection| {
            format!("{} ({} MiB)", memory.candidate, format::mib((peak(memory, heap) << 10) as f64))
        };
        let far: Vec<String> = far.iter().map(one).collect();
        text += &format!(" Not drawn, because they reserve far more: {}.", far.join(", "));
    }
    text.trim_start().to_owned()
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

    fn memory(candidate: &str, heap_kib: u64) -> MemorySection {
        let look = |ms| MemorySnapshot { ms, resident_kib: 1000 + ms, heap_kib, live_kib: 500 };
        MemorySection { candidate: candidate.to_owned(), looks: vec![look(0), look(1500)] }
    }

    #[test]
    fn one_that_reserves_far_more_is_named_and_not_drawn() {
        let drawn = memory_charts(&[memory("system", 2000), memory("lean", 1500), memory("vast", 1 << 28)]);
        let has =
            |at: usize, name: &str| drawn[at].document().contains(&format!("data-candidate=\"{name}\""));
        assert!(has(0, "vast") && has(0, "lean") && has(1, "system") && !has(1, "vast"));
        assert!(drawn[1].caption().contains("vast (262144.0 MiB)"), "{}", drawn[1].caption());
        assert!(drawn.iter().all(|chart| chart.document().contains("class=\"live\"")));
    }

    #[test]
    fn a_single_look_is_no_curve() {
        let of =
            |looks: usize| MemorySection { looks: vec![MemorySnapshot::default(); looks], ..memory("a", 1) };
        assert!(memory_charts(&[of(1)]).is_empty());
        assert!(memory_charts(&[of(2)]).is_empty(), "nothing was held");
    }
}
