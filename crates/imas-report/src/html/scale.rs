// SPDX-License-Identifier: Apache-2.0
//! From values to places in a drawing.

use serde::Serialize;

/// A line of the grid: place and label.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// A linear map of values onto places, cut off at its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    first: f64,
    last: f64,
}

impl Scale {
    /// Values `from..to` to places `first..last`.
    pub(super) fn new((from, to): (f64, f64), (first, last): (f64, f64)) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 }, first, last }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        round(self.first + share * (self.last - self.first))
    }

    fn contains(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }

    /// Of `values` those that lie within, at least `apart` places from each other; those named first go first.
    pub(super) fn ticks(&self, values: &[(f64, String)], apart: f64) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = vec![];
        for (value, text) in values.iter().filter(|(value, _)| self.contains(*value)) {
            let at = self.place(*value);
            if ticks.iter().all(|tick| (tick.at - at).abs() >= apart) {
                ticks.push(Tick { at, text: text.clone() });
            }
        }
        ticks
    }

    /// Four to eight round values.
    pub(super) fn round_ticks(&self, apart: f64) -> Vec<Tick> {
        let rough = (self.to - self.from) / 5.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let decimals =
            (0..12).find(|places| step * 10f64.powi(*places) >= 0.999).unwrap_or(12).unsigned_abs() as usize;
        let first = (self.from / step).ceil();
        let values = (0..12u32).map(|i| (first + f64::from(i)) * step);
        let text = |value: f64| {
            let text = format!("{value:.decimals$}");
            if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
        };
        self.ticks(&values.map(|value| (value, text(value))).collect::<Vec<_>>(), apart)
    }
}

/// A tenth of a pixel is enough.
pub(super) fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale::new((0.13, 0.61), (0.0, 100.0));
        let texts: Vec<String> = scale.round_ticks(1.0).into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["0.2", "0.3", "0.4", "0.5", "0.6"]);
        let small = Scale::new((0.0, 0.002), (0.0, 100.0));
        let texts: Vec<String> = small.round_ticks(1.0).into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["0", "0.0005", "0.001", "0.0015", "0.002"]);
    }

    #[test]
    fn what_lies_outside_stands_at_the_edge() {
        let scale = Scale::new((0.0, 1.0), (10.0, 20.0));
        assert_eq!((scale.place(-5.0), scale.place(0.5), scale.place(9.0)), (10.0, 15.0, 20.0));
    }
}
