// SPDX-License-Identifier: Apache-2.0
//! Which trials are this host's, where a fleet shares them out: worked out from the store, so that imasd and the commands
//! that explain its decisions come to the same.
//!
//! - Time is divided into turns of ten minutes ([`TURN_S`]). In each the rule of [`imas_fleet::share`] names the hosts that
//!   try, and the candidate of each; each of them tries it once, with `system` beside it. A turn is longer than a program of
//!   seconds needs for both; longer turns would only make a fleet of few hosts slower. What starts rarely starts in the
//!   turn of as many hosts as of any other.
//! - A host tries as if it were alone where the fleet has no statistics of the program, knows no other host that runs it,
//!   or was not reached for a week ([`GONE_S`]): no host waits for a fleet that is gone.
//! - What the fleet alone has proven is checked by the same share of its hosts in each week.

use imas_core::adaptive::{HostTurn, Settings};
use imas_core::{Candidate, FleetPrior};
use imas_fleet::{FleetStatistics, Lack, TrialTurn, hosts_in_trial, lacks, trial_of};
use imas_store::fleet::FleetMember;
use imas_store::samples::StoredProgram;
use imas_store::{Store, StoreError};
use serde::Serialize;

/// Length of a turn in seconds.
pub const TURN_S: f64 = 600.0;
/// A fleet that was not reached for this time is taken to be gone, seconds.
pub const GONE_S: f64 = 7.0 * DAY_S;
const DAY_S: f64 = 24.0 * 3600.0;
/// So many turns ahead a decision looks: an hour.
const AHEAD: u64 = 6;
/// So many turns ahead people see: a day.
const FAR_AHEAD: u64 = 144;

/// What this host has of its fleet about one program.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetKnowledge {
    member: FleetMember,
    /// When the fleet was reached last, seconds since 1970.
    reached_s: f64,
    /// Subject of the statistics, and what the policy makes of them.
    known: Option<(String, FleetPrior)>,
}

/// For whom a turn is worked out.
#[derive(Debug, Clone, Copy)]
pub struct TurnQuestion<'a> {
    /// The candidates of the program.
    pub candidates: &'a [Candidate],
    /// Of each, whether no other host knows it.
    pub is_own: &'a [bool],
    /// Settings of the policy.
    pub settings: &'a Settings,
    /// Now, seconds since 1970.
    pub now_s: f64,
}

/// Why a host of a fleet tries a program's candidates as if it were alone.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum AloneReason {
    /// The fleet has no statistics of the program.
    NoStatistics,
    /// No other host is known to run it.
    NoOtherHost,
    /// The fleet was not reached for [`GONE_S`].
    FleetGone,
}

/// How a program's trials are shared out, for people.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct TrialSharing {
    /// Why this host tries as if it were alone, if it does.
    pub alone: Option<AloneReason>,
    /// Hosts that run the program, roughly.
    pub hosts: u32,
    /// How many of them are in a trial at a time, on average; 0 where nothing is lacking.
    pub in_trial: u32,
    /// The candidate that is this host's now.
    pub candidate: Option<String>,
    /// When this turn ends, seconds since 1970.
    pub until_unix_s: f64,
    /// This host's next turn within a day, if nothing changes until then.
    pub next: Option<NextTurn>,
}

/// A turn that is still to come.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct NextTurn {
    /// When it begins, seconds since 1970.
    pub at_unix_s: f64,
    /// Its candidate.
    pub candidate: String,
}

impl FleetKnowledge {
    /// What the store has of it; None where this host is in no fleet, or the program is of one user alone.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(store: &Store, program: &StoredProgram) -> Result<Option<Self>, StoreError> {
        if !program.domain.is_everybodys() {
            return Ok(None);
        }
        let Some(member) = store.fleet_member()? else { return Ok(None) };
        let stored = store.statistics(program.id)?;
        let read = stored.and_then(|stored| {
            let read = FleetStatistics::read_of(&stored.subject, stored.statistics.as_bytes()).ok()?;
            Some((stored.subject, imas_fleet::prior(&read)))
        });
        Ok(Some(Self { member, reached_s: store.fleet_reached_s()?, known: read }))
    }

    /// What other hosts measured, where the fleet has statistics of the program.
    #[must_use]
    pub fn prior(&self) -> Option<&FleetPrior> {
        self.known.as_ref().map(|(_, prior)| prior)
    }

    /// Which trials are this host's; None where it tries as if it were alone.
    #[must_use]
    pub fn turn(&self, question: &TurnQuestion<'_>) -> Option<HostTurn> {
        let shared = self.shared(question).ok()?;
        let now = number(question.now_s, TURN_S);
        let name = shared.candidate(now);
        // The next turn of this host, or the first that is not looked at.
        let ahead = (1..=AHEAD).find(|ahead| name.is_some() || shared.candidate(now + ahead).is_some());
        let index = |name: &str| question.candidates.iter().position(|candidate| candidate.name == name);
        let period = number(question.now_s, question.settings.watch_s);
        Some(HostTurn {
            candidate: name.and_then(index),
            begin_s: begin(now, TURN_S),
            until_s: begin(now + ahead.unwrap_or(AHEAD), TURN_S),
            is_own: question.is_own.to_vec(),
            checks: question.candidates.iter().map(|one| shared.is_checked(period, &one.name)).collect(),
            checks_begin_s: begin(period, question.settings.watch_s),
        })
    }

    /// The same for people.
    #[must_use]
    pub fn sharing(&self, question: &TurnQuestion<'_>) -> TrialSharing {
        let now = number(question.now_s, TURN_S);
        let hosts = self.prior().map_or(0, |prior| prior.hosts);
        let until_unix_s = begin(now + 1, TURN_S);
        match self.shared(question) {
            Err(alone) => TrialSharing {
                alone: Some(alone),
                hosts,
                in_trial: 0,
                candidate: None,
                until_unix_s,
                next: None,
            },
            Ok(shared) => TrialSharing {
                alone: None,
                hosts,
                in_trial: shared.in_trial(),
                candidate: shared.candidate(now).map(str::to_owned),
                until_unix_s,
                next: shared.next(now),
            },
        }
    }

    fn shared(&self, question: &TurnQuestion<'_>) -> Result<SharedTrials<'_>, AloneReason> {
        let (subject, prior) = self.known.as_ref().ok_or(AloneReason::NoStatistics)?;
        if prior.hosts <= 1 {
            return Err(AloneReason::NoOtherHost);
        }
        // A time in the future is that of a clock that was wrong.
        if !(-DAY_S..GONE_S).contains(&(question.now_s - self.reached_s)) {
            return Err(AloneReason::FleetGone);
        }
        let of_all = question.candidates.iter().zip(question.is_own.iter());
        let of_all = of_all.filter(|(candidate, own)| candidate.tested && !candidate.is_system() && !**own);
        let names: Vec<(&str, &str)> =
            of_all.map(|(candidate, _)| (candidate.name.as_str(), candidate.version.as_str())).collect();
        let lacks = lacks(prior, &names, question.settings);
        Ok(SharedTrials {
            host: &self.member.host,
            share: self.member.share,
            hosts: prior.hosts,
            subject,
            lacks,
        })
    }
}

/// Trials that are shared out among several hosts.
struct SharedTrials<'a> {
    host: &'a str,
    share: f64,
    hosts: u32,
    subject: &'a str,
    lacks: Vec<Lack>,
}

impl SharedTrials<'_> {
    fn turn<'a>(&'a self, subject: &'a str, epoch: u64) -> TrialTurn<'a> {
        TrialTurn { host: self.host, subject, epoch, hosts: self.hosts, share: self.share }
    }

    /// The candidate that this host tries in a turn.
    fn candidate(&self, epoch: u64) -> Option<&str> {
        trial_of(&self.turn(self.subject, epoch), &self.lacks)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn in_trial(&self) -> u32 {
        hosts_in_trial(&self.turn(self.subject, 0), &self.lacks).round() as u32
    }

    /// Whether this host checks a candidate that is its pick by the fleet's figures alone.
    fn is_checked(&self, period: u64, candidate: &str) -> bool {
        let subject = format!("{}#check", self.subject);
        let lack = Lack { candidate: candidate.to_owned(), need: u32::MAX };
        trial_of(&self.turn(&subject, period), &[lack]).is_some()
    }

    fn next(&self, now: u64) -> Option<NextTurn> {
        let of = |epoch| {
            let candidate = self.candidate(epoch)?.to_owned();
            Some(NextTurn { at_unix_s: begin(epoch, TURN_S), candidate })
        };
        (self.in_trial() > 0).then(|| (now + 1..now + FAR_AHEAD).find_map(of)).flatten()
    }
}

/// The number of the period in which a time is; all hosts count alike.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(at_s: f64, period_s: f64) -> u64 {
    (at_s / period_s) as u64
}

fn begin(number: u64, period_s: f64) -> f64 {
    number as f64 * period_s
}
