// SPDX-License-Identifier: Apache-2.0
//! Grounds of a decision: the history of a program (its trials, the operator's settings), and the machine's
//! state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// The machine's present settings, as in [`crate::Sample::machine`]; empty: the settings at the newest
    /// trial.
    pub machine: &'a str,
    /// Measurements of other hosts; None without a fleet.
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

/// State of the machine at the moment of a start.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Load average over five minutes.
    pub load5: f64,
    /// CPUs online.
    pub cpus: u32,
    /// `MemAvailable`, bytes.
    pub mem_available_bytes: u64,
    /// `MemTotal`, bytes; None where not known. `paper` looks at none of the fields from here on.
    pub mem_total_bytes: Option<u64>,
    /// Tasks that can run now, this one left out.
    pub running: Option<u32>,
    /// PSI: share of the last minute in which some task waited for a CPU, per cent.
    pub cpu_some_pct: Option<f64>,
    /// PSI: share of the last minute in which some task waited for memory, per cent.
    pub memory_some_pct: Option<f64>,
    /// PSI: share of the last minute in which all tasks waited for memory, per cent.
    pub memory_full_pct: Option<f64>,
    /// Memory of the control group in use, as a share of its limit; None without a limit.
    pub group_memory_used: Option<f64>,
    /// The weight of CPU that was last in force, for its hysteresis.
    pub weight_before: Option<f64>,
}

impl Conditions {
    /// Conditions that `paper` looks at; nothing else known.
    pub const fn new(load5: f64, cpus: u32, mem_available_bytes: u64) -> Self {
        Self {
            load5,
            cpus,
            mem_available_bytes,
            mem_total_bytes: None,
            running: None,
            cpu_some_pct: None,
            memory_some_pct: None,
            memory_full_pct: None,
            group_memory_used: None,
            weight_before: None,
        }
    }
}
