// SPDX-License-Identifier: Apache-2.0
//! Runs of a program under candidates, and the raw records of them: what `imas` and `imas-lab` share.

pub mod command;
pub mod counted;
pub mod executor;
pub mod interruption;
pub mod journal;
pub mod runner;
pub mod schedule;
pub mod service;
pub mod subject;
