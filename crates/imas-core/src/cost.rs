// SPDX-License-Identifier: Apache-2.0
//! Cost of a run from its event counts: instructions, page faults, cache misses and TLB misses, each at a
//! price.
//!
//! On a shared machine CPU seconds depend on the neighbours; counts hardly do. The prices are fitted to the
//! runs themselves: least squares of relative errors with no price below 0 (C. L. Lawson and R. J. Hanson,
//! Solving Least Squares Problems, 1974, chapter 23). They are found one at a time (V. Franc, V. Hlavac and
//! M. Navara, Sequential Coordinate-Wise Algorithm for the Non-negative Least Squares Problem, CAIP 2005),
//! because the counts of one program are strongly correlated and solving for all at once would be
//! ill-conditioned.

use serde::Serialize;

/// Number of kinds of counts that are priced.
pub const KINDS: usize = 4;

/// One run: its CPU seconds, and its instructions, page faults, cache misses and misses of the data TLB.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Priced {
    /// User and system time.
    pub cpu_s: f64,
    /// Instructions, page faults, cache misses and misses of the data TLB, in this order.
    pub counts: [f64; KINDS],
}

/// Seconds per count, in the order of [`Priced::counts`]; none is negative.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Prices {
    /// Price of an instruction that hits every cache.
    pub instruction_s: f64,
    /// Price of a page fault.
    pub fault_s: f64,
    /// Price of a miss of the last cache.
    pub cache_miss_s: f64,
    /// Price of a miss of the data TLB.
    pub tlb_miss_s: f64,
}

/// Sweeps over the prices. Correlated prices converge slowly one by one, but their sum converges fast.
const SWEEPS: usize = 20_000;
/// The iteration ends after a sweep that changes no price by more than this share of a run's time.
const STILL: f64 = 1e-12;
/// Fewer runs than prices fit anything.
const FEWEST: usize = 2 * KINDS;

impl Prices {
    /// The prices under which the runs' counts explain their CPU time best. None with fewer than eight runs,
    /// or with a run without instructions or CPU time.
    #[must_use]
    pub fn fit(runs: &[Priced]) -> Option<Self> {
        let sound = |run: &Priced| {
            run.cpu_s > 0.0 && run.counts[0] > 0.0 && run.counts.iter().all(|n| n.is_finite() && *n >= 0.0)
        };
        if runs.len() < FEWEST || !runs.iter().all(sound) {
            return None;
        }
        let scale: [f64; KINDS] = std::array::from_fn(|kind| mean(runs, |run| run.counts[kind] / run.cpu_s));
        let rows: Vec<[f64; KINDS]> = runs
            .iter()
            .map(|run| std::array::from_fn(|k| relative(run.counts[k] / run.cpu_s, scale[k])))
            .collect();
        let parts = least_squares(&rows);
        let [instruction_s, fault_s, cache_miss_s, tlb_miss_s] =
            std::array::from_fn(|kind| relative(parts[kind], scale[kind]));
        Some(Self { instruction_s, fault_s, cache_miss_s, tlb_miss_s })
    }

    /// Seconds that the counts of a run cost.
    #[must_use]
    pub fn cost_s(&self, counts: &[f64; KINDS]) -> f64 {
        let prices = [self.instruction_s, self.fault_s, self.cache_miss_s, self.tlb_miss_s];
        prices.iter().zip(counts).map(|(price, count)| price * count).sum()
    }
}

/// The cost of every run by prices fitted without that run: the odd runs price the even ones and the reverse.
/// With prices fitted to their own noise the runs would look too steady. None where either half cannot be
/// fitted.
#[must_use]
pub fn cost_by_others(runs: &[Priced]) -> Option<Vec<f64>> {
    let half =
        |odd: usize| -> Vec<Priced> { runs.chunks(2).skip(odd).step_by(2).flatten().copied().collect() };
    let prices = [Prices::fit(&half(1))?, Prices::fit(&half(0))?];
    Some(runs.iter().enumerate().map(|(i, run)| prices[i / 2 % 2].cost_s(&run.counts)).collect())
}

fn mean(runs: &[Priced], figure: impl Fn(&Priced) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len() as f64
}

/// 0 of a count that never occurs.
fn relative(value: f64, scale: f64) -> f64 {
    if scale > 0.0 { value / scale } else { 0.0 }
}

/// x >= 0 with the least sum of (row * x - 1)^2.
fn least_squares(rows: &[[f64; KINDS]]) -> [f64; KINDS] {
    let product = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
    let gram: [[f64; KINDS]; KINDS] = std::array::from_fn(|i| std::array::from_fn(|j| product(i, j)));
    let sums: [f64; KINDS] = std::array::from_fn(|i| rows.iter().map(|row| row[i]).sum());
    let mut x = [0.0; KINDS];
    for _ in 0..SWEEPS {
        let mut moved = 0.0_f64;
        for i in 0..KINDS {
            if gram[i][i] == 0.0 {
                continue;
            }
            let slope = gram[i].iter().zip(&x).map(|(g, x)| g * x).sum::<f64>() - sums[i];
            let next = (x[i] - slope / gram[i][i]).max(0.0);
            moved = moved.max((next - x[i]).abs());
            x[i] = next;
        }
        if moved < STILL {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    const TRUE: Prices =
        Prices { instruction_s: 0.3e-9, fault_s: 0.5e-6, cache_miss_s: 60e-9, tlb_miss_s: 10e-9 };

    /// Runs of one program whose counts vary by themselves, with CPU time off by up to `noise` either way.
    fn runs(count: usize, noise: f64, seed: u64) -> Vec<Priced> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut about = |middle: f64, spread: f64| middle * (1.0 + random.random_range(-spread..=spread));
        (0..count)
            .map(|_| {
                let counts = [about(1e9, 0.01), about(2e5, 0.3), about(1e6, 0.3), about(4e6, 0.3)];
                Priced { cpu_s: about(TRUE.cost_s(&counts), noise), counts }
            })
            .collect()
    }

    fn within(found: f64, truth: f64, part: f64) -> bool {
        (found / truth - 1.0).abs() < part
    }

    #[test]
    fn prices_are_found_exactly_where_there_is_no_noise() {
        let found = Prices::fit(&runs(40, 0.0, 1)).unwrap();
        assert!(within(found.instruction_s, TRUE.instruction_s, 1e-6), "{found:?}");
        assert!(within(found.fault_s, TRUE.fault_s, 1e-6), "{found:?}");
        assert!(within(found.cache_miss_s, TRUE.cache_miss_s, 1e-6), "{found:?}");
        assert!(within(found.tlb_miss_s, TRUE.tlb_miss_s, 1e-6), "{found:?}");
    }

    #[test]
    fn prices_are_found_nearly_where_there_is_noise() {
        let found = Prices::fit(&runs(4000, 0.1, 2)).unwrap();
        assert!(within(found.instruction_s, TRUE.instruction_s, 0.1), "{found:?}");
        assert!(
            within(found.fault_s, TRUE.fault_s, 0.2) && within(found.cache_miss_s, TRUE.cache_miss_s, 0.2)
        );
    }

    #[test]
    fn the_cost_is_steadier_than_time_and_right_on_average() {
        let runs = runs(48, 0.1, 3);
        let costs = cost_by_others(&runs).unwrap();
        let error = |of: &dyn Fn(usize) -> f64| {
            let errors = runs.iter().enumerate().map(|(i, run)| (of(i) / TRUE.cost_s(&run.counts)).ln());
            let errors: Vec<f64> = errors.collect();
            (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt()
        };
        let (cost, time) = (error(&|i| costs[i]), error(&|i| runs[i].cpu_s));
        assert!(cost < time / 2.0 && time > 0.05, "{cost} {time}");
    }

    #[test]
    fn no_price_is_negative_and_what_never_occurs_is_free() {
        let mut runs = runs(40, 0.0, 4);
        for run in &mut runs {
            run.counts[2] = 0.0;
            run.counts[3] = 5e6 - run.counts[1]; // falls while time rises
            run.cpu_s = 0.3 + run.counts[1] * 0.5e-6;
        }
        let found = Prices::fit(&runs).unwrap();
        assert_eq!(found.cache_miss_s, 0.0);
        assert!(found.tlb_miss_s >= 0.0 && found.fault_s > 0.0, "{found:?}");
    }

    #[test]
    fn uncounted_trials_have_no_cost() {
        assert_eq!(Prices::fit(&runs(7, 0.0, 5)), None);
        let mut uncounted = runs(40, 0.0, 6);
        uncounted[3].counts[0] = 0.0;
        assert_eq!(Prices::fit(&uncounted), None);
        assert_eq!(cost_by_others(&runs(15, 0.0, 7)), None);
    }
}
