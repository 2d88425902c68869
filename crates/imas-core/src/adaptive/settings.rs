// SPDX-License-Identifier: Apache-2.0
//! Settings of the policy.

use serde::{Deserialize, Serialize};

use crate::compare::{CostLimits, Margins};

/// What the user optimises for.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Whatever the machine is short of; both equally when it is short of neither.
    #[default]
    Auto,
    /// CPU time alone: the fastest.
    Cpu,
    /// Memory alone: the leanest.
    Memory,
    /// CPU and memory equally, whatever the machine's conditions.
    Balanced,
}

/// Settings of the policy. Margins are given as fractions (0.02 = 2 %) and applied as differences of
/// logarithms.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(default)]
pub struct Settings {
    /// Smallest gain in CPU time worth a change.
    pub cpu_margin: f64,
    /// Smallest gain in memory worth a change.
    pub memory_margin: f64,
    /// Most CPU time of a pick over that of `system`: 0.25 is 25 % more.
    pub max_cpu: f64,
    /// Most memory of a pick over that of `system`: 0.25 is 25 % more.
    pub max_memory: f64,
    /// Confidence with which the incumbent must be beaten, over all candidates and all looks.
    pub confidence: f64,
    /// Least number of rounds before a candidate may replace the incumbent.
    pub min_rounds: u32,
    /// Greatest number of rounds; the answer is then the best known one.
    pub max_rounds: u32,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The objective.
    pub objective: Objective,
    /// Limit of the peak of resident memory, bytes. A candidate that exceeded it is not used. None: no limit.
    pub max_memory_bytes: Option<u64>,
    /// Trials older than this no longer count, seconds.
    pub max_age_s: f64,
    /// Interval of retests in seconds. Once the answer is settled, one round of the pick and `system` follows
    /// after each interval, to notice when the pick has become worse.
    pub watch_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        const DAY_S: f64 = 24.0 * 3600.0;
        Self {
            cpu_margin: Margins::USUAL.cpu,
            memory_margin: Margins::USUAL.memory,
            max_cpu: CostLimits::USUAL.cpu,
            max_memory: CostLimits::USUAL.memory,
            confidence: 0.95,
            min_rounds: 2,
            max_rounds: 8,
            seed: 1,
            objective: Objective::Auto,
            max_memory_bytes: None,
            max_age_s: 90.0 * DAY_S,
            watch_s: 7.0 * DAY_S,
        }
    }
}

impl Settings {
    /// Smallest gain in score that is worth a change at weight `w` of CPU: the cpu margin at 1, the memory
    /// margin at 0. In between, each margin counts with its axis' weight (w ln(1 + m)), and the weighted mean
    /// of both is taken.
    pub fn margin(&self, w: f64) -> f64 {
        let v = 1.0 - w;
        w * w * self.cpu_margin.ln_1p() + v * v * self.memory_margin.ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn margins_of_the_corners_and_the_middle() {
        let settings = Settings::default();
        assert!((settings.margin(1.0) - 1.02f64.ln()).abs() < 1e-12);
        assert!((settings.margin(0.0) - 1.05f64.ln()).abs() < 1e-12);
        assert!((settings.margin(0.5) - (1.02f64.ln() + 1.05f64.ln()) / 4.0).abs() < 1e-12);
    }
}
