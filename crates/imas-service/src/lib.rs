// SPDX-License-Identifier: Apache-2.0
//! Measures servers under load.
//!
//! - [`Service`]: how a server is started, tested for readiness, loaded and stopped; from options or a TOML
//!   file
//! - [`ServiceExecutor`]: makes one run of one candidate per call, and returns a [`ServiceRun`] with named
//!   figures; `imas_runs::Runner` calls it
//! - [`adapter`]: rules for the output of known load generators; data, in `adapters.toml`
//! - [`ServiceComparison`]: the runs of all candidates, paired by round, with a verdict for operators of
//!   services
//! - [`RoundChanges`], [`PickRule`], [`JudgedService`], [`CandidateSet`]: picks, judged on rounds that did
//!   not choose them
//! - [`AdvisedService`]: what `imas advise` would have estimated, beside what was measured
//! - [`ServicePrediction`], [`PredictionScore`]: what a recorded and replayed run lets expect, beside live runs
//!
//! Only the server runs under the candidate. The load and the lines that prepare the run have the unchanged
//! environment.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod guard_rail;
pub mod page;

mod advice;
mod candidate_figures;
mod candidate_sets;
mod comparison;
mod cpus;
mod definition;
mod error;
mod executor;
mod exit_text;
mod figure;
mod group;
mod judge;
mod judgement;
mod life;
mod limits;
mod line;
mod load;
mod pick_rule;
mod prediction;
mod prediction_score;
mod readme;
mod ready;
mod recorder;
mod request_log;
mod round_changes;
mod run;
mod run_figures;
mod server;
mod tls;
mod tree;
mod variables;
mod verdict;
mod work;

pub use advice::{AdviceVerdict, AdvisedService};
pub use candidate_figures::{CandidateFigures, ComparedFigure};
pub use candidate_sets::{CandidateSet, SetGain, SetGains, set_rules};
pub use comparison::{ServiceComparison, ServiceGoal, compare_services};
pub use cpus::CpuShare;
pub use definition::{Service, ServiceFileError, StopSignal};
pub use error::ServiceError;
pub use executor::ServiceExecutor;
pub use figure::{Better, Figure};
pub use guard_rail::GuardRail;
pub use judge::{CandidateForAll, HeldOutPicks, JUDGED, JudgedPick, JudgedService, MemoryGain};
pub use judgement::{
    AdviceScore, JournalJudgement, JudgeOptions, LeftOutOfGain, MadeWorse, ROUNDS_FOR_PROOF, ServiceJudgement,
};
pub use limits::ServiceLimits;
pub use pick_rule::PickRule;
pub use prediction::ServicePrediction;
pub use prediction_score::{JudgedPrediction, PredictedChoice, PredictionScore};
pub use readme::readme;
pub use round_changes::RoundChanges;
pub use run::{CycleFigures, Failure, PhaseFigures, ServiceRun, Stage};
