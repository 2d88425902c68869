// SPDX-License-Identifier: Apache-2.0
//! Random walks of one version of the allocator, over the seeds.

use crate::band::Band;
use crate::band::mean;
use crate::error::StudyResult;
use crate::program::{figures, rows};
use serde::Deserialize;
use std::path::Path;

/// Number of iterations of a walk, after the 40 requests at its start.
pub(crate) const ITERATIONS: usize = 1000;

/// The state of the arena after an iteration.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) iteration: usize,
    pub(crate) free_blocks: f64,
    pub(crate) mean_free_bytes: f64,
    pub(crate) used_blocks: f64,
    pub(crate) refused: f64,
}

/// The walks of one version. Walk `i` has seed `i + 1`, and rows 0 to [`ITERATIONS`].
#[derive(Debug)]
pub(crate) struct Walks(pub(crate) Vec<Vec<Row>>);

pub(crate) fn one(driver: &Path, version: &str, seed: u32) -> StudyResult<Vec<Row>> {
    let walk: Vec<Row> = rows(driver, &["walk", version, &seed.to_string()])?;
    let complete = walk.len() == ITERATIONS + 1 && walk.iter().enumerate().all(|(i, r)| r.iteration == i);
    if complete { Ok(walk) } else { Err(figures(driver, "a walk without its 1,001 rows")) }
}

impl Walks {
    /// The band of the figure over the seeds, after each iteration.
    pub(crate) fn bands(&self, of: fn(&Row) -> f64) -> Vec<Band> {
        (0..=ITERATIONS).filter_map(|i| self.band_at(i, of)).collect()
    }

    pub(crate) fn band_at(&self, iteration: usize, of: fn(&Row) -> f64) -> Option<Band> {
        let values: Vec<f64> = self.0.iter().filter_map(|w| w.get(iteration)).map(of).collect();
        Band::of(&values)
    }

    pub(crate) fn median_at(&self, iteration: usize, of: fn(&Row) -> f64) -> f64 {
        self.band_at(iteration, of).map_or(0.0, |b| b.median)
    }

    /// Means of the figure from `iteration` to the end, one for each seed: the value that is read off a
    /// curve.
    pub(crate) fn levels(&self, iteration: usize, of: fn(&Row) -> f64) -> Vec<f64> {
        self.0.iter().map(|walk| mean(walk.iter().skip(iteration).map(of))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, Walks};

    fn walk(free_blocks: &[f64]) -> Vec<Row> {
        let row = |(iteration, &free_blocks)| Row {
            iteration,
            free_blocks,
            mean_free_bytes: 0.0,
            used_blocks: 0.0,
            refused: 0.0,
        };
        free_blocks.iter().enumerate().map(row).collect()
    }

    #[test]
    fn levels_are_per_seed_and_bands_across() {
        let walks = Walks(vec![walk(&[1.0, 2.0, 4.0]), walk(&[1.0, 6.0, 8.0])]);
        assert_eq!(walks.levels(1, |r| r.free_blocks), [3.0, 7.0]);
        assert!((walks.median_at(2, |r| r.free_blocks) - 6.0).abs() < 1e-9);
    }
}
