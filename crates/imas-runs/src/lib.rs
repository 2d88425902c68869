// SPDX-License-Identifier: Apache-2.0
//! Runs of a program under candidates, and the raw records of them: what `imas` and `imas-lab` share.
//!
//! - [`schedule`]: which run comes when
//! - [`executor`]: what makes a run; [`command`]: a command as one
//! - [`around`]: shell lines before and after each run
//! - [`runner`]: makes them all, with limits, failing runs, output check and interruption; [`subject`]: a
//!   program in it
//! - [`handing_on`]: signals that are meant for the program
//! - [`interruption`]: a signal ends the run, and keeps what was measured
//! - [`record`]: the one record of a run; [`journal`]: a file of such lines
//! - [`counted`]: the trial pages of a counted run, and its memory through time
//! - [`prefault`]: free memory that is touched before each run
//! - [`packed`]: such files made small, and read again
//! - [`data`]: the runs of such files
//! - [`service`]: servers under load

pub mod around;
pub mod command;
pub mod counted;
pub mod data;
pub mod executor;
pub mod handing_on;
pub mod interruption;
pub mod journal;
pub mod packed;
pub mod prefault;
pub mod record;
pub mod runner;
pub mod schedule;
pub mod service;
pub mod subject;

mod watch;
