// SPDX-License-Identifier: Apache-2.0
//! How well predicted and live ratios agree.

use imas_core::stats::Moments;
use imas_replay::reliability::{PredictedFigure, ReliabilityTable};

use super::judged::{JudgedCandidate, JudgedProgram, reliability};
use crate::band::correlation;

/// Predictions of one figure beside the live runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Agreement {
    pub(crate) pairs: u32,
    /// Correlation of the logarithms of predicted and live ratios; None with fewer than three pairs, or
    /// without variation.
    pub(crate) correlation: Option<f64>,
    /// Mean of ln(live / predicted).
    pub(crate) mean: f64,
    /// Standard deviation of ln(live / predicted).
    pub(crate) deviation: f64,
    /// Part of the predictions that are within a tenth of the live ratio.
    pub(crate) within_tenth: f64,
}

const TENTH: f64 = 1.1;

impl Agreement {
    /// Agreement of pairs (predicted, live), which are logarithms of ratios; None without any pair.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let moments: Moments = pairs.iter().copied().collect();
        if moments.count == 0 {
            return None;
        }
        let freedom = f64::from(moments.count.saturating_sub(1).max(1));
        let near = pairs.iter().filter(|(predicted, live)| (live - predicted).abs() <= TENTH.ln()).count();
        Some(Self {
            pairs: moments.count,
            correlation: correlation(&moments),
            mean: moments.mean(-1.0, 1.0),
            deviation: (moments.squares(-1.0, 1.0) / freedom).sqrt(),
            within_tenth: near as f64 / pairs.len() as f64,
        })
    }
}

/// Pairs (predicted, live) of the candidates that `is_meant` selects, as logarithms of ratios.
pub(crate) fn pairs<'a>(
    programs: impl IntoIterator<Item = &'a JudgedProgram>,
    figure: PredictedFigure,
    is_meant: impl Fn(&JudgedCandidate) -> bool,
) -> Vec<(f64, f64)> {
    let candidates = programs.into_iter().flat_map(|program| &program.candidates);
    candidates.filter(|one| is_meant(one)).filter_map(|one| one.pair(figure)).collect()
}

/// Tables of reliability, one for each program. Each is learned from all other programs.
pub(crate) fn tables_of_others(programs: &[JudgedProgram]) -> Vec<ReliabilityTable> {
    let without = |left_out: usize| {
        let others = programs.iter().enumerate().filter(move |(at, _)| *at != left_out);
        reliability("the other programs", others.map(|(_, program)| program))
    };
    (0..programs.len()).map(without).collect()
}

/// The part of the live figures that lie in the interval which follows from the other programs; None without
/// any interval.
pub(crate) fn coverage(
    programs: &[JudgedProgram],
    others: &[ReliabilityTable],
    figure: PredictedFigure,
) -> Option<f64> {
    let (mut inside, mut all) = (0.0, 0.0);
    for (program, table) in programs.iter().zip(others) {
        for one in &program.candidates {
            let factors = table.factors(figure, &one.name, &program.facts);
            if let (Some(off), Some(factors)) = (one.off(figure), factors) {
                all += 1.0;
                inside += f64::from(u8::from(factors.contains(off.exp())));
            }
        }
    }
    (all > 0.0).then(|| inside / all)
}

#[cfg(test)]
mod tests {
    use imas_replay::reliability::RecordedRunFacts;

    use super::*;
    use crate::replay::made_up::program;

    #[test]
    fn perfect_predictions_agree_perfectly() {
        let agreement = Agreement::of(&[(0.1, 0.1), (0.5, 0.5), (-0.2, -0.2)]).unwrap();
        assert!((agreement.correlation.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((agreement.pairs, agreement.mean, agreement.within_tenth), (3, 0.0, 1.0));
    }

    #[test]
    fn a_bias_shows_in_the_mean_and_not_in_the_correlation() {
        let agreement = Agreement::of(&[(0.0, 0.3), (0.2, 0.5), (0.4, 0.7)]).unwrap();
        assert!((agreement.mean - 0.3).abs() < 1e-12 && agreement.deviation < 1e-9);
        assert!(agreement.correlation.unwrap() > 0.999 && agreement.within_tenth == 0.0);
        assert_eq!(Agreement::of(&[]), None);
        assert_eq!(Agreement::of(&[(1.0, 2.0)]).unwrap().correlation, None);
    }

    /// Every tenth of forty programs is far off: an interval for four of five covers the others.
    #[test]
    fn coverage_is_that_of_programs_that_did_not_make_the_interval() {
        let of = |i: usize| {
            let off = if i.is_multiple_of(10) { 1.0 } else { 0.001 * (i % 10) as f64 };
            program(&format!("p{i}"), RecordedRunFacts::default(), &[("a", (0.0, 0.0), (off, off))])
        };
        let programs: Vec<_> = (0..40).map(of).collect();
        let others = tables_of_others(&programs);
        let covered = coverage(&programs, &others, PredictedFigure::Cpu).unwrap();
        assert!((covered - 0.9).abs() < 1e-12, "{covered}");
        // A program that is off in its own way is outside of the interval that the others make.
        let near = |i: usize| {
            let off = 0.001 * i as f64;
            program(&format!("p{i}"), RecordedRunFacts::default(), &[("a", (0.0, 0.0), (off, off))])
        };
        let mut alone: Vec<_> = (0..20).map(near).collect();
        alone.push(program("c", RecordedRunFacts::default(), &[("a", (0.0, 0.0), (1.3, 1.3))]));
        let covered = coverage(&alone, &tables_of_others(&alone), PredictedFigure::Memory).unwrap();
        assert!((covered - 20.0 / 21.0).abs() < 1e-12, "{covered}");
    }
}
