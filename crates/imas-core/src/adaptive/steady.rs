// SPDX-License-Identifier: Apache-2.0
//! Winsorizing of outlying runs: something else used the machine during one run.
//!
//! Median polish (J. W. Tukey, "Exploratory Data Analysis", 1977) estimates the effects of candidate and
//! round; an outlier hardly moves it. The residual of each run is then limited to a multiple of the program's
//! usual residual (P. J. Huber, "Robust Statistics", 1981). So a mean over rounds and its spread do not
//! depend on one run of many.

use super::Point;
use super::trial::JudgedTrial;
use crate::stats::median;

/// Residuals up to this number of standard deviations stay as they are.
const LIMIT: f64 = 2.5;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// Factor from the upper quartile of absolute deviations to the standard deviation, for normal noise.
const QUARTILE_TO_SIGMA: f64 = 1.0 / 1.1503;
/// Least noise that is assumed, as a difference of logarithms.
const LEAST_SIGMA: f64 = 0.005;
/// With fewer rounds of a candidate an outlier cannot be identified.
const ROUNDS: usize = 3;
/// Sweeps of the median polish; the second one changes little.
const SWEEPS: usize = 3;

/// Trials of the rounds, with outliers limited.
pub(crate) fn steady(rounds: &[&[JudgedTrial]], candidates: usize) -> Vec<Vec<JudgedTrial>> {
    let cpu = limited(&table(rounds, candidates, |point| point.cpu));
    let memory = limited(&table(rounds, candidates, |point| point.memory));
    let steadied = |(round, trials): (usize, &&[JudgedTrial])| -> Vec<JudgedTrial> {
        let of = |trial: &JudgedTrial| JudgedTrial {
            candidate: trial.candidate,
            point: cpu[round][trial.candidate]
                .zip(memory[round][trial.candidate])
                .map(|(cpu, memory)| Point { cpu, memory }),
        };
        trials.iter().map(of).collect()
    };
    rounds.iter().enumerate().map(steadied).collect()
}

/// Figures of each round, for each candidate. None where it had no trial with figures.
type Table = Vec<Vec<Option<f64>>>;

fn table(rounds: &[&[JudgedTrial]], candidates: usize, axis: fn(&Point) -> f64) -> Table {
    let row = |round: &&[JudgedTrial]| {
        let mut row = vec![None; candidates];
        for trial in *round {
            row[trial.candidate] = trial.point.as_ref().map(axis);
        }
        row
    };
    rounds.iter().map(row).collect()
}

fn limited(table: &Table) -> Table {
    let rest = polished(table);
    let runs = |candidate: usize| rest.iter().filter(|row| row[candidate].is_some()).count();
    let candidates = rest.first().map_or(0, Vec::len);
    let known: Vec<bool> = (0..candidates).map(|candidate| runs(candidate) >= ROUNDS).collect();
    let mut sizes: Vec<f64> = rest.iter().flatten().filter_map(|x| *x).map(f64::abs).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    // The polish fits one run exactly for each round and each candidate; these residuals of 0 carry no noise.
    let runs_of = |row: &&Vec<Option<f64>>| row.iter().any(Option::is_some);
    let fitted = rest.iter().filter(runs_of).count() + (0..candidates).filter(|&i| runs(i) > 0).count();
    let Some(middle) = median(sizes.get(fitted.saturating_sub(1)..).unwrap_or(&[])) else {
        return table.clone();
    };
    // Where more than a quarter of a candidate's runs are outliers, its runs simply vary: they are no
    // outliers.
    let own = |i: usize| upper_quartile(rest.iter().filter_map(|row| row[i]).map(f64::abs).collect());
    let most: Vec<f64> = (0..candidates)
        .map(|i| LIMIT * (TO_SIGMA * middle).max(QUARTILE_TO_SIGMA * own(i)).max(LEAST_SIGMA))
        .collect();
    let drawn_in = |(row, rest): (&Vec<Option<f64>>, &Vec<Option<f64>>)| -> Vec<Option<f64>> {
        let cell = |candidate: usize| {
            let (x, rest) = (row[candidate]?, rest[candidate]?);
            Some(if known[candidate] { x - rest + rest.clamp(-most[candidate], most[candidate]) } else { x })
        };
        (0..candidates).map(cell).collect()
    };
    table.iter().zip(&rest).map(drawn_in).collect()
}

/// 0 when empty.
fn upper_quartile(mut sizes: Vec<f64>) -> f64 {
    sizes.sort_unstable_by(f64::total_cmp);
    let place = (3 * sizes.len()).div_ceil(4).saturating_sub(1);
    sizes.get(place).copied().unwrap_or(0.0)
}

/// Residuals after the effects of candidates and rounds.
fn polished(table: &Table) -> Table {
    let mut rest = table.clone();
    let candidates = rest.first().map_or(0, Vec::len);
    for _ in 0..SWEEPS {
        for candidate in 0..candidates {
            let column: Vec<f64> = rest.iter().filter_map(|row| row[candidate]).collect();
            let middle = median(&column).unwrap_or(0.0);
            for x in rest.iter_mut().filter_map(|row| row[candidate].as_mut()) {
                *x -= middle;
            }
        }
        for row in &mut rest {
            let middle = median(&row.iter().filter_map(|x| *x).collect::<Vec<_>>()).unwrap_or(0.0);
            for x in row.iter_mut().flatten() {
                *x -= middle;
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(table: &[[f64; 3]]) -> Vec<Vec<JudgedTrial>> {
        let point = |cpu| Some(Point { cpu, memory: 0.0 });
        let row = |row: &[f64; 3]| {
            row.iter()
                .enumerate()
                .map(|(candidate, cpu)| JudgedTrial { candidate, point: point(*cpu) })
                .collect()
        };
        table.iter().map(row).collect()
    }

    fn cpus(table: &[[f64; 3]]) -> Vec<Vec<f64>> {
        let rounds = rounds(table);
        let rounds: Vec<&[JudgedTrial]> = rounds.iter().map(Vec::as_slice).collect();
        let row = |row: &Vec<JudgedTrial>| row.iter().map(|trial| trial.point.unwrap().cpu).collect();
        steady(&rounds, 3).iter().map(row).collect()
    }

    /// A slow round and a slow candidate are left alone; a slow run is limited.
    #[test]
    fn only_an_odd_run_is_shrunk() {
        let mut table = [[0.0, 0.1, 0.3], [0.5, 0.6, 0.8], [0.2, 0.3, 0.5], [0.1, 0.2, 0.4]];
        assert!(
            cpus(&table).iter().flatten().zip(table.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-12)
        );
        table[1][2] += 0.7;
        let steadied = cpus(&table);
        assert!((steadied[1][2] - (0.8 + LIMIT * LEAST_SIGMA)).abs() < 1e-9, "{steadied:?}");
        assert!((steadied[1][1] - 0.6).abs() < 1e-9);
    }

    #[test]
    fn of_two_runs_none_is_the_odd_one() {
        let table = [[0.0, 0.1, 0.3], [0.0, 0.1, 1.3]];
        assert_eq!(cpus(&table), table.map(|row| row.to_vec()));
    }
}
