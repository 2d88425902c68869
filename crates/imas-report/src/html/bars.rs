// SPDX-License-Identifier: Apache-2.0
//! Latencies: of each class of calls the share by log2 of clock ticks, a curve a candidate; the axis is in nanoseconds where the clock's rate is known.

use serde::Serialize;

use super::Latency;
use super::lines::{Frame, Lines};

const HEIGHT: f64 = 170.0;
/// Pixels between two labels of durations.
const DURATIONS_APART: f64 = 48.0;

/// The drawing of one class.
#[derive(Serialize)]
pub(super) struct Class {
    name: &'static str,
    #[serde(flatten)]
    drawing: Lines,
    /// What the axis shows.
    unit: &'static str,
}

/// Classes that were called at all. `names` gives each candidate its colour.
pub(super) fn classes(latencies: &[Latency], names: &[&str]) -> Vec<Class> {
    ["malloc", "realloc", "memalign", "free"]
        .into_iter()
        .filter_map(|class| {
            let of: Vec<&Latency> = latencies
                .iter()
                .filter(|l| l.class == class && l.histogram_ticks.iter().any(|&n| n > 0))
                .collect();
            Class::of(class, &of, names)
        })
        .collect()
}

impl Class {
    fn of(name: &'static str, latencies: &[&Latency], names: &[&str]) -> Option<Self> {
        let last = latencies.iter().map(|l| shares(l).len().saturating_sub(1)).max()?.max(6);
        let last = f64::from(u32::try_from(last).unwrap_or(64));
        let top = latencies.iter().flat_map(|l| shares(l)).fold(0.0, f64::max);
        let frame = Frame::new(HEIGHT, (0.0, last), top * 100.0);
        let line = |latency: &&Latency| {
            let values = (0u32..).map(f64::from).zip(shares(latency).into_iter().map(|share| share * 100.0));
            frame.line(&latency.candidate, names, values)
        };
        let lines = latencies.iter().map(line).collect();
        let ns_per_tick = latencies.iter().find_map(|latency| latency.ns_per_tick);
        let marks = match ns_per_tick {
            Some(ns_per_tick) => durations(ns_per_tick),
            None => (0..40u32).map(|b| (f64::from(b), power(b))).collect(),
        };
        Some(Self {
            name,
            unit: if ns_per_tick.is_some() { "nanoseconds" } else { "clock ticks" },
            drawing: {
                let ticks = frame.x.ticks(&marks, DURATIONS_APART);
                frame.with(lines, ticks)
            },
        })
    }
}

/// Places of round durations on an axis of log2 of clock ticks; decades first, so that they are the ones that are kept.
fn durations(ns_per_tick: f64) -> Vec<(f64, String)> {
    let decades = |factor: u64| (0..10u32).map(move |exponent| factor * 10u64.pow(exponent));
    let all = [1, 3].into_iter().flat_map(decades);
    all.map(|ns| ((ns as f64 / ns_per_tick).log2(), duration(ns))).collect()
}

/// Whole nanoseconds in the largest unit that keeps them whole.
fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} \u{b5}s", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

/// A power of two, short.
fn power(exponent: u32) -> String {
    match exponent {
        0..10 => (1u64 << exponent).to_string(),
        10..20 => format!("{} Ki", 1u64 << (exponent - 10)),
        20..30 => format!("{} Mi", 1u64 << (exponent - 20)),
        _ => format!("{} Gi", 1u64 << (exponent - 30)),
    }
}

/// Share of calls below which a tail is not worth the room it takes from the rest.
const TAIL: f64 = 0.0005;

/// Shares by bucket, up to the last that shows.
fn shares(latency: &Latency) -> Vec<f64> {
    let all: u64 = latency.histogram_ticks.iter().sum();
    let share = |&n: &u64| n as f64 / all.max(1) as f64;
    let len = latency.histogram_ticks.iter().rposition(|n| share(n) > TAIL).map_or(0, |last| last + 1);
    latency.histogram_ticks[..len].iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_was_never_called_is_not_drawn() {
        let of = |class, histogram_ticks| Latency {
            class,
            candidate: "a".into(),
            histogram_ticks,
            ns_per_tick: None,
        };
        let drawn = classes(&[of("malloc", vec![0, 4, 0]), of("free", vec![0, 0])], &["system", "a"]);
        assert_eq!(drawn.iter().map(|class| class.name).collect::<Vec<_>>(), ["malloc"]);
        assert_eq!((drawn[0].drawing.lines.len(), drawn[0].drawing.lines[0].colour), (1, 1));
    }

    #[test]
    fn durations_stand_where_their_ticks_do() {
        // 0.5 ns a tick: 2 ticks are 1 ns, 2^11 ticks are 1024 ns.
        let marks = durations(0.5);
        let of = |text: &str| marks.iter().find(|(_, mark)| mark == text).unwrap().0;
        assert!((of("1 ns") - 1.0).abs() < 1e-9);
        assert!((of("1 \u{b5}s") - (2000f64).log2()).abs() < 1e-9);
        assert!(of("3 ms") > of("1 ms") && of("1 s") > of("300 ms"));
        let latency = Latency {
            class: "malloc",
            candidate: "a".into(),
            histogram_ticks: vec![0, 9, 9, 9, 9, 9, 9],
            ns_per_tick: Some(0.5),
        };
        let drawn = classes(&[latency], &["a"]);
        assert_eq!(drawn[0].unit, "nanoseconds");
        assert!(drawn[0].drawing.x_ticks.iter().all(|tick| tick.text.ends_with("ns")));
    }

    #[test]
    fn a_rare_tail_is_cut() {
        let mut histogram_ticks = vec![0, 100_000];
        histogram_ticks.resize(30, 1);
        let latency = Latency { class: "free", candidate: "a".into(), histogram_ticks, ns_per_tick: None };
        assert_eq!(shares(&latency).len(), 2);
        assert_eq!((power(3), power(12), power(24)), ("8".into(), "4 Ki".into(), "16 Mi".into()));
    }
}
