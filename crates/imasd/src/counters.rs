// SPDX-License-Identifier: Apache-2.0
//! What was counted since the start, and the file in which `imas status` reads it: `state/status.json`.

use serde::Serialize;

/// Everything that happened and everything that was dropped. Only grows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counters {
    /// Trials stored.
    pub(crate) trials_stored: u64,
    /// Ends of production starts stored.
    pub(crate) flights_stored: u64,
    /// Pages dropped: nobody had seen the process behind them.
    pub(crate) dropped_unwitnessed: u64,
    /// Pages dropped: they cannot be read as a page.
    pub(crate) dropped_damaged: u64,
    /// Pages dropped: they name a process, program or candidate that is not the one seen.
    pub(crate) dropped_forged: u64,
    /// Pages dropped: no trial of that name was on offer.
    pub(crate) dropped_unknown: u64,
    /// Pages dropped: of another boot.
    pub(crate) dropped_stale: u64,
    /// Pages dropped: their folder, or all together, had too many.
    pub(crate) dropped_too_many: u64,
    /// Times the kernel's events came faster than they were read; everything is looked for then.
    pub(crate) events_lost: u64,
    /// Processes not looked at because too many came at once.
    pub(crate) processes_overlooked: u64,
    /// Programs not taken up because the number of programs is limited.
    pub(crate) programs_refused: u64,
    /// Programs forgotten because others of the same owner needed their place.
    pub(crate) programs_evicted: u64,
    /// Programs looked at and left alone.
    pub(crate) programs_left_alone: u64,
    /// Crashes under a candidate.
    pub(crate) crashes: u64,
    /// Times the store refused to write.
    pub(crate) store_refusals: u64,
    /// Times an index was published.
    pub(crate) published: u64,
}

/// The file's content.
#[derive(Debug, Serialize)]
pub(crate) struct Status<'a> {
    pub(crate) schema: u32,
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) version: &'a str,
    pub(crate) store: &'a str,
    /// The configuration file, whether it exists or not; `imas ... --system` decides by the same.
    pub(crate) config: &'a str,
    /// Seconds between two tests of one candidate, where the command line says it in place of that file.
    pub(crate) retest_s: Option<f64>,
    /// `kernel` where process events are told, else `polling`.
    pub(crate) events: &'a str,
    pub(crate) programs: usize,
    pub(crate) trials_offered: usize,
    pub(crate) trials_running: usize,
    pub(crate) flights_watched: usize,
    /// Why everybody stands aside, if so.
    pub(crate) emergency: Option<&'a str>,
    /// How many programs are left alone. Everybody may read this file: which ones they are stands in another, for root.
    pub(crate) ineligible: usize,
    pub(crate) counters: &'a Counters,
}
