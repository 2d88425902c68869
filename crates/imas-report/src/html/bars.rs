// SPDX-License-Identifier: Apache-2.0
//! Latencies: of each class of calls the share by log2 of clock ticks, a curve a candidate.

use serde::Serialize;

use super::Latency;
use super::scale::{Scale, Tick};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 140.0;

/// The drawing of one class.
#[derive(Serialize)]
pub(super) struct Class {
    name: &'static str,
    width: f64,
    height: f64,
    left: f64,
    bottom: f64,
    lines: Vec<Line>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    colour: usize,
    points: String,
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
        let x = Scale::new((0.0, last), (LEFT + 8.0, WIDTH - 16.0));
        let y = Scale::new((0.0, top * 105.0), (BOTTOM, 10.0));
        let line = |latency: &&Latency| {
            let points = (0u32..).map(f64::from).zip(shares(latency));
            let points = points.map(|(b, share)| format!("{},{}", x.place(b), y.place(share * 100.0)));
            Line {
                name: latency.candidate.clone(),
                colour: names.iter().position(|n| *n == latency.candidate).unwrap_or(0),
                points: points.collect::<Vec<_>>().join(" "),
            }
        };
        let powers: Vec<(f64, String)> = (0..40u32).map(|b| (f64::from(b), power(b))).collect();
        Some(Self {
            name,
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            bottom: BOTTOM,
            lines: latencies.iter().map(line).collect(),
            x_ticks: x.ticks(&powers, 48.0),
            y_ticks: y.round_ticks(18.0),
        })
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
        let of = |class, histogram_ticks| Latency { class, candidate: "a".into(), histogram_ticks };
        let drawn = classes(&[of("malloc", vec![0, 4, 0]), of("free", vec![0, 0])], &["system", "a"]);
        assert_eq!(drawn.iter().map(|class| class.name).collect::<Vec<_>>(), ["malloc"]);
        assert_eq!((drawn[0].lines.len(), drawn[0].lines[0].colour), (1, 1));
    }

    #[test]
    fn a_rare_tail_is_cut() {
        let mut histogram_ticks = vec![0, 100_000];
        histogram_ticks.resize(30, 1);
        let latency = Latency { class: "free", candidate: "a".into(), histogram_ticks };
        assert_eq!(shares(&latency).len(), 2);
        assert_eq!((power(3), power(12), power(24)), ("8".into(), "4 Ki".into(), "16 Mi".into()));
    }
}
