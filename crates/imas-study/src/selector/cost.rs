// SPDX-License-Identifier: Apache-2.0
//! What a candidate gains a program in the figures of the paper, beside `system` in the same rounds.

use imas_core::candidate::Counted;
use imas_core::simulate::Program;

/// Gains over `system` in the paper's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PaperGain {
    /// ln of the ns per operation over those of `system`.
    pub(crate) time: f64,
    /// Fragmentation of `system` less that of the candidate, 0.1 = ten percentage points.
    pub(crate) frag: f64,
}

/// Averages over the counted rounds, as Algorithm 8 makes them. None without rounds.
pub(crate) fn paper_gain(program: &Program, rounds: &[usize], candidate: usize) -> Option<PaperGain> {
    let mean = |i: usize, get: fn(&Counted) -> f64| -> Option<f64> {
        let values = rounds.iter().map(|&r| program.counted[r][i].as_ref().map(get));
        let values = values.collect::<Option<Vec<f64>>>().filter(|v| !v.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    let (ns, system_ns) = (mean(candidate, |c| c.ns_per_op)?, mean(0, |c| c.ns_per_op)?);
    let time = (ns / system_ns).ln();
    let frag = mean(0, |c| c.frag)? - mean(candidate, |c| c.frag)?;
    time.is_finite().then_some(PaperGain { time, frag })
}
