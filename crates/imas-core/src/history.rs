// SPDX-License-Identifier: Apache-2.0
//! The history of a program: its trials, and the operator's settings for it.

use std::collections::BTreeMap;

use crate::candidate::{Candidate, TrialRecord, in_order_of_time};
use crate::fleet_prior::FleetPrior;
use crate::paper::Limits;
use crate::sample::PageKind;
use crate::service_life::UntouchedLife;

/// Everything a profile is computed from.
#[derive(Clone, Debug)]
pub struct History<'a> {
    /// Every trial of the program, in any order.
    pub records: &'a [TrialRecord],
    /// The catalogue, in its order.
    pub candidates: &'a [Candidate],
    /// Present build-id of the program; empty when it has none.
    pub build_id: &'a str,
    /// The candidate the operator pinned.
    pub pinned: Option<&'a str>,
    /// The operator excluded the program.
    pub excluded: bool,
    /// Time up to which the operator has cleared each candidate's crashes, seconds since the epoch. The keys
    /// are names of candidates.
    pub unblocked_at: &'a BTreeMap<String, f64>,
    /// How often and how soon a candidate is tested.
    pub limits: Limits,
    /// Now, seconds since the epoch.
    pub now_unix_s: f64,
    /// The machine's present settings, as in [`crate::Sample::machine`]; empty: those of the newest trial.
    pub machine: &'a str,
    /// What other hosts measured; None without a fleet.
    pub fleet: Option<&'a FleetPrior>,
    /// Replicas that were left untouched, as they lived: they show how much processes under one and the same
    /// allocator differ.
    pub untouched: &'a [UntouchedLife],
}

impl<'a> History<'a> {
    /// History with nothing but these trials.
    #[must_use]
    pub fn of(records: &'a [TrialRecord], candidates: &'a [Candidate]) -> Self {
        static NONE: BTreeMap<String, f64> = BTreeMap::new();
        Self {
            records,
            candidates,
            build_id: "",
            pinned: None,
            excluded: false,
            unblocked_at: &NONE,
            limits: Limits::default(),
            now_unix_s: 0.0,
            machine: "",
            fleet: None,
            untouched: &[],
        }
    }
}

/// Trials of the present build, in order of time.
pub(crate) fn trials<'a>(history: &History<'a>) -> Vec<&'a TrialRecord> {
    let is_one = |r: &&TrialRecord| r.sample.kind == PageKind::Trial && r.is_of_build(history.build_id);
    in_order_of_time(history.records).into_iter().filter(is_one).collect()
}
