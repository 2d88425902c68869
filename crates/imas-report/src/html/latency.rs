// SPDX-License-Identifier: Apache-2.0
//! How long calls take: percentiles from histograms by log2 of clock ticks, as a table and one chart. Within
//! a class calls are taken to lie evenly on the logarithmic scale, so that a percentile is right to the class
//! and a guess within it.

use super::LatencySection;
use crate::chart::{Axis, Chart, Distribution, DistributionRow, Spacing};
use crate::page::Block;
use imas_cli::table::Table;

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
pub(super) fn blocks(latencies: &[LatencySection]) -> Vec<Block> {
    const NOTE: &str = "So many per cent of the calls take no longer. The first class holds the calls that took no \
                        longer than it takes to read the clock twice; how much shorter they are is not known.";
    let of_class = |class| latencies.iter().filter(move |latency| latency.class == class);
    let rows: Vec<Percentiles<'_>> =
        CLASSES.into_iter().flat_map(of_class).filter_map(Percentiles::of).collect();
    if rows.is_empty() {
        return vec![];
    }
    let heading = Block::Heading("How long calls take".to_owned());
    let chart = Block::Charts(chart(&rows).into_iter().collect());
    vec![heading, chart, Block::Table(table(&rows)), Block::Note(NOTE.to_owned())]
}

fn table(rows: &[Percentiles<'_>]) -> Table {
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
fn chart(rows: &[Percentiles<'_>]) -> Option<Chart> {
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
        assert!(blocks(&latencies[..2]).is_empty());
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
        let blocks = blocks(&latencies);
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
