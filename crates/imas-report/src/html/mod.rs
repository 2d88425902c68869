// SPDX-License-Identifier: Apache-2.0
//! The page of `imas report --html`: candidates by CPU time and memory, runs and decisions over time, memory
//! within a run, latencies; for one program or many.
//!
//! The caller fills in [`ReportPage`]. The charts are from [`crate::chart`], the page is a
//! [`crate::page::ResultPage`].
//!
//! Last, how long calls take: percentiles from histograms by log2 of clock ticks, as a table and one chart. Within
//! a class calls are taken to lie evenly on the logarithmic scale, so that a percentile is right to the class
//! and a guess within it.

mod program;

use imas_cli::format::counted;
use imas_cli::table::Table;
use imas_core::bench::CandidateRuns;
use imas_core::run::MemorySnapshot;
use imas_core::split::Split;
use imas_core::stats::Interval;
use program::Program;

use crate::chart::{Axis, BarRow, Bars, Chart, Distribution, DistributionRow, Spacing};
use crate::page::{Block, FoldedPart, PageSection, ResultPage};

pub use program::{CandidateFindings, ProgramFindings};

/// Programs up to which every one is shown unfolded.
const UNFOLDED: usize = 2;

/// Contents of the page.
#[derive(Debug, Default)]
pub struct ReportPage {
    /// Heading.
    pub title: String,
    /// Where the figures come from, machine, date: the method, at the end of the page.
    pub notes: Vec<String>,
    /// The programs in the order shown.
    pub programs: Vec<ProgramSection>,
}

/// Facts about one program.
#[derive(Debug, Default)]
pub struct ProgramSection {
    /// Name of the program.
    pub name: String,
    /// The result.
    pub findings: ProgramFindings,
    /// Runs by candidate in the catalogue's order, `system` among them. Runs of one round are compared with
    /// each other.
    pub runs: Vec<CandidateRuns>,
    /// Where the resident memory was, by candidate.
    pub splits: Vec<(String, Split)>,
    /// Decisions, oldest first.
    pub decisions: Vec<DecisionSection>,
    /// Latencies of the calls.
    pub latencies: Vec<LatencySection>,
    /// Memory through one run of each candidate.
    pub memory: Vec<MemorySection>,
    /// Remarks on what was not counted, and others.
    pub remarks: Vec<String>,
}

/// One past decision.
#[derive(Debug, Default)]
pub struct DecisionSection {
    /// When the decision was made, in words.
    pub at: String,
    /// Name of the candidate.
    pub candidate: String,
    /// Whether the decision was a trial.
    pub trial: bool,
    /// Why the decision was made, a sentence.
    pub because: String,
}

/// How long the calls of one class took under one candidate.
#[derive(Debug, Default)]
pub struct LatencySection {
    /// `malloc`, `realloc`, `memalign` or `free`.
    pub class: &'static str,
    /// Name of the candidate.
    pub candidate: String,
    /// Calls by log2 of clock ticks.
    pub histogram_ticks: Vec<u64>,
    /// Nanoseconds of one tick; None where it is not known.
    pub ns_per_tick: Option<f64>,
}

/// Memory of a process tree through one run.
#[derive(Debug, Default)]
pub struct MemorySection {
    /// Name of the candidate.
    pub candidate: String,
    /// Looks at memory in order of time.
    pub looks: Vec<MemorySnapshot>,
}

/// The page of one program with its own title and sections: picture, candidates, details.
#[must_use]
pub fn program_page(section: &ProgramSection) -> ResultPage {
    ResultPage { title: section.name.clone(), ..of_one(&Program::of(section)) }
}

/// The page.
#[must_use]
pub fn render(report: &ReportPage) -> String {
    let programs: Vec<Program<'_>> = report.programs.iter().map(Program::of).collect();
    let page = match programs.as_slice() {
        [] => ResultPage { result: "There is no program to show.".to_owned(), ..ResultPage::default() },
        [program] => of_one(program),
        programs => of_many(programs),
    };
    let notes = report.notes.iter().cloned().map(Block::Paragraph).collect();
    let method = PageSection::new("method", "Method", notes);
    let sections = page.sections.into_iter().chain(Some(method).filter(|method| !method.blocks.is_empty()));
    ResultPage { title: report.title.clone(), sections: sections.collect(), ..page }.render()
}

/// The page of one program. The plane is the picture, so it is not shown again.
fn of_one(program: &Program<'_>) -> ResultPage {
    ResultPage {
        result: program.result(),
        picture: program.findings().picture.clone(),
        sections: vec![
            PageSection::new("candidates", "Candidates", program.candidates()),
            PageSection::new("details", "Runs, memory and latency", program.details()),
        ],
        is_group: true,
        ..ResultPage::default()
    }
}

fn of_many(programs: &[Program<'_>]) -> ResultPage {
    let parts = programs.iter().zip(1u32..).map(|(program, number)| part(program, number, programs.len()));
    ResultPage {
        result: result_of_many(programs),
        picture: picks(programs),
        sections: vec![
            PageSection::new("programs", "All programs", vec![overview(programs)]),
            PageSection::new("details", "Program by program", parts.collect()),
        ],
        ..ResultPage::default()
    }
}

/// A program among others: its plane, its table and the rest.
fn part(program: &Program<'_>, number: u32, all: usize) -> Block {
    let mut blocks = vec![Block::Charts(program.findings().picture.clone().into_iter().collect())];
    blocks.extend(program.candidates());
    blocks.extend(program.details());
    let blocks = vec![Block::Group(blocks)];
    let (id, title, note) = (format!("p{number}"), program.name.to_owned(), program.findings().short.clone());
    Block::Folded(FoldedPart { id, title, note, blocks, open: all <= UNFOLDED })
}

fn result_of_many(programs: &[Program<'_>]) -> String {
    let gain = programs.iter().filter(|program| program.pick() != imas_core::SYSTEM).count();
    let (favourite, count) = counted_picks(programs)
        .into_iter()
        .filter(|(name, _)| *name != imas_core::SYSTEM)
        .max_by_key(|(_, count)| *count)
        .unwrap_or((imas_core::SYSTEM, 0));
    match gain {
        0 => format!(
            "For none of the {} another allocator than system is better beyond the noise.",
            counted(programs.len(), "program")
        ),
        _ => format!(
            "For {gain} of {} another allocator is better than system beyond the noise; most often it is \
             {favourite} ({}).",
            counted(programs.len(), "program"),
            counted(count, "program")
        ),
    }
}

/// How many programs each candidate is the balanced pick of, most first.
fn counted_picks<'a>(programs: &'a [Program<'_>]) -> Vec<(&'a str, usize)> {
    let mut counts: Vec<(&str, usize)> = vec![];
    for program in programs {
        match counts.iter_mut().find(|(name, _)| *name == program.pick()) {
            Some((_, count)) => *count += 1,
            None => counts.push((program.pick(), 1)),
        }
    }
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts
}

fn picks(programs: &[Program<'_>]) -> Option<Chart> {
    let row = |(name, count): (&str, usize)| {
        let count = count as f64;
        BarRow { name: name.to_owned(), bars: vec![Interval { lo: count, mid: count, hi: count }] }
    };
    Bars {
        title: "Balanced picks, number of programs".to_owned(),
        caption: "Of how many programs each candidate is the best compromise between CPU time and memory."
            .to_owned(),
        series: vec!["balanced".to_owned()],
        rows: counted_picks(programs).into_iter().map(row).collect(),
        ..Bars::default()
    }
    .draw()
}

/// Every program as a row, which leads to its part.
fn overview(programs: &[Program<'_>]) -> Block {
    let heads = ["program", "runs each", "fastest", "leanest", "balanced, and what it changes"];
    let mut table =
        Table::new("overview", "Programs and what suits them; a click on a name opens it", &heads);
    for program in programs {
        let findings = program.findings();
        let [fastest, leanest, _] = &findings.picks;
        table.push(vec![
            program.name.to_owned(),
            program.rounds().to_string(),
            fastest.clone(),
            leanest.clone(),
            findings.short.clone(),
        ]);
    }
    Block::Index(table, (1..=programs.len()).map(|number| format!("#p{number}")).collect())
}

/// Per cent of the calls that are at most as long.
const PERCENTS: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// The longest name first: a class is shown as a group of rows.
const CLASSES: [&str; 4] = ["malloc", "realloc", "memalign", "free"];
/// Clock ticks below which two durations look the same: reading the clock takes as long. The end of the first
/// class.
const SHORTEST: f64 = 2.0;

/// Percentiles of one candidate in one class of calls.
struct Percentiles<'a> {
    latency: &'a LatencySection,
    ticks: [f64; 4],
}

/// The table and the chart; nothing when no histogram has a call.
fn latency_blocks(latencies: &[LatencySection]) -> Vec<Block> {
    const NOTE: &str = "So many per cent of the calls take no longer. The first class holds the calls that took no \
                        longer than it takes to read the clock twice; how much shorter they are is not known.";
    let of_class = |class| latencies.iter().filter(move |latency| latency.class == class);
    let rows: Vec<Percentiles<'_>> =
        CLASSES.into_iter().flat_map(of_class).filter_map(Percentiles::of).collect();
    if rows.is_empty() {
        return vec![];
    }
    let heading = Block::Heading("How long calls take".to_owned());
    let chart = Block::Charts(percentile_chart(&rows).into_iter().collect());
    vec![heading, chart, Block::Table(percentile_table(&rows)), Block::Note(NOTE.to_owned())]
}

fn percentile_table(rows: &[Percentiles<'_>]) -> Table {
    let heads = ["candidate", "calls", "50 %", "90 %", "99 %", "99.9 %"];
    let mut table = Table::new("", "Latency of calls, percentiles", &heads);
    for row in rows {
        let head = [row.latency.candidate.clone(), row.latency.class.to_owned()];
        table.push(head.into_iter().chain(row.ticks.map(|ticks| row.text(ticks))).collect());
    }
    table
}

/// The chart of the percentiles. It shows times of the candidates whose clock rate is known. Where no rate is
/// known, it shows clock ticks.
fn percentile_chart(rows: &[Percentiles<'_>]) -> Option<Chart> {
    let is_timed = rows.iter().any(|row| row.latency.ns_per_tick.is_some());
    let drawn = rows.iter().filter(|row| row.latency.ns_per_tick.is_some() == is_timed);
    let (title, axis) = match is_timed {
        true => ("Latency of calls", Axis::new("time of a call").spaced(Spacing::Nanoseconds)),
        false => ("Latency of calls, clock ticks", Axis::new("clock ticks").spaced(Spacing::Logarithmic)),
    };
    Distribution {
        title: title.to_owned(),
        caption: "Mark: half of the calls take no longer. Box: 90 %. Line: 99.9 %. Logarithmic axis."
            .to_owned(),
        axis,
        rows: drawn.map(Percentiles::row).collect(),
    }
    .draw()
}

impl<'a> Percentiles<'a> {
    fn of(latency: &'a LatencySection) -> Option<Self> {
        let [a, b, c, d] = PERCENTS.map(|percent| ticks_at(&latency.histogram_ticks, percent));
        Some(Self { latency, ticks: [a?, b?, c?, d?] })
    }

    fn value(&self, ticks: f64) -> f64 {
        self.latency.ns_per_tick.map_or(ticks, |ns_per_tick| ticks * ns_per_tick)
    }

    fn text(&self, ticks: f64) -> String {
        let value = self.value(ticks);
        let is_timed = self.latency.ns_per_tick.is_some();
        let text = if is_timed { duration(value) } else { format!("{value:.0} ticks") };
        if ticks <= SHORTEST { format!("< {text}") } else { text }
    }

    fn row(&self) -> DistributionRow {
        let [middle, upper, _, high] = self.ticks.map(|ticks| self.value(ticks));
        DistributionRow {
            group: self.latency.class.to_owned(),
            name: self.latency.candidate.clone(),
            low: middle,
            lower: middle,
            middle,
            upper,
            high,
            text: self.text(self.ticks[0]),
        }
    }
}

/// Clock ticks that this percentage of the calls does not exceed; None of an empty histogram.
fn ticks_at(histogram: &[u64], percent: f64) -> Option<f64> {
    let all: f64 = histogram.iter().map(|&n| n as f64).sum();
    let wanted = all * percent / 100.0;
    let mut below = 0.0;
    let mut last = None;
    for (bucket, &n) in (0u32..).zip(histogram).filter(|(_, n)| **n > 0) {
        let n = n as f64;
        let within = ((wanted - below) / n).clamp(0.0, 1.0);
        last = Some(if bucket == 0 { SHORTEST } else { (f64::from(bucket) + within).exp2() });
        if below + n >= wanted {
            break;
        }
        below += n;
    }
    last
}

/// Two digits and a unit.
fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "\u{b5}s"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::bench::{Observed, Options};
    use imas_core::run::RawRun;

    fn runs(name: &str, cpu: f64, bytes: u64) -> CandidateRuns {
        let run = |round: u32| RawRun {
            round,
            user_s: cpu * (1.0 + f64::from(round % 3) / 100.0),
            wall_s: cpu,
            mean_bytes: bytes + u64::from(round),
            peak_bytes: bytes * 2,
            ..RawRun::default()
        };
        CandidateRuns { name: name.to_owned(), runs: (0..8).map(run).collect() }
    }

    /// The findings that a benchmark reports of these runs.
    fn findings(runs: &[CandidateRuns]) -> ProgramFindings {
        let observed = Observed { runs: runs.to_vec(), ..Observed::default() };
        let (runs, comparison) = observed.compare(&Options::default());
        ProgramFindings::of_runs(&runs, comparison)
    }

    fn report(name: &str) -> ReportPage {
        let runs = vec![
            runs("system", 1.0, 1 << 20),
            runs("fast", 0.8, 1 << 20),
            runs("lean", 1.1, 1 << 19),
            runs("bad", 1.5, 1 << 21),
        ];
        let program = ProgramSection {
            name: name.to_owned(),
            findings: findings(&runs),
            runs,
            splits: vec![(name.to_owned(), Split { resident: 1 << 20, live: 1 << 19, ..Split::default() })],
            decisions: vec![DecisionSection {
                at: "2026-11-22".into(),
                candidate: name.into(),
                trial: true,
                because: name.into(),
            }],
            latencies: vec![LatencySection {
                class: "malloc",
                candidate: "fast".into(),
                histogram_ticks: vec![0, 0, 3, 9, 1],
                ns_per_tick: Some(0.4),
            }],
            memory: vec![MemorySection {
                candidate: name.into(),
                looks: [0, 500]
                    .map(|ms| MemorySnapshot { ms, resident_kib: 9, heap_kib: 9, live_kib: 5 })
                    .to_vec(),
            }],
            remarks: vec![name.to_owned()],
        };
        ReportPage { title: name.to_owned(), notes: vec![name.to_owned()], programs: vec![program] }
    }

    #[test]
    fn hostile_names_are_text() {
        let page = render(&report("</script><img src=x onerror=alert(1)>\"'&"));
        assert!(!page.contains("<img") && !page.contains("\"'&"), "unescaped");
        assert_eq!(page.matches("</script>").count(), 1);
    }

    #[test]
    fn the_page_needs_no_network_and_has_its_figures() {
        let page = render(&report("p"));
        for outside in ["http://", "https://", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("fastest") && page.contains("-20.0 %") && page.contains("Pareto"));
        assert!(page.contains("rounding %"));
        assert!(page.contains("Resident memory through one counted run") && page.contains("99.9 %"));
    }

    #[test]
    fn many_programs_have_a_picture_of_their_picks_and_a_row_each() {
        let programs = ["one", "two", "three"].map(|name| report(name).programs.remove(0)).into();
        let page = render(&ReportPage { title: "All".into(), notes: vec!["where from".into()], programs });
        assert!(page.contains("of 3 programs another allocator is better"), "{page}");
        assert!(page.contains("href=\"#p3\"") && page.contains("<details id=\"p3\">"));
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("Balanced picks") < at("id=\"programs\"") && at("id=\"p3\"") < at("where from"));
    }

    #[test]
    fn an_empty_page_is_marked() {
        assert!(render(&ReportPage::default()).contains("no program"));
    }

    #[test]
    fn percentiles_lie_in_their_buckets() {
        // 90 calls of 16 to 32 ticks, 9 of 1024 to 2048, one of 2^20 to 2^21.
        let mut histogram = vec![0; 21];
        (histogram[4], histogram[10], histogram[20]) = (90, 9, 1);
        let at = |percent| ticks_at(&histogram, percent).unwrap();
        assert!((at(50.0) - 2f64.powf(4.0 + 5.0 / 9.0)).abs() < 1e-9);
        assert!((at(90.0) - 32.0).abs() < 1e-9 && (at(99.0) - 2048.0).abs() < 1e-6);
        assert!((1_048_576.0..=2_097_152.0).contains(&at(99.9)));
    }

    #[test]
    fn an_empty_histogram_has_no_row() {
        let of = |histogram_ticks, ns_per_tick| LatencySection {
            class: "free",
            candidate: "a".into(),
            histogram_ticks,
            ns_per_tick,
        };
        let latencies =
            [of(vec![], None), of(vec![0, 0], Some(0.5)), of(vec![0, 0, 8], Some(0.5)), of(vec![3], None)];
        let rows: Vec<Percentiles<'_>> = latencies.iter().filter_map(Percentiles::of).collect();
        let texts: Vec<String> = rows.iter().map(|row| row.text(row.ticks[3])).collect();
        assert_eq!(texts, ["4.0 ns", "< 2 ticks"]);
        assert!(latency_blocks(&latencies[..2]).is_empty());
    }

    #[test]
    fn there_is_one_table_and_one_chart_of_all_classes() {
        let of = |class, candidate: &str| LatencySection {
            class,
            candidate: candidate.into(),
            histogram_ticks: vec![0, 0, 0, 9, 1],
            ns_per_tick: Some(0.5),
        };
        let latencies = [of("free", "system"), of("malloc", "hoard"), of("malloc", "system")];
        let blocks = latency_blocks(&latencies);
        let [Block::Heading(_), Block::Charts(charts), Block::Table(table), Block::Note(_)] = &blocks[..]
        else {
            panic!("{blocks:?}");
        };
        let rows: Vec<&[String]> = table.rows.iter().map(|row| &row[..2]).collect();
        assert_eq!(rows, [["hoard", "malloc"], ["system", "malloc"], ["system", "free"]]);
        assert_eq!(charts.len(), 1);
    }

    #[test]
    fn durations_have_two_digits_and_a_unit() {
        let of = [7.04, 9.96, 480.0, 1_300.0, 25_000_000.0, 3e9].map(duration);
        assert_eq!(of, ["7.0 ns", "10 ns", "480 ns", "1.3 \u{b5}s", "25 ms", "3.0 s"]);
    }
}
