// SPDX-License-Identifier: Apache-2.0
//! Services judged: what a pick gains on rounds that did not choose it, and how right predictions are.
//!
//! - [`RoundChanges`], [`PickRule`], [`JudgedService`], [`CandidateSet`]: picks, judged on rounds that did
//!   not choose them
//! - [`AgainstSingle`]: the picks beside one setting for all
//! - [`Answers`]: the course of `imas bench` of a server on stored runs, beside the rule before it
//! - [`RuntimePicks`]: the picks for services of language runtimes, within limits of their own
//! - [`MemoryUse`]: what could be saved at most, and what a pick saves
//! - [`NoEffect`], [`EqualPairs`]: the noise, from runs of one and the same thing
//! - [`ServicePrediction`], [`PredictionScore`]: what a recorded and replayed run lets expect, beside live runs

mod against_single;
mod answer;
mod candidate_sets;
mod judge;
mod judgement;
mod memory_use;
mod no_effect;
mod noise;
mod pick_rule;
mod prediction;
mod prediction_score;
mod readme;
mod round_changes;
mod runtime_picks;

pub use against_single::AgainstSingle;
pub use answer::{AnswerOptions, AnswerRow, Answers};
pub use candidate_sets::{CandidateSet, SetGain, SetGains, set_rules};
pub use judge::{
    CandidateForAll, HeldOutPicks, JUDGED, JudgedPick, JudgedService, MemoryGain, of_fewer_services,
};
pub use judgement::{
    JournalJudgement, JudgeOptions, LeftOutOfGain, MadeWorse, ROUNDS_FOR_PROOF, ServiceJudgement,
};
pub use memory_use::{HeapParts, MemoryUse, Moment};
pub use no_effect::NoEffect;
pub use noise::{BenchShape, EqualBenches, EqualPairs, NOISE_OF, ServiceNoise};
pub use pick_rule::PickRule;
pub use prediction::ServicePrediction;
pub use prediction_score::{JudgedPrediction, PredictedChoice, PredictionScore};
pub use readme::{BASELINES, readme};
pub use round_changes::RoundChanges;
pub use runtime_picks::{RuntimePicks, services_by_runtime};
