// SPDX-License-Identifier: Apache-2.0
//! Runs of a program under candidates, and the raw records of them: what `imas` and `imas-lab` share.
//!
//! - [`plan`]: which run comes when
//! - [`counted`]: the trial pages of a counted run, and its memory through time
//! - [`backing`]: free memory that is touched before each run
//! - [`run`]: a run as it is compared with others
//! - [`raw`]: every run as a line of JSON, written as soon as it is made
//! - [`packed`]: such files made small, and read again
//! - [`data`]: the runs of such files

pub mod backing;
pub mod counted;
pub mod data;
pub mod packed;
pub mod plan;
pub mod raw;
pub mod run;

mod watch;
