// SPDX-License-Identifier: Apache-2.0
//! A fleet that never was: hosts run a program whose runs are stored, share out the trials, publish, fold
//! and pick by the real code. Hosts exist by their state alone, so 100,000 of them are no burden.
//!
//! A host's round is a stored round of the program, drawn by chance, so its noise is the measured one. Each
//! host differs from the others by a little of its own ([`HostSpread`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::SimulatedProgram;
use imas_core::adaptive::round::JudgedTrial;
use imas_core::adaptive::{Board, Point, Role, Settings, judge};
use imas_core::candidate::Candidate;
use imas_core::stats::Moments;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use imas_exchange::aggregate::{Aggregate, CandidateAggregate, VERSION};
use imas_exchange::key::{self, Environment, ProgramKey};
use imas_exchange::seats::{CLIP, MOST_OF_MESSAGE};
use imas_exchange::share::{TrialTurn, USUAL_SHARE, lacks, trial_of};
use imas_exchange::statistics::{FleetStatistics, prior};
use imas_fleet::bus::StreamEntry;
use imas_fleet::merge::fold;

/// Epochs after which a fleet is taken as it is.
const MOST_EPOCHS: u64 = 600;
/// Epochs in which liars send: what they repeat changes nothing.
const LYING_EPOCHS: u64 = 2;
/// Length of an epoch in seconds: a host's turn.
const EPOCH_S: u64 = 600;
/// Greatest number of hosts of a small fleet, which asks every host in each epoch for its own judgement.
const SMALL: u32 = 200;

/// How hosts differ: standard deviations of a candidate's true cost between hosts, as differences of
/// logarithms. Assumed, not measured: the committed data are of one machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostSpread {
    /// Standard deviation of the CPU cost.
    pub cpu: f64,
    /// Standard deviation of the memory cost.
    pub memory: f64,
}

impl Default for HostSpread {
    fn default() -> Self {
        Self { cpu: 0.01, memory: 0.02 }
    }
}

/// A fleet that runs one program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimulatedFleet {
    /// Hosts that run the program.
    pub hosts: u32,
    /// How many of them lie: they praise the candidate that is worst beyond all measure, and blame the
    /// others.
    pub liars: u32,
    /// Whether the liars do lie: they are silent otherwise.
    pub lies: bool,
    /// How many never publish.
    pub silent: u32,
    /// How hosts differ.
    pub spread: HostSpread,
    /// Weight of CPU.
    pub w: f64,
    /// Seed.
    pub seed: u64,
}

/// Outcome of a simulated fleet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FleetOutcome {
    /// Trials of all honest hosts until the answer was settled.
    pub trials: u64,
    /// Epochs until the answer was settled.
    pub epochs: u64,
    /// Greatest number of hosts in a trial in one epoch.
    pub busiest: u64,
    /// Aggregates that hosts published.
    pub messages: u64,
    /// Bytes of these aggregates.
    pub bytes: u64,
    /// Bytes of the statistics at the end.
    pub statistics_bytes: u64,
    /// How often hosts that join had a proof to go by after one epoch, and none after the next.
    pub lost_proofs: u64,
    /// Candidate that a host that joins now starts with.
    pub pick: String,
    /// Candidate that a newcomer would start with, had the same hosts sent the same messages, and the liars
    /// none.
    pub pick_without_liars: String,
    /// Cost of the pick over `system` on the usual host, as a difference of logarithms of the score.
    pub cost: f64,
    /// Cost of the best candidate over `system` on the usual host, as a difference of logarithms of
    /// the score. At most 0.
    pub best: f64,
}

struct Host {
    name: String,
    trials: Vec<JudgedTrial>,
    batch: u64,
}

struct Fleet<'a> {
    plan: &'a SimulatedFleet,
    program: &'a SimulatedProgram,
    settings: Settings,
    candidates: Vec<Candidate>,
    truth: Vec<Point>,
    hosts: BTreeMap<u32, Host>,
    statistics: FleetStatistics,
    /// Statistics of the honest hosts' messages alone.
    without_liars: FleetStatistics,
    /// Aggregates in the stream that are not folded yet.
    waiting: Vec<StreamEntry>,
    /// Sequence numbers of the aggregates that are lies.
    lies: BTreeSet<u64>,
    /// Index of the candidate that hosts start with which join after the last epoch.
    pick: usize,
    outcome: FleetOutcome,
}

/// Lets a fleet learn a program; None where the program has no complete rounds.
pub fn simulate(plan: &SimulatedFleet, program: &SimulatedProgram) -> Option<FleetOutcome> {
    let mut fleet = Fleet::new(plan, program)?;
    for epoch in 0..MOST_EPOCHS {
        if epoch == 0 {
            fleet.greet();
        }
        fleet.lie(epoch);
        if fleet.epoch(epoch) == 0 && fleet.is_settled() {
            break;
        }
        fleet.fold();
        fleet.note_pick();
        fleet.outcome.epochs = epoch + 1;
    }
    Some(fleet.finished())
}

impl<'a> Fleet<'a> {
    fn new(plan: &'a SimulatedFleet, program: &'a SimulatedProgram) -> Option<Self> {
        let truth = truth(program)?;
        let key = ProgramKey::new("simulated", &[&program.name]);
        let environment = Environment {
            architecture: "x86_64".to_owned(),
            page_bytes: 4096,
            huge_pages: "madvise".to_owned(),
            cpus: 2,
            // Who tries what when follows from the key: with another one, all chance is another.
            threads: None,
        };
        let candidates = program.candidates.iter().map(|name| Candidate::new(name, "1", &[])).collect();
        Some(Self {
            plan,
            program,
            settings: Settings { seed: plan.seed, ..Settings::default() },
            candidates,
            truth,
            hosts: BTreeMap::new(),
            statistics: FleetStatistics::new(key.clone(), environment.clone()),
            without_liars: FleetStatistics::new(key, environment),
            waiting: vec![],
            lies: BTreeSet::new(),
            pick: 0,
            outcome: FleetOutcome::default(),
        })
    }

    fn subject(&self) -> String {
        key::subject(&self.statistics.program, &self.statistics.environment)
    }

    /// One start of the program on every host; how many were in a trial.
    fn epoch(&mut self, epoch: u64) -> u64 {
        let known = prior(&self.statistics);
        let names: Vec<(&str, &str)> = self.candidates[1..].iter().map(|c| (c.name.as_str(), "1")).collect();
        let lacking = lacks(&known, &names, &self.settings);
        let subject = self.subject();
        let evidence = known.evidence(&self.candidates);
        let mut busy = 0;
        for number in self.plan.liars..self.plan.hosts {
            let name = host_name(number);
            let turn = TrialTurn {
                host: &name,
                subject: &subject,
                epoch,
                hosts: self.plan.hosts,
                share: USUAL_SHARE,
            };
            let Some(chosen) = trial_of(&turn, &lacking) else { continue };
            let at = self.program.candidates.iter().position(|one| one == chosen).unwrap_or(0);
            if self.plan.hosts <= SMALL && self.is_done(number, at, &evidence) {
                continue;
            }
            self.trial(number, at);
            busy += 1;
        }
        self.outcome.busiest = self.outcome.busiest.max(busy);
        busy
    }

    /// Whether the host's own judgement needs no trial of the candidate.
    fn is_done(&self, number: u32, at: usize, fleet: &imas_core::fleet_prior::FleetEvidence) -> bool {
        let trials = self.hosts.get(&number).map_or(&[][..], |host| host.trials.as_slice());
        let mut board = Board::new(trials, self.candidates.len(), 0);
        board.fleet = Some(fleet.clone());
        let judged =
            judge(&board, &vec![Role::Tested; self.candidates.len()], 0, self.plan.w, &self.settings);
        let is_spent = board.trials_of(at) >= self.settings.max_rounds;
        judged.next.is_none() || is_spent
    }

    /// A host tries a candidate beside `system`, and publishes the difference.
    fn trial(&mut self, number: u32, at: usize) {
        let own = self.own(number, at);
        // The draws of a host do not depend on what others do.
        let tried = self.hosts.get(&number).map_or(0, |host| host.batch);
        let mut random = ChaCha8Rng::seed_from_u64(self.plan.seed ^ u64::from(number) << 8);
        random.set_stream(2 + tried);
        let round = &self.program.rounds[random.random_range(0..self.program.rounds.len())];
        let Some((system, point)) = round[0].zip(round[at]) else { return };
        let point = Point { cpu: point.cpu + own.cpu, memory: point.memory + own.memory };
        let fresh = || Host { name: host_name(number), trials: vec![], batch: 0 };
        let host = self.hosts.entry(number).or_insert_with(fresh);
        host.trials.push(JudgedTrial { candidate: 0, point: Some(system) });
        host.trials.push(JudgedTrial { candidate: at, point: Some(point) });
        host.batch += 1;
        let (name, batch) = (host.name.clone(), host.batch);
        self.outcome.trials += 2;
        if number >= self.plan.liars + self.plan.silent {
            let excess = point.over(system);
            let pairs = Moments::of(excess.cpu, excess.memory);
            self.publish(&name, batch, &[(at, pairs)]);
        }
    }

    /// Cost of the candidate on this host above its cost on the usual host, as differences of logarithms.
    fn own(&self, number: u32, at: usize) -> Point {
        let mut random = ChaCha8Rng::seed_from_u64(self.plan.seed ^ (u64::from(number) << 8 | at as u64));
        random.set_stream(1);
        Point {
            cpu: self.plan.spread.cpu * normal(&mut random),
            memory: self.plan.spread.memory * normal(&mut random),
        }
    }

    /// Announces the program once for each host that runs it: how many may lie follows from how many there
    /// are.
    fn greet(&mut self) {
        for number in self.plan.liars + self.plan.silent..self.plan.hosts {
            self.publish(&host_name(number), 0, &[]);
        }
        self.fold();
    }

    fn lie(&mut self, epoch: u64) {
        if epoch >= LYING_EPOCHS || !self.plan.lies {
            return;
        }
        let score = |i: &usize| self.truth[*i].score(self.plan.w);
        let worst = (1..self.truth.len()).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or(0);
        let lie = |at: usize| {
            let by = if at == worst { -CLIP } else { CLIP };
            // The message has as many rounds as count: with more, the fold drops it whole.
            (at, Moments { count: MOST_OF_MESSAGE, ..Moments::of(by, by) })
        };
        let lies: Vec<(usize, Moments)> = (1..self.truth.len()).map(lie).collect();
        for number in 0..self.plan.liars {
            self.publish(&host_name(number), epoch, &lies);
            self.lies.extend(self.waiting.last().map(|one| one.sequence));
        }
    }

    fn publish(&mut self, host: &str, batch: u64, pairs: &[(usize, Moments)]) {
        let of = |(at, pairs): &(usize, Moments)| {
            let one = CandidateAggregate { version: "1".to_owned(), pairs: *pairs, void: 0, crashes: 0 };
            (self.program.candidates[*at].clone(), one)
        };
        let aggregate = Aggregate {
            v: VERSION,
            host: host.to_owned(),
            boot: "boot".to_owned(),
            batch,
            program: self.statistics.program.clone(),
            environment: self.statistics.environment.clone(),
            candidates: pairs.iter().map(of).collect(),
            residual: Moments::default(),
            freedom: 0.0,
        };
        let bytes = serde_json::to_vec(&aggregate).unwrap_or_default();
        self.outcome.messages += 1;
        self.outcome.bytes += bytes.len() as u64;
        let sequence = self.statistics.upto_seq + 1 + self.waiting.len() as u64;
        let at_unix_s = self.outcome.epochs * EPOCH_S;
        self.waiting.push(StreamEntry { sequence, at_unix_s, payload: bytes });
    }

    fn fold(&mut self) {
        self.statistics = fold(&self.statistics, &self.waiting).0;
        self.waiting.retain(|one| !self.lies.contains(&one.sequence));
        self.without_liars = fold(&self.without_liars, &self.waiting).0;
        self.waiting.clear();
    }

    /// Whether no host would try anything, now or in a later epoch.
    fn is_settled(&self) -> bool {
        let known = prior(&self.statistics);
        let names: Vec<(&str, &str)> = self.candidates[1..].iter().map(|c| (c.name.as_str(), "1")).collect();
        let lacks_nothing = lacks(&known, &names, &self.settings).iter().all(|lack| lack.need == 0);
        if lacks_nothing || self.plan.hosts > SMALL {
            return lacks_nothing;
        }
        let evidence = known.evidence(&self.candidates);
        let is_done = |number| (1..self.candidates.len()).all(|at| self.is_done(number, at, &evidence));
        (self.plan.liars..self.plan.hosts).all(is_done)
    }

    fn note_pick(&mut self) {
        let pick = self.newcomers_pick(&self.statistics);
        self.outcome.lost_proofs += u64::from(self.pick != 0 && pick == 0);
        self.pick = pick;
    }

    /// Pick of a host without trials of its own. If the fleet has one host alone, its trials count.
    fn newcomers_pick(&self, statistics: &FleetStatistics) -> usize {
        let alone = self.hosts.values().next().filter(|_| self.plan.hosts == 1);
        let trials = alone.map_or(&[][..], |host| host.trials.as_slice());
        let mut board = Board::new(trials, self.candidates.len(), 0);
        board.fleet = Some(prior(statistics).evidence(&self.candidates));
        let roles = vec![Role::Tested; self.candidates.len()];
        judge(&board, &roles, 0, self.plan.w, &self.settings).pick
    }

    fn finished(mut self) -> FleetOutcome {
        let [pick, without_liars] =
            [&self.statistics, &self.without_liars].map(|known| self.newcomers_pick(known));
        let score = |point: &Point| point.score(self.plan.w);
        self.outcome.pick.clone_from(&self.candidates[pick].name);
        self.outcome.pick_without_liars.clone_from(&self.candidates[without_liars].name);
        self.outcome.cost = score(&self.truth[pick]);
        self.outcome.best = self.truth.iter().map(score).fold(0.0, f64::min);
        self.outcome.statistics_bytes = self.statistics.to_bytes().len() as u64;
        self.outcome
    }
}

/// Cost of each candidate over `system` in the mean of the stored rounds; hosts draw from it.
fn truth(program: &SimulatedProgram) -> Option<Vec<Point>> {
    let mean = |at: usize| {
        let pairs: Vec<(f64, f64)> = program
            .rounds
            .iter()
            .filter_map(|round| round[at].zip(round[0]))
            .map(|(point, system)| point.over(system))
            .map(|over| (over.cpu, over.memory))
            .collect();
        let all: Moments = pairs.into_iter().collect();
        (all.count > 0).then_some(Point { cpu: all.mean_x, memory: all.mean_y })
    };
    (0..program.candidates.len()).map(mean).collect()
}

fn host_name(number: u32) -> String {
    String::from(ProgramKey::new("host", &[&number.to_string()]))
}

/// Standard normal: the sum of twelve uniform numbers is near enough for differences between hosts.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}
