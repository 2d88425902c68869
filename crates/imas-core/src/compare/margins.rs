// SPDX-License-Identifier: Apache-2.0
//! The smallest differences that count, and the most that a pick may cost.

/// Smallest differences worth a change, as parts of 1: 0.02 is 2 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Margins {
    /// Smallest difference in CPU time.
    pub cpu: f64,
    /// Smallest difference in memory.
    pub memory: f64,
}

impl Margins {
    /// The margins of every comparison, unless the user sets others.
    pub const USUAL: Self = Self { cpu: 0.02, memory: 0.05 };
}

/// Largest costs of a pick on the axis that it was not picked for, as parts of 1: 0.25 is 25 % more than `system`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostLimits {
    /// Most additional CPU time.
    pub cpu: f64,
    /// Most additional memory.
    pub memory: f64,
}

impl CostLimits {
    /// The limits of every pick, unless the user sets others (docs/decisions/0038).
    pub const USUAL: Self = Self { cpu: 0.25, memory: 0.25 };
    /// A pick may cost anything.
    pub const NONE: Self = Self { cpu: f64::MAX, memory: f64::MAX };
}
