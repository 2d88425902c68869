// SPDX-License-Identifier: Apache-2.0
//! The default policy: as few trials as the answer needs, and never a change that is not proven.
//!
//! ```text
//! trials in order of time -> Board (rounds, paired with system) -> judge(weight) -> Judgement: next trial, or the pick
//! ```
//!
//! Trials go in rounds: `system` and every candidate still in the running, once each, in a seeded random order. What counts
//! is the difference of logarithms to `system` in the same round, so that what slows the machine for a while falls out; a run that does not fit the others of its
//! candidate and its round is drawn in ([`steady`]). A candidate leaves the running when what it may still be better by, or still be proven to be better by, is not
//! worth its trials ([`worth`]): in that, memory is believed after a round or two, CPU later. To replace the incumbent a candidate must beat it by the margin, differ from
//! it for the better with 95 % confidence over all candidates and all looks, by the spread that the program's own trials show (a variance moderated towards the common one:
//! G. K. Smyth, "Linear models and empirical Bayes methods", SAGMB 3, 2004), and be believed better on the whole with as much ([`judge`]'s `proof`): what is usual for
//! programs decides who leaves the running, but is never the proof that there is a difference.
//!
//! A candidate that joins later has as many rounds before it as those that were there from the start; one that has left the set ([`Role::Kept`]) gets no more trials,
//! but stays the pick until another is proven better still.
//!
//! - [`settings`]: margins, confidence, limits
//! - [`weight`]: the machine's pressure as a weight between CPU and memory
//! - [`point`]: the two figures of a trial
//! - [`known`]: stored trials made ready
//! - [`trial`]: one trial
//! - [`board`]: rounds and pairs
//! - [`steady`]: odd runs, drawn in
//! - [`noise`]: how far a mean of pairs can be off
//! - [`worth`]: what further trials of a candidate are worth
//! - [`judge`]: who is out, what is next, what is picked
//! - [`expected`]: what each pick gains
//! - [`wishes`]: what the user says of it in a configuration

pub mod board;
pub mod expected;
pub mod judge;
pub mod known;
pub mod noise;
pub mod point;
pub mod settings;
pub mod steady;
pub mod trial;
pub mod weight;
pub mod wishes;
pub mod worth;

pub use board::Board;
pub use expected::{Expected, expected};
pub use judge::{Judgement, Proof, Role, Standing, Status, judge};
pub use known::{Due, Expired, Known};
pub use point::Point;
pub use settings::{Objective, Settings};
pub use weight::{Weight, weight};
pub use wishes::Wishes;
