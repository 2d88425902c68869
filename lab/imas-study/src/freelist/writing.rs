// SPDX-License-Identifier: Apache-2.0
//! The timed write sessions, and the memory that they write to.

use crate::band::Band;
use crate::band::mean;
use crate::error::StudyResult;
use crate::program::{figures, rows};
use serde::Deserialize;
use std::path::Path;

/// Sessions of a run, and rounds over the 1,000 blocks in a session, as in the paper.
pub(crate) const SESSIONS: usize = 100;
const ROUNDS: &str = "10000";
/// The paper's times hold from this session on.
pub(crate) const SETTLED_SESSION: usize = 30;

/// One session: times with both headers, nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Session {
    #[serde(rename = "session")]
    _number: usize,
    pub(crate) large_header_ns: f64,
    pub(crate) small_header_ns: f64,
}

/// Memory of one version.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Footprint {
    pub(crate) version: String,
    pub(crate) header_bytes: u64,
    pub(crate) first_free_bytes: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) footprint_bytes: u64,
    /// Size of this machine's first-level data cache; 0 if unknown.
    pub(crate) data_cache_bytes: u64,
}

/// Runs of [`SESSIONS`] sessions each.
#[derive(Debug)]
pub(crate) struct Writing(pub(crate) Vec<Vec<Session>>);

pub(crate) fn one(driver: &Path) -> StudyResult<Vec<Session>> {
    let sessions: Vec<Session> = rows(driver, &["write", &SESSIONS.to_string(), ROUNDS])?;
    let complete = sessions.len() == SESSIONS && sessions.iter().all(|s| s.large_header_ns > 0.0);
    if complete { Ok(sessions) } else { Err(figures(driver, "a timed run without its 100 sessions")) }
}

pub(crate) fn footprints(driver: &Path) -> StudyResult<Vec<Footprint>> {
    let footprints: Vec<Footprint> = rows(driver, &["footprint"])?;
    if footprints.len() == 3 { Ok(footprints) } else { Err(figures(driver, "not three versions")) }
}

impl Writing {
    /// The band of the figure over the runs, session by session.
    pub(crate) fn bands(&self, of: fn(&Session) -> f64) -> Vec<Band> {
        let at = |i: usize| self.0.iter().filter_map(move |run| run.get(i)).map(of).collect::<Vec<_>>();
        (0..SESSIONS).filter_map(|i| Band::of(&at(i))).collect()
    }

    /// The band of the figure over the settled sessions of all runs.
    pub(crate) fn settled(&self, of: fn(&Session) -> f64) -> Option<Band> {
        let values: Vec<f64> =
            self.0.iter().flat_map(|run| run.iter().skip(SETTLED_SESSION)).map(of).collect();
        Band::of(&values)
    }

    /// Ratios of the time with the small header to that with the large one, for each run: medians of the
    /// settled sessions.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        let median = |run: &[Session], of: fn(&Session) -> f64| {
            Band::of(&run.iter().skip(SETTLED_SESSION).map(of).collect::<Vec<_>>()).map(|b| b.median)
        };
        let ratio = |run: &Vec<Session>| {
            Some(median(run, |s| s.small_header_ns)? / median(run, |s| s.large_header_ns)?)
        };
        self.0.iter().filter_map(ratio).collect()
    }

    /// Ratios of the time of the first sessions to the settled ones', for each run, with the small
    /// header.
    pub(crate) fn warm_up(&self) -> Vec<f64> {
        let small = |s: &Session| s.small_header_ns;
        let ratio = |run: &Vec<Session>| {
            mean(run.iter().take(SETTLED_SESSION).map(small))
                / mean(run.iter().skip(SETTLED_SESSION).map(small))
        };
        self.0.iter().map(ratio).collect()
    }
}
