// SPDX-License-Identifier: Apache-2.0
//! One self-contained page: candidates in the CPU-memory plane, runs and decisions through time, memory within a run, latencies. It needs no network, and no script
//! to be read; the script in it sorts tables and connects dots with rows.
//!
//! [`Program`] is what the caller knows; [`plane`], [`series`] and the like turn it into coordinates, `page.html` into text. Every
//! name comes from outside and is escaped by the template.

mod bars;
mod lines;
mod memory;
mod percentile;
mod plane;
mod scale;
mod series;

use imas_core::bench::{CandidateRuns, Comparison, MedianRun, Options, Run, compare};
use imas_core::curve::Look;
use imas_core::split::Split;
use imas_core::stats::Interval;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::{format, split};
use plane::Plane;
use series::Series;

/// Bootstrap resamples per interval: a page has hundreds of intervals.
const RESAMPLES: usize = 2000;
/// Programs up to which every one is shown unfolded.
const UNFOLDED: usize = 2;

/// What the page is of.
#[derive(Debug, Default)]
pub struct Report {
    /// Heading.
    pub title: String,
    /// Sentences below it: where the figures come from, machine, date.
    pub notes: Vec<String>,
    /// In the order shown.
    pub programs: Vec<Program>,
}

/// What is known of one program.
#[derive(Debug, Default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Runs by candidate in the catalogue's order, `system` among them. Runs of one round are compared with each other.
    pub runs: Vec<CandidateRuns>,
    /// Where the resident memory was, by candidate.
    pub splits: Vec<(String, Split)>,
    /// Decisions, oldest first.
    pub decisions: Vec<Decision>,
    /// Latencies of the calls.
    pub latencies: Vec<Latency>,
    /// Memory through one run of each candidate.
    pub memory: Vec<Memory>,
    /// What was not counted, and other remarks.
    pub remarks: Vec<String>,
}

/// One past decision.
#[derive(Debug, Default, Serialize)]
pub struct Decision {
    /// When, in words.
    pub at: String,
    /// Name of the candidate.
    pub candidate: String,
    /// Whether it was a trial.
    pub trial: bool,
    /// Why, a sentence.
    pub because: String,
}

/// How long the calls of one class took under one candidate.
#[derive(Debug, Default)]
pub struct Latency {
    /// `malloc`, `realloc`, `memalign` or `free`.
    pub class: &'static str,
    /// Name of the candidate.
    pub candidate: String,
    /// Calls by log2 of clock ticks.
    pub histogram_ticks: Vec<u64>,
    /// Nanoseconds of one tick; None where no trial says.
    pub ns_per_tick: Option<f64>,
}

/// What a process tree held through one run.
#[derive(Debug, Default)]
pub struct Memory {
    /// Name of the candidate.
    pub candidate: String,
    /// In order of time.
    pub looks: Vec<Look>,
}

/// The page.
///
/// # Errors
/// When the template cannot be rendered, which would be a fault of ours.
pub fn render(report: &Report) -> Result<String, minijinja::Error> {
    const NAME: &str = "page.html";
    let mut environment = Environment::new();
    environment.add_template(NAME, include_str!("page.html"))?;
    let programs: Vec<Section> = report.programs.iter().map(Section::of).collect();
    let unfolded = programs.len() <= UNFOLDED;
    environment.get_template(NAME)?.render(context! {
        title => report.title.clone(),
        notes => report.notes.clone(),
        programs => Value::from(Serde(&programs)),
        unfolded,
        style => Value::from_safe_string(include_str!("page.css").to_owned()),
        script => Value::from_safe_string(include_str!("page.js").to_owned()),
    })
}

/// A program as it is shown.
#[derive(Serialize)]
struct Section {
    name: String,
    rows: Vec<Row>,
    picks: Vec<(String, String)>,
    best: String,
    rounds: usize,
    plane: Option<Plane>,
    series: Vec<Series>,
    memory: Vec<memory::Figure>,
    latencies: Vec<bars::Class>,
    split_head: Vec<&'static str>,
    splits: Vec<Vec<String>>,
    percents: [f64; 4],
    percentiles: Vec<percentile::Row>,
    timeline: Vec<(String, Vec<series::Mark>)>,
    decisions: Vec<DecisionRow>,
    warnings: Vec<String>,
}

/// A candidate as a row of the table.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Its place, which chooses the colour.
    colour: usize,
    runs: usize,
    cpu_s: f64,
    cpu: String,
    cpu_change: String,
    cpu_sort: f64,
    memory_bytes: u64,
    memory: String,
    memory_change: String,
    memory_sort: f64,
    peak: String,
    peak_bytes: u64,
    verdict: String,
    marks: String,
}

#[derive(Serialize)]
struct DecisionRow {
    at: String,
    candidate: String,
    kind: &'static str,
    because: String,
}

impl Section {
    fn of(program: &Program) -> Self {
        let options = Options { resamples: RESAMPLES, ..Options::default() };
        let comparison = compare(&program.runs, &options);
        let rows = rows(program, &comparison);
        let names: Vec<&str> = program.runs.iter().map(|c| c.name.as_str()).collect();
        let figure = |title: &str, get: fn(&Run) -> f64| Series::of(title, &program.runs, get);
        const MIB: f64 = 1_048_576.0;
        let series = [
            figure("CPU time by run, seconds (at even pace where it is known)", Run::compared_cpu_s),
            figure("Mean resident memory by run, MiB", |run| run.mean_bytes as f64 / MIB),
        ];
        Self {
            name: program.name.clone(),
            best: best(&comparison, &rows),
            picks: picks(&comparison),
            rounds: rows.iter().map(|row| row.runs).max().unwrap_or(0),
            plane: Plane::of(&comparison),
            series: series.into_iter().flatten().collect(),
            memory: memory::figures(&program.memory, &names),
            latencies: bars::classes(&program.latencies, &names),
            split_head: split::HEAD.to_vec(),
            splits: program.splits.iter().map(|(name, split)| split::cells(name, split)).collect(),
            percents: percentile::PERCENTS,
            percentiles: percentile::rows(&program.latencies, &names),
            timeline: series::timeline(&program.decisions),
            decisions: program.decisions.iter().rev().map(DecisionRow::of).collect(),
            warnings: warnings(program, &comparison),
            rows,
        }
    }
}

impl DecisionRow {
    fn of(decision: &Decision) -> Self {
        Self {
            at: decision.at.clone(),
            candidate: decision.candidate.clone(),
            kind: if decision.trial { "trial" } else { "in use" },
            because: decision.because.clone(),
        }
    }
}

fn picks(comparison: &Comparison) -> Vec<(String, String)> {
    let picks = &comparison.picks;
    [("fastest", &picks.fastest), ("leanest", &picks.leanest), ("balanced", &picks.balanced)]
        .map(|(word, name)| (word.to_owned(), name.clone()))
        .to_vec()
}

/// The balanced pick with what it changes, in words.
fn best(comparison: &Comparison, rows: &[Row]) -> String {
    let name = &comparison.picks.balanced;
    match rows.iter().find(|row| row.name == *name) {
        Some(row) if name != imas_core::SYSTEM => {
            format!("{name}: CPU {}, memory {}", row.cpu_change, row.memory_change)
        }
        _ if comparison
            .candidates
            .iter()
            .all(|one| one.name == imas_core::SYSTEM || one.ratio.cpu.is_none()) =>
        {
            "nothing could be compared".to_owned()
        }
        _ => "system, no other is better beyond doubt".to_owned(),
    }
}

fn rows(program: &Program, comparison: &Comparison) -> Vec<Row> {
    let with_runs = comparison.candidates.iter().zip(&program.runs).enumerate();
    with_runs
        .map(|(colour, (result, runs))| {
            let median = result.median.as_ref();
            let bytes = |get: fn(&MedianRun) -> u64| median.map_or(u64::MAX, get);
            let mib =
                |get: fn(&MedianRun) -> u64| median.map_or_else(dash, |run| format::mib(get(run) as f64));
            let is = |name: &String| *name == result.name;
            let marks = picks(comparison).into_iter().filter(|(_, name)| is(name)).map(|(word, _)| word);
            let change =
                |ratio: Option<Interval>| ratio.map_or_else(|| "-".to_owned(), |r| format::change(&r));
            let system = result.name == imas_core::SYSTEM;
            Row {
                name: result.name.clone(),
                colour,
                runs: runs.runs.len(),
                cpu_s: median.map_or(f64::MAX, |run| run.cpu_s),
                cpu: median.map_or_else(dash, |run| format::seconds(run.cpu_s)),
                cpu_change: if system { "-".to_owned() } else { change(result.ratio.cpu) },
                cpu_sort: result.ratio.cpu.map_or(f64::MAX, |r| r.mid),
                memory_bytes: bytes(|run| run.mean_bytes),
                memory: mib(|run| run.mean_bytes),
                memory_change: if system { "-".to_owned() } else { change(result.ratio.memory) },
                memory_sort: result.ratio.memory.map_or(f64::MAX, |r| r.mid),
                peak: mib(|run| run.peak_bytes),
                peak_bytes: bytes(|run| run.peak_bytes),
                verdict: verdict(result),
                marks: marks.collect::<Vec<_>>().join(", "),
            }
        })
        .collect()
}

fn dash() -> String {
    "-".to_owned()
}

fn verdict(result: &imas_core::bench::CandidateResult) -> String {
    use imas_core::bench::Ineligible;
    match &result.ineligible {
        Some(Ineligible::NoRuns) => "no runs that count".to_owned(),
        Some(Ineligible::Crashed { signal }) => format!("crashed (signal {signal})"),
        Some(Ineligible::Hung) => "hangs".to_owned(),
        Some(Ineligible::ExitDiffers { exit }) => format!("exits with {exit}, not as under system"),
        Some(Ineligible::OutputDiffers) => "writes something else than under system".to_owned(),
        None if result.verdict.cpu == result.verdict.memory => result.verdict.cpu.to_string(),
        None => format!("{}, {}", on("CPU", result.verdict.cpu), on("memory", result.verdict.memory)),
    }
}

/// The word, with what it is about where it does not say so itself.
fn on(axis: &str, word: imas_core::bench::Word) -> String {
    use imas_core::bench::Word;
    match word {
        Word::WithinNoise | Word::NotEnoughData => format!("{axis} {word}"),
        _ => word.to_string(),
    }
}

fn warnings(program: &Program, comparison: &Comparison) -> Vec<String> {
    let of_runs = comparison.warnings.iter().map(imas_core::bench::Warning::what);
    of_runs.chain(program.remarks.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, cpu: f64, bytes: u64) -> CandidateRuns {
        let run = |round: u32| Run {
            round,
            user_s: cpu * (1.0 + f64::from(round % 3) / 100.0),
            wall_s: cpu,
            mean_bytes: bytes + u64::from(round),
            peak_bytes: bytes * 2,
            ..Run::default()
        };
        CandidateRuns { name: name.to_owned(), runs: (0..8).map(run).collect() }
    }

    fn report(name: &str) -> Report {
        let program = Program {
            name: name.to_owned(),
            runs: vec![
                runs("system", 1.0, 1 << 20),
                runs("fast", 0.8, 1 << 20),
                runs("lean", 1.1, 1 << 19),
                runs("bad", 1.5, 1 << 21),
            ],
            splits: vec![(name.to_owned(), Split { resident: 1 << 20, live: 1 << 19, ..Split::default() })],
            decisions: vec![Decision {
                at: "2026-11-22".into(),
                candidate: name.into(),
                trial: true,
                because: name.into(),
            }],
            latencies: vec![Latency {
                class: "malloc",
                candidate: "fast".into(),
                histogram_ticks: vec![0, 0, 3, 9, 1],
                ns_per_tick: Some(0.4),
            }],
            memory: vec![Memory {
                candidate: name.into(),
                looks: [0, 500].map(|ms| Look { ms, resident_kib: 9, heap_kib: 9, live_kib: 5 }).to_vec(),
            }],
            remarks: vec![name.to_owned()],
        };
        Report { title: name.to_owned(), notes: vec![name.to_owned()], programs: vec![program] }
    }

    #[test]
    fn hostile_names_are_text() {
        let page = render(&report("</script><img src=x onerror=alert(1)>\"'&")).unwrap();
        assert!(!page.contains("<img") && !page.contains("\"'&"), "unescaped");
        assert_eq!(page.matches("</script>").count(), 1);
    }

    #[test]
    fn the_page_needs_no_network_and_says_its_figures() {
        let page = render(&report("p")).unwrap();
        for outside in ["http://", "https://", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("fastest") && page.contains("-20.0 %") && page.contains("Pareto"));
        assert!(page.contains("rounding %"));
        assert!(page.contains("Resident memory through one counted run") && page.contains("99.9 %"));
    }

    #[test]
    fn nothing_known_is_said() {
        assert!(render(&Report::default()).unwrap().contains("no program"));
    }
}
