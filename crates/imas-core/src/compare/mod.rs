// SPDX-License-Identifier: Apache-2.0
//! The one judge: is this better than that?
//!
//! Everything in IMAS that calls a candidate better or worse asks here. Margins, the error of a proof and the tests
//! are defined once (docs/decisions/0038).
//!
//! - [`paired`]: runs in rounds, each beside a run of `system`: benchmarks of commands and servers. Corrected for the
//!   number of candidates, and for looks at the rounds while they are made
//! - [`estimate`]: an estimated gain with its error: of trials of the policy ([`crate::adaptive`]), of a fleet
//!   ([`crate::fleet_prior`])
//! - [`before_after`]: one thing before a change and after it: `--baseline`, `--watch`
//! - [`margins`]: the smallest differences that count, and the most that a pick may cost
//! - [`residue`]: scatter of runs, without the effects of candidate and round

pub mod before_after;
pub mod estimate;
pub mod margins;
pub mod paired;
pub mod residue;

pub use before_after::{EventCount, chance_of_events, ratio_after, ratio_within};
pub use estimate::{Answer, Estimate, Spread};
pub use margins::{CostLimits, FigureMargin, LARGEST_BOUND, MARGINS, Margins, smallest_difference};
pub use paired::{
    Demand, ERROR, FEWEST_ROUNDS, KnownFigure, Looks, NoiseFloor, PairedRatio, PairedRuns, Resampling,
    is_cost_proven, judge,
};
pub use residue::Residue;
