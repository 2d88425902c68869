// SPDX-License-Identifier: Apache-2.0
//! Predicted figures with their intervals, which follow from how far predictions were off so far.

use crate::reliability::{PredictedFigure, RecordedRunFacts, ReliabilityTable};
use crate::trace::prediction::Figures;
use imas_core::stats::Interval;
use serde::Serialize;

/// A figure with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictedRange {
    /// The figure.
    pub value: f64,
    /// Lower limit. In the study of predictions, four of five live figures lay between the limits.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

/// Predicted figures of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// CPU seconds.
    pub cpu_s: PredictedRange,
    /// Peak bytes.
    pub peak_bytes: PredictedRange,
    /// Mean bytes.
    pub mean_bytes: PredictedRange,
    /// Bytes at the end. Their interval is that of the mean: live runs have no such figure.
    pub end_bytes: PredictedRange,
}

/// The figures of a candidate with their intervals. Those of the recorded run itself are known.
#[must_use]
pub fn with_ranges(
    figures: &Figures,
    candidate: &str,
    facts: &RecordedRunFacts,
    table: &ReliabilityTable,
) -> Prediction {
    let around = |value: f64, figure| {
        let factors = table.factors(figure, candidate, facts).unwrap_or(Interval::ONE);
        PredictedRange { value, low: value * factors.lo, high: value * factors.hi }
    };
    Prediction {
        cpu_s: around(figures.cpu_s, PredictedFigure::Cpu),
        peak_bytes: around(figures.peak_bytes, PredictedFigure::Peak),
        mean_bytes: around(figures.mean_bytes, PredictedFigure::Memory),
        end_bytes: around(figures.end_bytes, PredictedFigure::Memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_each_figure_is_its_own() {
        let facts = RecordedRunFacts { allocator_share: 0.05, peak_bytes: 1e6, threads: 1 };
        let table = ReliabilityTable::parse(
            r#"{"schema": 1, "source": "a test", "entries": [
                {"figure": "cpu", "count": 200, "mean": 0.0, "deviation": 0.015},
                {"figure": "memory", "count": 200, "mean": 0.0, "deviation": 0.2}]}"#,
        );
        let table = table.unwrap();
        let figures = Figures { cpu_s: 2.0, peak_bytes: 300.0, mean_bytes: 200.0, end_bytes: 100.0 };
        let all = with_ranges(&figures, "a", &facts, &table);
        assert!(all.cpu_s.low > 1.95 && all.cpu_s.low < 2.0 && all.cpu_s.high < 2.05, "{:?}", all.cpu_s);
        assert!(all.mean_bytes.low < 170.0 && all.mean_bytes.high > 240.0, "{:?}", all.mean_bytes);
        assert!((all.end_bytes.high / 100.0 - all.mean_bytes.high / 200.0).abs() < 1e-12);
        assert_eq!(all.peak_bytes.low, all.peak_bytes.high, "nothing is known of peaks");
    }
}
