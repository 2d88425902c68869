// SPDX-License-Identifier: Apache-2.0
//! The two figures of a trial that the policy looks at.

use serde::{Deserialize, Serialize};

/// Logarithms of a trial's costs. Only differences between trials of the same program are meaningful.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// ln of user and system CPU time.
    pub cpu: f64,
    /// ln of the mean of resident anonymous memory.
    pub memory: f64,
}

impl Point {
    /// Point of seconds and bytes; None unless both are positive numbers.
    pub fn new(cpu_s: f64, bytes: f64) -> Option<Self> {
        let is_figure = |x: f64| x.is_finite() && x > 0.0;
        (is_figure(cpu_s) && is_figure(bytes)).then(|| Self { cpu: cpu_s.ln(), memory: bytes.ln() })
    }

    /// Difference to the other point, by axis.
    pub fn over(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }

    /// w ln(cpu) + (1 - w) ln(memory): lower is better.
    pub fn score(self, w: f64) -> f64 {
        w * self.cpu + (1.0 - w) * self.memory
    }
}
