// SPDX-License-Identifier: Apache-2.0
//! Knowledge of a fleet about one program in one environment: the value of the bucket. `imas_fleet::fold`
//! makes it.

use imas_core::SYSTEM;
use imas_core::adaptive::Settings;
use imas_core::fleet_prior::{FleetCandidate, FleetPrior, FleetScatter, GroupDifference};
use imas_core::stats::median;
use serde::{Deserialize, Serialize};

use crate::aggregate::{self, Aggregate, BadPayload, CandidateAggregate, VERSION, is_name, is_version};
use crate::group::{COUNTED_HOSTS, GroupSet, HostSketch, Place, group_of};
use crate::key::{self, Environment, ProgramKey};
use crate::rate::SpentToday;
use crate::seats::{Seat, Seats, StrongestGains};

/// Greatest size of the encoded statistics in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Most candidates, each version of an allocator being one. They always fit into [`MAX_BYTES`].
pub const MAX_CANDIDATES: usize = 24;
/// A candidate that was not reported in this number of messages gives way to another one.
const STALE: u64 = 4096;
/// Name under which the scatter of runs has its places.
const RESIDUAL: &str = "residual";

/// A cache of the deterministic fold of all aggregates of the stream up to `upto_seq`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct FleetStatistics {
    /// Version of the format, [`VERSION`].
    pub v: u32,
    /// The program.
    pub program: ProgramKey,
    /// The environment in which the program ran.
    pub environment: Environment,
    /// Sequence number in the stream of the last aggregate that is contained.
    pub upto_seq: u64,
    /// Aggregates that are contained.
    pub folded: u64,
    /// Messages that hosts have sent today.
    pub spent: SpentToday,
    /// Hosts that sent them, roughly.
    pub hosts: HostSketch,
    /// Scatter of single runs by group: standard deviations of ln CPU (x) and ln memory (y), over degrees of
    /// freedom.
    pub residual: Seats,
    /// Statistics of each candidate and version of its allocator, in the order of their first report.
    pub candidates: Vec<CandidateStatistics>,
}

/// A fleet's knowledge of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateStatistics {
    /// Name of the candidate.
    pub name: String,
    /// Build or version of its allocator.
    pub version: String,
    /// The value of [`FleetStatistics::folded`] when it was last reported.
    pub reported_at: u64,
    /// Groups with a host that reported it.
    pub reported_by: GroupSet,
    /// Differences of ln CPU (x) and ln memory (y) to `system` over rounds, by group.
    pub pairs: Seats,
    /// Groups with a host on which trials gave no figures.
    pub void: GroupSet,
    /// Groups with a host on which it crashed or hung the program.
    pub crashed: GroupSet,
    /// The strongest gains that its figures have shown.
    pub strongest: StrongestGains,
}

/// Why bytes are no statistics.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BadStatistics {
    /// Too large, of another version, or no JSON of the expected form.
    #[error(transparent)]
    Payload(#[from] BadPayload),
    /// A value that no merger writes.
    #[error("out of range: {0}")]
    OutOfRange(&'static str),
    /// The statistics are of another subject.
    #[error("of another program or environment")]
    OtherSubject,
}

impl FleetStatistics {
    /// Statistics without any aggregate.
    pub fn new(program: ProgramKey, environment: Environment) -> Self {
        Self {
            v: VERSION,
            program,
            environment,
            upto_seq: 0,
            folded: 0,
            spent: SpentToday::default(),
            hosts: HostSketch::default(),
            residual: Seats::default(),
            candidates: vec![],
        }
    }

    /// Reads statistics from hostile bytes.
    ///
    /// # Errors
    /// When a merger of this version would not have written them.
    pub fn read(bytes: &[u8]) -> Result<Self, BadStatistics> {
        let read: Self = aggregate::read_payload(bytes, MAX_BYTES)?;
        read.check()?;
        Ok(read)
    }

    /// Reads the statistics of a subject, as [`FleetStatistics::read`].
    ///
    /// # Errors
    /// When [`FleetStatistics::read`] fails, and when the statistics are of another subject.
    pub fn read_of(subject: &str, bytes: &[u8]) -> Result<Self, BadStatistics> {
        let read = Self::read(bytes)?;
        if read.subject() == subject { Ok(read) } else { Err(BadStatistics::OtherSubject) }
    }

    /// The statistics as JSON, at most [`MAX_BYTES`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Texts, whole numbers and lists of them: there is nothing that JSON could refuse.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `PROGRAM.ENVIRONMENT`.
    pub fn subject(&self) -> String {
        key::subject(&self.program, &self.environment)
    }

    fn check(&self) -> Result<(), BadStatistics> {
        let names = |one: &CandidateStatistics| is_name(&one.name) && is_version(&one.version);
        if !self.environment.is_plausible() {
            return Err(BadStatistics::OutOfRange("environment"));
        }
        if self.candidates.len() > MAX_CANDIDATES || !self.candidates.iter().all(names) {
            return Err(BadStatistics::OutOfRange("candidates"));
        }
        if !self.candidates.iter().all(|one| one.strongest.is_valid()) {
            return Err(BadStatistics::OutOfRange("strongest"));
        }
        Ok(())
    }

    /// Adds an aggregate that was checked and arrived at `at_unix_s`; false, and nothing is added, if its host has
    /// sent more than a host can measure in a day ([`crate::rate`]).
    pub fn add_allowed(&mut self, aggregate: &Aggregate, at_unix_s: u64) -> bool {
        let allowed = self.spent.allows(aggregate, at_unix_s);
        if allowed {
            self.add(aggregate);
        }
        allowed
    }

    fn add(&mut self, aggregate: &Aggregate) {
        let program = self.program.as_str().to_owned();
        let place = |name: &str| Place::of(&aggregate.host, &program, name);
        self.folded = self.folded.saturating_add(1); // it may come from hostile bytes
        self.hosts.add(&aggregate.host);
        let hosts = self.hosts.hosts();
        let [x, y] =
            [aggregate.residual.xx, aggregate.residual.yy].map(|sum| (sum / aggregate.freedom).sqrt());
        self.residual.add(place(RESIDUAL), whole(aggregate.freedom), x, y);
        for (name, new) in &aggregate.candidates {
            if name == SYSTEM {
                continue;
            }
            let (folded, place) = (self.folded, place(name));
            if !place.is_counted(hosts) && new.crashes == 0 {
                continue;
            }
            if let Some(candidate) = self.entry(name, &new.version, group_of(&aggregate.host)) {
                candidate.reported_at = folded;
                candidate.add(new, &aggregate.host, place, hosts);
            }
        }
    }

    /// The candidate's entry, made where there is room for it.
    fn entry(&mut self, name: &str, version: &str, group: usize) -> Option<&mut CandidateStatistics> {
        let known = self.candidates.iter().position(|one| one.name == name && one.version == version);
        let at = match known {
            Some(at) => at,
            None => {
                self.make_room(group)?;
                self.candidates.push(CandidateStatistics::new(name, version, self.folded));
                self.candidates.len() - 1
            }
        };
        self.candidates.get_mut(at)
    }

    /// Room for one more candidate, reported by a host of this group. The group that reports the most
    /// candidates that no other group reports loses one of these: a liar displaces what he made up himself.
    fn make_room(&mut self, group: usize) -> Option<()> {
        if self.candidates.len() < MAX_CANDIDATES {
            return Some(());
        }
        let alone: Vec<Option<usize>> = self.candidates.iter().map(CandidateStatistics::only_group).collect();
        let oldest = |is: &dyn Fn(usize) -> bool| {
            let among = (0..self.candidates.len()).filter(|&at| is(at));
            among.min_by_key(|&at| self.candidates[at].reported_at)
        };
        let is_stale = |at: usize| self.folded - self.candidates[at].reported_at.min(self.folded) > STALE;
        let gives_way = oldest(&is_stale).or_else(|| {
            let of = |group: usize| alone.iter().filter(|one| **one == Some(group)).count();
            let most = alone.iter().flatten().copied().max_by_key(|&one| (of(one), one));
            let most = most.filter(|&most| of(most) > of(group) + 1).unwrap_or(group);
            oldest(&|at| alone[at] == Some(most))
        });
        self.candidates.remove(gives_way?);
        Some(())
    }
}

impl CandidateStatistics {
    fn new(name: &str, version: &str, folded: u64) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            reported_at: folded,
            reported_by: GroupSet::default(),
            pairs: Seats::default(),
            void: GroupSet::default(),
            crashed: GroupSet::default(),
            strongest: StrongestGains::default(),
        }
    }

    fn add(&mut self, new: &CandidateAggregate, host: &str, place: Place, hosts: u32) {
        if place.is_counted(hosts) && new.pairs.count > 0 {
            self.pairs.add(place, new.pairs.count, new.pairs.mean_x, new.pairs.mean_y);
            self.renew_strongest(hosts);
        }
        self.reported_by.insert(group_of(host));
        if new.void > 0 {
            self.void.insert(group_of(host));
        }
        if new.crashes > 0 {
            self.crashed.insert(group_of(host));
        }
    }

    fn renew_strongest(&mut self, hosts: u32) {
        let mut known = self.known();
        let usual = Settings::default();
        known.renew_strongest(hosts.min(COUNTED_HOSTS), |w| usual.margin(w));
        self.strongest = StrongestGains::of(known.strongest);
    }

    /// These statistics in the form that the policy of a host takes.
    pub(crate) fn known(&self) -> FleetCandidate {
        let difference = |seat: Seat| GroupDifference { cpu: seat.x, memory: seat.y };
        FleetCandidate {
            name: self.name.clone(),
            version: self.version.clone(),
            groups: self.pairs.iter().map(difference).collect(),
            void_groups: self.void.len(),
            crashed_groups: self.crashed.len(),
            strongest: self.strongest.figures(),
        }
    }

    /// The only group that reported it, where it is one.
    fn only_group(&self) -> Option<usize> {
        self.reported_by.only()
    }
}

/// Degrees of freedom as a number of rounds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(freedom: f64) -> u32 {
    freedom as u32
}

/// The prior of the program for hosts of the same environment.
pub fn prior(statistics: &FleetStatistics) -> FleetPrior {
    FleetPrior {
        hosts: statistics.hosts.hosts(),
        counted: statistics.hosts.hosts().min(COUNTED_HOSTS),
        scatter: scatter(&statistics.residual),
        candidates: statistics.candidates.iter().map(CandidateStatistics::known).collect(),
    }
}

/// Scatter of single runs, as medians over the groups. A liar can make it neither small nor large.
fn scatter(seats: &Seats) -> Option<FleetScatter> {
    let axis = |of: fn(Seat) -> f64| median(&seats.iter().map(of).collect::<Vec<f64>>());
    Some(FleetScatter {
        cpu: axis(|seat| seat.x)?,
        memory: axis(|seat| seat.y)?,
        freedom: seats.iter().map(|seat| f64::from(seat.count)).sum(),
    })
}
