// SPDX-License-Identifier: Apache-2.0
//! Programs that never were: their truth is known, their runs are drawn from it.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::program::SimulatedProgram;
use imas_core::adaptive::Point;
use imas_core::candidate::CountedSample;

/// Numbers and spreads to draw by. Spreads are standard deviations of logarithms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct World {
    /// Programs.
    pub programs: usize,
    /// Candidates, `system` included.
    pub candidates: usize,
    /// Rounds of each program.
    pub rounds: usize,
    /// Spread of a candidate's true CPU time over `system`.
    pub cpu_effect: f64,
    /// Spread of a candidate's true memory over `system`.
    pub memory_effect: f64,
    /// Share of programs to which all candidates are alike.
    pub indifferent: f64,
    /// Spread of a run's CPU time about its truth. Each program has a spread of its own, up to twice as much
    /// or half of this one.
    pub cpu_noise: f64,
    /// Spread of a run's memory about its truth, with the same factor for each program.
    pub memory_noise: f64,
    /// Spread of the machine's speed from round to round, common to all runs of a round.
    pub drift: f64,
    /// Share of runs that are slowed down by something else.
    pub outliers: f64,
    /// How many times as long the runs take that are slowed down.
    pub outlier: f64,
    /// Degrees of freedom of the noise: Student's t, with the spread it would have if it were normal; 0:
    /// normal.
    pub tails: u32,
    /// How much noisier one candidate of a program is than another: spread of the logarithm of its noise.
    pub uneven: f64,
}

impl Default for World {
    /// About what real programs show on a shared machine (docs/measuring.md).
    fn default() -> Self {
        Self {
            programs: 200,
            candidates: 6,
            rounds: 16,
            cpu_effect: 0.06,
            memory_effect: 0.20,
            indifferent: 0.2,
            cpu_noise: 0.05,
            memory_noise: 0.02,
            drift: 0.10,
            outliers: 0.03,
            outlier: 1.5,
            tails: 0,
            uneven: 0.0,
        }
    }
}

impl World {
    /// The programs; the same seed gives the same ones.
    pub fn programs(&self, seed: u64) -> Vec<SimulatedProgram> {
        let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
        (0..self.programs).map(|number| self.program(number, &mut random)).collect()
    }

    fn program(&self, number: usize, random: &mut Random) -> SimulatedProgram {
        let alike = random.unit() < self.indifferent;
        let loudness = (random.normal() * 0.35).exp();
        let truth: Vec<Point> = (0..self.candidates)
            .map(|i| if alike || i == 0 { Point { cpu: 0.0, memory: 0.0 } } else { self.truth(random) })
            .collect();
        let loud: Vec<f64> = truth.iter().map(|_| loudness * self.unevenness(random)).collect();
        let rounds = (0..self.rounds).map(|_| self.round(&truth, &loud, random)).collect();
        let counted =
            (0..5).map(|_| truth.iter().map(|t| Some(self.counted(*t, loudness, random))).collect());
        SimulatedProgram {
            name: format!("synthetic-{number}"),
            candidates: (0..self.candidates).map(name).collect(),
            counted: counted.collect(),
            same_runs: false,
            rounds,
            truth: Some(truth),
        }
    }

    /// Other allocators tend to need more memory than glibc and a little less CPU.
    fn truth(&self, random: &mut Random) -> Point {
        Point {
            cpu: self.cpu_effect * (random.normal() - 0.3),
            memory: self.memory_effect * (random.normal() + 0.3),
        }
    }

    fn round(&self, truth: &[Point], loud: &[f64], random: &mut Random) -> Vec<Option<Point>> {
        let drift = self.drift * random.normal();
        let run = |(truth, loud): (&Point, &f64)| {
            let odd = if random.unit() < self.outliers { self.outlier.ln() } else { 0.0 };
            Some(Point {
                cpu: truth.cpu + drift + odd + loud * self.cpu_noise * self.noise(random),
                memory: truth.memory + loud * self.memory_noise * self.noise(random),
            })
        };
        truth.iter().zip(loud).map(run).collect()
    }

    fn unevenness(&self, random: &mut Random) -> f64 {
        if self.uneven > 0.0 { (self.uneven * random.normal()).exp() } else { 1.0 }
    }

    /// Student's t is a normal variable over the root of a mean of squares of others.
    fn noise(&self, random: &mut Random) -> f64 {
        let normal = random.normal();
        if self.tails == 0 {
            return normal;
        }
        let squares: f64 = (0..self.tails).map(|_| random.normal().powi(2)).sum();
        normal / (squares / f64::from(self.tails)).sqrt()
    }

    /// The paper's figures hang together with CPU and memory, loosely: time in malloc is a tenth of the
    /// whole, so a difference there looks ten times as large, and what goes on outside the calls is not in
    /// it.
    fn counted(&self, truth: Point, loudness: f64, random: &mut Random) -> CountedSample {
        let ns = 40.0 * (6.0 * truth.cpu + 0.3 * random.normal() * loudness).exp();
        let resident = 1e7 * truth.memory.exp();
        let heap_bytes = resident * (1.0 + 0.5 * random.unit());
        CountedSample { ns_per_op: ns, frag: (1.0 - 0.7e7 / heap_bytes).max(0.0), heap_bytes }
    }
}

fn name(index: usize) -> String {
    const NAMES: [&str; 6] = ["system", "glibc:arena1", "jemalloc", "tcmalloc", "hoard", "mimalloc"];
    NAMES.get(index).map_or_else(|| format!("candidate-{index}"), |name| (*name).to_owned())
}

struct Random(ChaCha8Rng);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// Standard normal, by the inverse of its distribution.
    fn normal(&mut self) -> f64 {
        let p = self.unit().clamp(1e-12, 1.0 - 1e-12);
        Normal::standard().inverse_cdf(p)
    }
}
