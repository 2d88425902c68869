// SPDX-License-Identifier: Apache-2.0
//! The spread of runs of the same program under the same candidate.

use imas_core::adaptive::Point;
use imas_core::printable::counted;
use imas_core::stats::median;
use imas_simulate::SimulatedProgram;

use crate::band::Band;

/// Spread above which the runs of a program cannot show differences of a few per cent.
pub(crate) const NOISY: f64 = 0.10;

/// Standard deviations of logarithms: 0.05 is about 5 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Spread of CPU time under one candidate, median over the candidates.
    pub(crate) cpu: f64,
    /// Spread of the ratio of CPU time to `system` in the same round, median over the other
    /// candidates.
    pub(crate) paired_cpu: f64,
    /// Spread of memory under one candidate, median over the candidates.
    pub(crate) memory: f64,
    /// Spread of the ns per operation of counted runs under one candidate, median over the candidates. None
    /// without counted runs.
    pub(crate) time: Option<f64>,
}

impl Noise {
    /// Noise of one program. None with fewer than two runs of every candidate.
    pub(crate) fn of(program: &SimulatedProgram) -> Option<Self> {
        let over = |value: fn(Point, Point) -> f64, from: usize| {
            let spreads = (from..program.candidates.len()).filter_map(|i| {
                let pairs = program.rounds.iter().filter_map(|round| Some(value(round[i]?, round[0]?)));
                deviation(&pairs.collect::<Vec<_>>())
            });
            median(&spreads.collect::<Vec<_>>())
        };
        Some(Self {
            cpu: over(|point, _| point.cpu, 0)?,
            paired_cpu: over(|point, system| point.cpu - system.cpu, 1)?,
            memory: over(|point, _| point.memory, 0)?,
            time: time(program),
        })
    }
}

fn time(program: &SimulatedProgram) -> Option<f64> {
    let spreads = (0..program.candidates.len()).filter_map(|i| {
        let counted = program.counted.iter().filter_map(|round| Some(round[i].as_ref()?.ns_per_op.ln()));
        deviation(&counted.filter(|x| x.is_finite()).collect::<Vec<_>>())
    });
    median(&spreads.collect::<Vec<_>>())
}

/// The noise of the paper's metric in a sentence. Empty without counted runs.
fn sentence_on_time(noises: &[Noise]) -> String {
    let Some(typical) = median(&noises.iter().filter_map(|noise| noise.time).collect::<Vec<_>>()) else {
        return String::new();
    };
    format!(
        " The paper's nanoseconds per operation varied by a factor of {:.1} (one standard deviation of the logarithm, median of the programs): it weighs four \
         classes of calls alike, and one that is rare in a program is timed a few times only.",
        typical.exp()
    )
}

fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())
}

/// The noise over all programs in a sentence.
pub(crate) fn sentence(noises: &[Noise]) -> String {
    let band = |get: fn(&Noise) -> f64| {
        Band::of(&noises.iter().map(get).collect::<Vec<_>>()).map_or_else(
            || "unknown".to_owned(),
            |b| format!("{:.1} % (up to {:.1} %)", b.median * 100.0, b.high * 100.0),
        )
    };
    let noisy = noises.iter().filter(|noise| noise.cpu > NOISY).count();
    format!(
        "How noisy the runs were: CPU time of a program under one candidate varied by {} from round to round (standard deviation, \
         median of the programs and 95 % point), its ratio to system in the same round by {}, memory by {}. \
         {noisy} of {} vary by more than {:.0} %: their figures of a few per cent mean little one by one, and only their \
         mean over many programs is worth reading.{}",
        band(|n| n.cpu),
        band(|n| n.paired_cpu),
        band(|n| n.memory),
        counted(noises.len(), "program"),
        NOISY * 100.0,
        sentence_on_time(noises)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_of_a_whole_round_is_not_in_the_ratio() {
        let point = |cpu: f64| Some(Point { cpu, memory: 0.0 });
        let rounds = [0.0, 0.5, 0.1, 0.4].map(|slow| vec![point(slow), point(slow - 0.1)]).to_vec();
        let candidates = vec!["system".to_owned(), "a".to_owned()];
        let program = SimulatedProgram {
            name: "p".into(),
            candidates,
            rounds,
            counted: vec![],
            same_runs: false,
            truth: None,
        };
        let noise = Noise::of(&program).unwrap();
        assert!(noise.cpu > 0.2 && noise.paired_cpu < 1e-9 && noise.memory == 0.0, "{noise:?}");
        assert!(sentence(&[noise]).contains("1 of 1 program "));
    }
}
