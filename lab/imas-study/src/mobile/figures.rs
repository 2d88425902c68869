// SPDX-License-Identifier: Apache-2.0
//! Sizes, benchmarks and memory as bars.

use imas_core::candidate::SYSTEM;
use imas_core::stats::{Interval, median};
use imas_report::chart::{BarRow, Bars};

use super::contrast::deviation;
use super::sample::{MobilePart, Samples};
use crate::band::mean;
use crate::study::StudyFigure;
use imas_cli::table::Table;

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;
const PER_CENT: f64 = 100.0;

pub(crate) fn figures(samples: &Samples) -> Vec<StudyFigure> {
    let mut figures = vec![sizes(samples), chunks(samples), threads(samples), timed(samples)];
    if !samples.tests(MobilePart::UseCase).is_empty() {
        figures.extend([taken(samples), programs(samples)]);
    }
    figures.retain(|figure| !figure.data.rows.is_empty());
    figures
}

/// One drawing. Each candidate has a bar for each series.
struct Drawn<'a> {
    id: &'a str,
    title: &'a str,
    caption: &'a str,
    unit: &'a str,
    series: Vec<&'a str>,
    rows: Vec<(String, Vec<Interval>)>,
}

impl Drawn<'_> {
    fn figure(self) -> StudyFigure {
        let mut data = Table::new(self.id, self.title, &["candidate", "series", "low", "middle", "high"]);
        for (name, intervals) in &self.rows {
            for (series, interval) in self.series.iter().zip(intervals) {
                let numbers = [interval.lo, interval.mid, interval.hi].map(|value| format!("{value:.3}"));
                data.push([name.clone(), (*series).to_owned()].into_iter().chain(numbers).collect());
            }
        }
        let chart = Bars {
            title: self.title.to_owned(),
            caption: self.caption.to_owned(),
            unit: self.unit.to_owned(),
            decimals: 1,
            series: self.series.into_iter().map(str::to_owned).collect(),
            rows: self.rows.into_iter().map(|(name, bars)| BarRow { name, bars }).collect(),
            ..Bars::default()
        };
        StudyFigure { caption: chart.caption.clone(), chart: chart.draw(), data }
    }
}

fn exact(value: f64) -> Interval {
    Interval { lo: value, mid: value, hi: value }
}

fn scaled(interval: Interval, factor: f64) -> Interval {
    Interval { lo: interval.lo * factor, mid: interval.mid * factor, hi: interval.hi * factor }
}

/// The rows of the candidates that have all of their bars.
fn rows<'a>(
    samples: &'a Samples,
    of: impl Fn(&'a str) -> Option<Vec<Interval>>,
) -> Vec<(String, Vec<Interval>)> {
    samples.candidates().into_iter().filter_map(|name| Some((name.to_owned(), of(name)?))).collect()
}

fn sizes(samples: &Samples) -> StudyFigure {
    let of = |name| {
        let loaded = samples.values("library", name, "loaded").first()? / KIB;
        let private = |name| median(&samples.values("minimal", name, "first.Private_Dirty"));
        Some(vec![exact(loaded), exact(((private(name)? - private(SYSTEM)?) / KIB).max(0.0))])
    };
    Drawn {
        id: "size",
        title: "Size, KiB",
        caption: "Loaded bytes of the library, and the private memory that it adds to a process with one block.",
        unit: " KiB",
        series: vec!["library", "minimal process"],
        rows: rows(samples, of),
    }
    .figure()
}

/// Ratios to system of some figures of a test, in per cent.
fn ratios(samples: &Samples, pairs: &[(&str, &str)]) -> Vec<(String, Vec<Interval>)> {
    rows(samples, |name| {
        let one = |(test, figure): &(&str, &str)| samples.ratio(test, figure, name, SYSTEM);
        pairs.iter().map(|pair| Some(scaled(one(pair)?.interval, PER_CENT))).collect()
    })
}

const OF_SYSTEM: &str =
    "Median of the ratios to system in the same round and its 95 % interval; 100 is system, less is faster.";

fn chunks(samples: &Samples) -> StudyFigure {
    let shown =
        [("chunks", "few-linear.malloc"), ("chunks", "many-random.malloc"), ("chunks", "many-random.all")];
    Drawn {
        id: "chunks",
        title: "Chunks: CPU time, per cent of system's",
        caption: OF_SYSTEM,
        unit: " %",
        series: vec!["few, linear: malloc", "many, random: malloc", "many, random: all"],
        rows: ratios(samples, &shown),
    }
    .figure()
}

fn threads(samples: &Samples) -> StudyFigure {
    let tests = samples.tests(MobilePart::Benchmarks);
    let mut counts: Vec<u32> =
        tests.iter().filter_map(|test| test.strip_prefix("threads-")?.parse().ok()).collect();
    counts.sort_unstable();
    counts.truncate(3);
    let names: Vec<String> = counts.iter().map(|count| format!("threads-{count}")).collect();
    let shown: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "elapsed")).collect();
    let rows = if shown.is_empty() { Vec::new() } else { ratios(samples, &shown) };
    Drawn {
        id: "threads",
        title: "Threads with random sizes: elapsed time, per cent of system's",
        caption: OF_SYSTEM,
        unit: " %",
        series: names.iter().map(String::as_str).collect(),
        rows,
    }
    .figure()
}

fn timed(samples: &Samples) -> StudyFigure {
    let series = ["malloc", "realloc", "free"];
    Drawn {
        id: "timed",
        title: "Until a time is up: mean CPU time of a call, per cent of system's",
        caption: OF_SYSTEM,
        unit: " %",
        series: series.to_vec(),
        rows: ratios(samples, &series.map(|figure| ("timed", figure))),
    }
    .figure()
}

/// Mean, and one standard deviation to both sides.
fn spread(values: &[f64], unit: f64) -> Option<Interval> {
    let mid = mean(values.iter().copied()) / unit;
    let around = deviation(values).unwrap_or(0.0) / unit;
    (!values.is_empty()).then_some(Interval { lo: mid - around, mid, hi: mid + around })
}

const DEVIATION: &str = "Mean over the iterations; the line is one standard deviation to both sides.";

fn taken(samples: &Samples) -> StudyFigure {
    let of = |name| {
        let state = |figure| {
            let taken: Vec<f64> =
                samples.values("use-case", name, figure).into_iter().map(|change| -change).collect();
            spread(&taken, MIB)
        };
        Some(vec![state("running.available.change")?, state("idle.available.change")?])
    };
    Drawn {
        id: "taken",
        title: "Use case: memory taken, MiB of MemAvailable",
        caption: DEVIATION,
        unit: " MiB",
        series: vec!["running", "idle"],
        rows: rows(samples, of),
    }
    .figure()
}

fn programs(samples: &Samples) -> StudyFigure {
    let known = samples.figures("use-case");
    let names: Vec<&str> = ["browser", "gallery", "video"]
        .into_iter()
        .filter(|name| known.contains(format!("{name}.resident").as_str()))
        .collect();
    let of = |candidate| {
        let one =
            |name: &&str| spread(&samples.values("use-case", candidate, &format!("{name}.resident")), MIB);
        names.iter().map(one).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
    };
    Drawn {
        id: "programs-memory",
        title: "Use case: resident anonymous memory of the programs, MiB",
        caption: DEVIATION,
        unit: " MiB",
        series: names.clone(),
        rows: rows(samples, of),
    }
    .figure()
}
