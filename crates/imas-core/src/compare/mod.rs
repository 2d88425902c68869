// SPDX-License-Identifier: Apache-2.0
//! The one judge: is this better than that?
//!
//! Everything in IMAS that calls a candidate better or worse asks here. Margins, the error of a proof and the tests
//! are defined once (docs/decisions/0038).
//!
//! - here: the smallest differences that count, each with its reason, and the most that a pick may cost
//! - [`paired`]: runs in rounds, each beside a run of `system`: benchmarks of commands and servers. Corrected for the
//!   number of candidates, and for looks at the rounds while they are made. Also one thing before a change and after it:
//!   `--baseline`, `--watch`
//! - [`estimate`]: an estimated gain with its error: of trials of the policy ([`crate::adaptive`]), of a fleet
//!   ([`crate::fleet_prior`]); and the scatter of runs, without the effects of candidate and round

pub mod estimate;
pub mod paired;

pub use estimate::{Answer, Estimate, Residue, Spread};
pub use paired::{
    Demand, ERROR, EventCount, FEWEST_ROUNDS, KnownFigure, Looks, NoiseFloor, PairedRatio, PairedRuns,
    Resampling, chance_of_events, is_cost_proven, judge, ratio_after, ratio_within,
};

/// A figure with the smallest difference in it that counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FigureMargin {
    /// Name of the figure.
    pub figure: &'static str,
    /// Smallest difference, as a part of 1: 0.02 is 2 %.
    pub least: f64,
    /// Reason for it.
    pub reason: &'static str,
}

/// A bench that could not see a gain of this size is too noisy to tell, and no bound of it is worth naming.
pub const LARGEST_BOUND: f64 = 0.10;
const CPU: f64 = 0.02;
const MEMORY: f64 = 0.05;

/// All margins of IMAS. A figure that is not listed has the one of `memory`.
pub const MARGINS: [FigureMargin; 10] = [
    of(
        "cpu",
        CPU,
        "below it the order of functions in memory decides: the same source, linked otherwise, differs by as much",
    ),
    of("cpu_day", CPU, "as CPU time"),
    of("rate", CPU, "requests for the same CPU time"),
    of("cycle", CPU, "elapsed time of the same work"),
    of("balance", CPU, "what the smaller of both margins alone makes of it"),
    of(
        "memory",
        MEMORY,
        "nobody changes a service for less, and looks at memory miss as much between two of them",
    ),
    of("p99", MEMORY, "latency: one slow request of a hundred moves it by as much"),
    of("grows", 0.05, "memory that still grows in the later half of a watch"),
    of(
        "highest",
        0.10,
        "a watched unit above all that it ever had: a maximum of few looks grows with their number",
    ),
    of("bound", LARGEST_BOUND, "a bench that cannot see this much says so, and names no bound"),
];

const fn of(figure: &'static str, least: f64, reason: &'static str) -> FigureMargin {
    FigureMargin { figure, least, reason }
}

/// Smallest difference in that figure that counts.
pub fn smallest_difference(figure: &str) -> f64 {
    MARGINS.iter().find(|one| one.figure == figure).map_or(MEMORY, |one| one.least)
}

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
    pub const USUAL: Self = Self { cpu: CPU, memory: MEMORY };
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
