// SPDX-License-Identifier: Apache-2.0
//! Percentiles of latencies, from histograms by log2 of clock ticks. Within a bucket calls are taken to lie evenly on the
//! logarithmic scale, so that a percentile is right to the bucket and a guess within it.

use serde::Serialize;

use super::Latency;

/// A class of calls under one candidate, as a row of the table.
#[derive(Serialize)]
pub(super) struct Row {
    name: String,
    colour: usize,
    class: &'static str,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    text: String,
    /// In the unit of the table.
    sort: f64,
}

/// Per cent of the calls that are at most as long.
pub(super) const PERCENTS: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Clock ticks below which nothing is told apart: the end of the first bucket, of calls that took as long as reading the clock.
const SHORTEST: f64 = 2.0;

/// One row for each histogram that is not empty. `names` gives each candidate its colour.
pub(super) fn rows(latencies: &[Latency], names: &[&str]) -> Vec<Row> {
    latencies.iter().filter_map(|latency| Row::of(latency, names)).collect()
}

impl Row {
    fn of(latency: &Latency, names: &[&str]) -> Option<Self> {
        let cell = |percent| {
            let ticks = at(&latency.histogram_ticks, percent)?;
            let value = latency.ns_per_tick.map_or(ticks, |ns_per_tick| ticks * ns_per_tick);
            let text =
                if latency.ns_per_tick.is_some() { duration(value) } else { format!("{value:.0} ticks") };
            let text = if ticks <= SHORTEST { format!("< {text}") } else { text };
            Some(Cell { text, sort: value })
        };
        Some(Self {
            name: latency.candidate.clone(),
            colour: names.iter().position(|name| *name == latency.candidate).unwrap_or(0),
            class: latency.class,
            cells: PERCENTS.iter().map(|&percent| cell(percent)).collect::<Option<_>>()?,
        })
    }
}

/// Clock ticks that so many per cent of the calls do not exceed; None of an empty histogram.
fn at(histogram: &[u64], percent: f64) -> Option<f64> {
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
        let at = |percent| at(&histogram, percent).unwrap();
        assert!((at(50.0) - 2f64.powf(4.0 + 5.0 / 9.0)).abs() < 1e-9);
        assert!((at(90.0) - 32.0).abs() < 1e-9 && (at(99.0) - 2048.0).abs() < 1e-6);
        assert!((1_048_576.0..=2_097_152.0).contains(&at(99.9)));
    }

    #[test]
    fn an_empty_histogram_has_no_row() {
        let of = |histogram_ticks, ns_per_tick| Latency {
            class: "free",
            candidate: "a".into(),
            histogram_ticks,
            ns_per_tick,
        };
        let latencies =
            [of(vec![], None), of(vec![0, 0], Some(0.5)), of(vec![0, 0, 8], Some(0.5)), of(vec![3], None)];
        let rows = rows(&latencies, &["system", "a"]);
        let texts: Vec<&str> = rows.iter().map(|row| row.cells[3].text.as_str()).collect();
        assert_eq!(texts, ["4.0 ns", "< 2 ticks"]);
        assert_eq!(rows[0].colour, 1);
    }

    #[test]
    fn durations_have_two_digits_and_a_unit() {
        let of = [7.04, 9.96, 480.0, 1_300.0, 25_000_000.0, 3e9].map(duration);
        assert_eq!(of, ["7.0 ns", "10 ns", "480 ns", "1.3 \u{b5}s", "25 ms", "3.0 s"]);
    }
}
