// SPDX-License-Identifier: Apache-2.0
//! Which trials are this host's, where a fleet shares them out: worked out from the store, so that imasd and
//! the commands that explain its decisions come to the same.
//!
//! - Time is divided into turns of ten minutes (`[fleet] turn_s`). In each the rule of [`imas_exchange::share`]
//!   names the hosts that try, and the candidate of each; each of them tries it once, with `system` beside
//!   it. A turn is longer than a program of seconds needs for both; longer turns would only make a fleet of
//!   few hosts slower. What starts rarely starts in the turn of as many hosts as of any other.
//! - A host tries as if it were alone where the fleet has no statistics of the program, knows no other host
//!   that runs it, or was not reached for a week ([`GONE_S`]): no host waits for a fleet that is gone.
//! - What the fleet alone has proven is checked by the same share of its hosts in each week. A host that
//!   learns of a program checks it from the next week on: its first starts use the proof.

use imas_core::adaptive::{HostTurn, Settings};
use imas_core::{Candidate, FleetPrior};
use imas_exchange::{FleetStatistics, Lack, TrialTurn, hosts_in_trial, lacks, trial_of};
use imas_store::fleet::FleetMember;
use imas_store::samples::StoredProgram;
use imas_store::{Store, StoreError};
use serde::Serialize;

/// Usual length of a turn in seconds.
pub const TURN_S: f64 = 600.0;
/// A fleet that was not reached for this time is taken to be gone, seconds.
pub const GONE_S: f64 = 7.0 * DAY_S;
const DAY_S: f64 = 24.0 * 3600.0;
/// Number of turns that a decision looks ahead: an hour of usual ones.
const AHEAD: u64 = 6;
/// Number of turns ahead that are shown to people: a day of usual ones.
const FAR_AHEAD: u64 = 144;

/// This host's membership of its fleet, and the fleet's knowledge of one program.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetKnowledge {
    member: FleetMember,
    /// When the fleet was reached last, seconds since 1970.
    reached_s: f64,
    known: Option<KnownStatistics>,
}

/// The fleet's statistics of a program.
#[derive(Debug, Clone, PartialEq)]
struct KnownStatistics {
    subject: String,
    /// The fleet's statistics as the policy takes them.
    prior: FleetPrior,
    /// When this host got the first of this subject, seconds since 1970.
    since_s: f64,
}

/// For whom a turn is worked out.
#[derive(Debug, Clone, Copy)]
pub struct TurnQuestion<'a> {
    /// The candidates of the program.
    pub candidates: &'a [Candidate],
    /// For each of `candidates`, whether no other host knows it.
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
    /// No other host is known to run the program.
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
    /// This host's next turn within 144 turns (a day), if nothing changes until then.
    pub next: Option<NextTurn>,
}

/// A turn that is still to come.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct NextTurn {
    /// When the turn begins, seconds since 1970.
    pub at_unix_s: f64,
    /// Candidate of the turn.
    pub candidate: String,
}

impl FleetKnowledge {
    /// Reads the fleet's part of the store; None where this host is in no fleet, or the program is of one
    /// user alone.
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
            let prior = imas_exchange::prior(&read);
            Some(KnownStatistics { subject: stored.subject, prior, since_s: stored.known_s })
        });
        Ok(Some(Self { member, reached_s: store.fleet_reached_s()?, known: read }))
    }

    /// Measurements of other hosts, where the fleet has statistics of the program.
    #[must_use]
    pub fn prior(&self) -> Option<&FleetPrior> {
        self.known.as_ref().map(|known| &known.prior)
    }

    /// Which trials are this host's; None where it tries as if it were alone.
    #[must_use]
    pub fn turn(&self, question: &TurnQuestion<'_>) -> Option<HostTurn> {
        let shared = self.shared(question).ok()?;
        let turn_s = self.member.turn_s;
        let now = number(question.now_s, turn_s);
        let name = shared.candidate(now);
        // The next turn of this host, or the first that is not looked at.
        let ahead = (1..=AHEAD).find(|ahead| name.is_some() || shared.candidate(now + ahead).is_some());
        let index = |name: &str| question.candidates.iter().position(|candidate| candidate.name == name);
        let period = number(question.now_s, question.settings.watch_s);
        let checks_begin_s = begin(period, question.settings.watch_s);
        let may_check = self.known.as_ref().is_some_and(|known| known.since_s < checks_begin_s);
        let is_checked = |one: &Candidate| may_check && shared.is_checked(period, &one.name);
        Some(HostTurn {
            candidate: name.and_then(index),
            begin_s: begin(now, turn_s),
            until_s: begin(now + ahead.unwrap_or(AHEAD), turn_s),
            is_own: question.is_own.to_vec(),
            checks: question.candidates.iter().map(is_checked).collect(),
            checks_begin_s,
        })
    }

    /// How the trials of the program are shared out at this moment, for people.
    #[must_use]
    pub fn sharing(&self, question: &TurnQuestion<'_>) -> TrialSharing {
        let turn_s = self.member.turn_s;
        let now = number(question.now_s, turn_s);
        let hosts = self.prior().map_or(0, |prior| prior.hosts);
        let until_unix_s = begin(now + 1, turn_s);
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
                next: shared.next(now, turn_s),
            },
        }
    }

    fn shared(&self, question: &TurnQuestion<'_>) -> Result<SharedTrials<'_>, AloneReason> {
        let KnownStatistics { subject, prior, .. } = self.known.as_ref().ok_or(AloneReason::NoStatistics)?;
        if prior.hosts <= 1 {
            return Err(AloneReason::NoOtherHost);
        }
        // A time in the future is from a clock that was wrong.
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

    fn next(&self, now: u64, turn_s: f64) -> Option<NextTurn> {
        let of = |epoch| {
            let candidate = self.candidate(epoch)?.to_owned();
            Some(NextTurn { at_unix_s: begin(epoch, turn_s), candidate })
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: f64 = 1.7e9;

    fn host(number: u32, hosts: u32) -> FleetKnowledge {
        FleetKnowledge {
            member: FleetMember { host: format!("host-{number}"), share: 0.05, turn_s: TURN_S },
            reached_s: NOW_S - DAY_S,
            known: Some(KnownStatistics {
                subject: "p.x86_64-4096-never-2".to_owned(),
                prior: FleetPrior { hosts, ..FleetPrior::default() },
                since_s: NOW_S - 30.0 * DAY_S,
            }),
        }
    }

    /// A host's turn and how people see it, some seconds from now.
    fn at(known: &FleetKnowledge, later_s: f64) -> (Option<HostTurn>, TrialSharing) {
        let candidates = [
            Candidate::system("1"),
            Candidate::new("jemalloc", "1", &[]),
            Candidate::new("hoard", "1", &[]),
            Candidate::new("mine", "1", &[]),
        ];
        let question = TurnQuestion {
            candidates: &candidates,
            is_own: &[false, false, false, true],
            settings: &Settings::default(),
            now_s: NOW_S + later_s,
        };
        (known.turn(&question), known.sharing(&question))
    }

    #[test]
    fn in_each_turn_a_share_of_the_hosts_tries() {
        let mut tries = 0;
        for number in 0..100 {
            for turn in 0..20 {
                let (turn, sharing) = at(&host(number, 100), f64::from(turn) * TURN_S);
                let turn = turn.unwrap();
                let name = [None, Some("jemalloc"), Some("hoard")][turn.candidate.unwrap_or(0)];
                assert_eq!(sharing.candidate.as_deref(), name, "people see what is decided by");
                assert_eq!((sharing.in_trial, sharing.hosts), (5, 100));
                tries += u32::from(turn.candidate.is_some());
            }
        }
        assert!((70..130).contains(&tries), "{tries} of 2000");
    }

    #[test]
    fn a_turn_lasts_as_long_as_it_says_and_the_next_is_found() {
        for number in 0..30 {
            let (turn, sharing) = at(&host(number, 100), 0.0);
            let turn = turn.unwrap();
            assert!(turn.begin_s <= NOW_S && turn.until_s > NOW_S);
            let last_s = turn.until_s - NOW_S - 1.0;
            assert_eq!(at(&host(number, 100), last_s).0.unwrap().candidate, turn.candidate);
            let next = sharing.next.unwrap();
            let then = at(&host(number, 100), next.at_unix_s - NOW_S);
            assert_eq!(then.1.candidate, Some(next.candidate));
            let is_now_or_next = turn.candidate.is_some() || turn.until_s <= next.at_unix_s;
            assert!(is_now_or_next, "a decision is made anew when the next turn begins");
        }
    }

    #[test]
    fn a_share_of_the_hosts_checks_in_each_week() {
        let checks = |number: u32, week: u32| {
            let later_s = f64::from(week) * 7.0 * DAY_S;
            let known = FleetKnowledge { reached_s: NOW_S + later_s, ..host(number, 200) };
            at(&known, later_s).0.is_some_and(|turn| turn.checks[1])
        };
        let hosts = |week| (0..200).filter(|number| checks(*number, week)).count();
        let all: usize = (0..10).map(hosts).sum();
        assert!((60..140).contains(&all), "{all} of 2000");
    }

    #[test]
    fn a_host_checks_from_the_week_after_it_learned_of_the_program() {
        let checks = |number: u32, days: f64| {
            let later_s = days * DAY_S;
            let mut known = FleetKnowledge { reached_s: NOW_S + later_s, ..host(number, 3) };
            known.known.as_mut().unwrap().since_s = NOW_S;
            at(&known, later_s).0.unwrap().checks[1]
        };
        let hosts = |days| (0..60).filter(|number| checks(*number, days)).count();
        let days = NOW_S / DAY_S;
        let left_days = (days / 7.0).ceil() * 7.0 - days;
        assert_eq!((hosts(0.0), hosts(left_days - 0.1)), (0, 0), "this week");
        assert!((10..30).contains(&hosts(left_days + 0.1)), "one of three in the next");
    }

    #[test]
    fn a_host_tries_as_if_it_were_alone_where_nobody_could_try_with_it() {
        let alone = |known: &FleetKnowledge| {
            let (turn, sharing) = at(known, 0.0);
            assert_eq!(turn.is_none(), sharing.alone.is_some());
            sharing.alone
        };
        assert_eq!(alone(&host(1, 100)), None);
        assert_eq!(alone(&host(1, 1)), Some(AloneReason::NoOtherHost));
        assert_eq!(alone(&FleetKnowledge { known: None, ..host(1, 9) }), Some(AloneReason::NoStatistics));
        for reached_s in [0.0, NOW_S - GONE_S - 1.0, NOW_S + 2.0 * DAY_S] {
            let gone = FleetKnowledge { reached_s, ..host(1, 100) };
            assert_eq!(alone(&gone), Some(AloneReason::FleetGone), "{reached_s}");
        }
    }
}
