// SPDX-License-Identifier: Apache-2.0
//! Gains of a candidate in the paper's figures, compared with `system` in the same rounds.

use imas_core::candidate::CountedSample;
use imas_simulate::SimulatedProgram;

/// Gains over `system` in the paper's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PaperGain {
    /// Logarithm of the ratio of ns per operation to that of `system`.
    pub(crate) time: f64,
    /// Fragmentation of `system` minus that of the candidate; 0.1 is ten percentage points.
    pub(crate) frag: f64,
}

/// Averages over the counted rounds, as Algorithm 8 computes them. None without rounds.
pub(crate) fn paper_gain(
    program: &SimulatedProgram,
    rounds: &[usize],
    candidate: usize,
) -> Option<PaperGain> {
    let mean = |i: usize, get: fn(&CountedSample) -> f64| -> Option<f64> {
        let values = rounds.iter().map(|&r| program.counted[r][i].as_ref().map(get));
        let values = values.collect::<Option<Vec<f64>>>().filter(|v| !v.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    let (ns, system_ns) = (mean(candidate, |c| c.ns_per_op)?, mean(0, |c| c.ns_per_op)?);
    let time = (ns / system_ns).ln();
    let frag = mean(0, |c| c.frag)? - mean(candidate, |c| c.frag)?;
    time.is_finite().then_some(PaperGain { time, frag })
}
