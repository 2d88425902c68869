// SPDX-License-Identifier: Apache-2.0
//! The pure core of IMAS: samples become a profile, a profile and the machine's conditions become a decision.
//!
//! ```text
//! TrialRecord (sample + what was tested)          Run (one execution of `imas bench`)
//!      |  candidate::count: does it count?             |
//!      v                                               v
//! paper::fold -> Summary -> paper::analyse        bench::compare -> ratios, words, picks, warnings
//! quarantine::quarantined                              ^
//!      |                                               |
//!      v                                        compare, stats
//! profile::ProfileView --- decision::decide(Conditions) -> Decision
//! ```
//!
//! No I/O, no clock, no randomness but a seed: times come in as parameters, so that last month's samples can
//! be replayed through today's rules.

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod bench;
pub mod candidate;
pub mod compare;
pub mod decision;
pub mod fleet_prior;
pub mod hang;
pub mod history;
pub mod judgement;
pub mod least_memory;
pub mod pace;
pub mod paper;
pub mod printable;
pub mod profile;
pub mod quarantine;
pub mod raw_runs;
pub mod run;
pub mod sample;
pub mod server_bench;
pub mod server_run;
pub mod service_life;
pub mod split;
pub mod stats;
pub mod trimming;

pub use candidate::{Candidate, SYSTEM, TrialRecord};
pub use decision::{Conditions, Decision, Reason, decide, decide_production};
pub use fleet_prior::FleetPrior;
pub use profile::{History, Policy, ProfileView};
pub use sample::Sample;
