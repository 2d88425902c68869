// SPDX-License-Identifier: Apache-2.0
//! Which candidates are eliminated, which trial is next, and which candidate is picked.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

mod proof;

use self::proof::{Direction, SURE, directions};
use super::board::{Belief, Noise, RECENT, Spread};
use super::{Board, Settings};
use crate::compare::Answer;
use crate::fleet_prior::FleetCandidate;
use crate::stats::{Interval, Moments};

pub use self::proof::Proof;
pub(crate) use crate::adaptive::judge::proof::{Asked, side_by_side};

/// A candidate is eliminated when the expected loss by this is at most this much score, as a difference of
/// logarithms.
const PRICE: f64 = 0.006;
/// Usual spread between allocators: standard deviations of ln CPU and ln memory relative to `system`, roughly
/// as in lab/data/first.jsonl.
const USUAL: [f64; 2] = [0.08, 0.25];
/// Number of trials without figures after which a candidate that never had any is eliminated.
const VOID_TRIALS: u32 = 2;

/// Whether a candidate may be tried and used.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tried and used.
    Tested,
    /// A candidate that has left the set. It is used as long as its trials prove it better, and tried only to
    /// watch it while it is the pick.
    Kept,
    /// A candidate that is neither tried nor used.
    Ineligible,
}

/// Status of a candidate.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The incumbent, which the others must beat.
    Incumbent,
    /// The candidate is not eliminated.
    Open,
    /// Proven to beat the incumbent by the margin.
    Proven,
    /// Worse than the best, and its expected remaining gain is below the cost of a trial.
    Worse,
    /// The candidate was better, but each of its newest three rounds was worse than `system`: the pick steps
    /// back.
    Regressed,
    /// The candidate costs more CPU time or more memory than a pick may.
    TooCostly,
    /// Equal to the best to within the cost of a trial.
    NoBetter,
    /// The candidate's expected gain is below the cost of the rounds that could still prove it better than
    /// the incumbent.
    NotProvable,
    /// The candidate's trials yield no figures.
    Void,
    /// Ineligible: quarantined, not loadable on this machine, or above the memory limit.
    Ineligible,
    /// The candidate left the set unproven.
    Left,
}

/// A candidate with its figures against `system`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// The candidate's status.
    pub status: Status,
    /// Number of rounds the figures are computed from.
    pub rounds: u32,
    /// Gain in score over `system`, as a difference of logarithms: 0.1 is about 10 % better. 0 without
    /// rounds.
    pub gain: f64,
    /// Half width of its 95 % interval for this one candidate; infinite without rounds.
    pub within: f64,
    /// Mean difference of ln CPU to `system`.
    pub cpu: f64,
    /// Mean difference of ln memory to `system`.
    pub memory: f64,
    /// The figure by which it is proven better than the incumbent; None where it is not proven.
    #[serde(default)]
    pub proof: Option<Proof>,
}

/// The policy's conclusions from a board.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Judgement {
    /// Standing of each candidate.
    pub standings: Vec<Standing>,
    /// Candidate whose trial is most informative now; None when the answer is settled.
    pub next: Option<usize>,
    /// Candidate to use until then.
    pub pick: usize,
}

/// Judges the board at weight `w` of CPU (0 to 1). `roles` says whether each candidate may be tried and used;
/// `system` always may. `incumbent` is the candidate in use so far.
pub fn judge(board: &Board, roles: &[Role], incumbent: usize, w: f64, settings: &Settings) -> Judgement {
    with_judge(board, roles, incumbent, w, settings, |judge| {
        let standings: Vec<Standing> = (0..board.pairs.len()).map(|i| judge.standing(i)).collect();
        let pick = judge.pick(&standings);
        let next = judge.next(&standings, pick);
        Judgement { next, pick, standings: judge.with_pick(standings, pick) }
    })
}

/// A change from one candidate to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CandidateChange {
    /// Ratio of CPU time, the later candidate to the earlier, with its 95 % interval; None without trials of both.
    pub cpu: Option<Interval>,
    /// Ratio of memory, with its 95 % interval.
    pub memory: Option<Interval>,
    /// Number of trials with figures, of the earlier candidate and of the later.
    pub trials: [u32; 2],
    /// Whether the later candidate is proven better.
    pub answer: Answer,
}

/// The change from one candidate to another: ratios, and whether it is proven.
pub(crate) fn change(
    board: &Board,
    roles: &[Role],
    (from, to): (usize, usize),
    w: f64,
    settings: &Settings,
) -> CandidateChange {
    with_judge(board, roles, from, w, settings, |judge| CandidateChange {
        cpu: judge.ratio(to, from, 0),
        memory: judge.ratio(to, from, 1),
        trials: [board.counted[from], board.counted[to]],
        // `system` takes the place of an ineligible candidate: that is another question.
        answer: match judge.incumbent == from && judge.may_replace(to) {
            true => Answer::Better,
            false => Answer::NotShown,
        },
    })
}

/// Judges on the host's own trials; and where a fleet knows more on both together, with the former for proofs.
fn with_judge<T>(
    board: &Board,
    roles: &[Role],
    incumbent: usize,
    w: f64,
    settings: &Settings,
    judged: impl FnOnce(&Judge<'_>) -> T,
) -> T {
    let question = Question { roles, incumbent, w, settings };
    let Some(fleet) = &board.fleet else { return judged(&Judge::new(board, question, None)) };
    let alone = Board { fleet: None, ..board.clone() };
    let own = Judge::new(&alone, question, None);
    let joined = Board { pairs: fleet.joined(&board.pairs), ..board.clone() };
    judged(&Judge::new(&joined, question, Some(&own)))
}

/// Question that a judge is asked.
#[derive(Clone, Copy)]
struct Question<'a> {
    roles: &'a [Role],
    incumbent: usize,
    /// Weight of CPU.
    w: f64,
    settings: &'a Settings,
}

struct Judge<'a> {
    /// The judge of this host's own trials, where the pairs are not its own alone.
    own: Option<&'a Judge<'a>>,
    board: &'a Board,
    roles: &'a [Role],
    /// Indices of the candidates that may be used.
    usable: Vec<bool>,
    incumbent: usize,
    w: f64,
    settings: &'a Settings,
    noise: Noise,
    /// The figures by which a challenger can be proven better.
    directions: Vec<Direction>,
    /// Noise of CPU alone and of memory alone.
    axes: [Noise; 2],
    /// Candidates that could replace the incumbent.
    challengers: f64,
    /// Spread between the candidates on either axis, as far as it is known.
    apart: [f64; 2],
    /// The usable candidate with the highest posterior mean among those with rounds.
    best: usize,
}

impl<'a> Judge<'a> {
    fn new(board: &'a Board, question: Question<'a>, own: Option<&'a Judge<'a>>) -> Self {
        let Question { roles, incumbent, w, settings } = question;
        let may: Vec<bool> = roles.iter().map(|role| *role != Role::Ineligible).collect();
        let challengers = may.iter().enumerate().filter(|&(i, &may)| may && i != incumbent).count();
        let incumbent = if incumbent == board.system || may[incumbent] { incumbent } else { board.system };
        let noise = Noise::of(board, w);
        let axes = [1.0, 0.0].map(|axis| Noise::of(board, axis));
        let mut judge = Self {
            own,
            board,
            roles,
            usable: may,
            incumbent,
            w,
            settings,
            directions: directions(w, noise, axes[1]),
            noise,
            axes,
            challengers: challengers.max(1) as f64,
            apart: USUAL,
            best: incumbent,
        };
        judge.apart = [judge.apart(0), judge.apart(1)];
        // A candidate that left unproven can never be the pick; compared with it, others would be eliminated
        // wrongly.
        let stays = |i: usize| roles[i] != Role::Kept || i == incumbent || judge.is_proven(i);
        let usable = (0..roles.len()).map(|i| judge.usable[i] && stays(i)).collect();
        judge.usable = usable;
        judge.best = judge.find_best();
        judge
    }

    fn may(&self, i: usize) -> bool {
        i == self.board.system || self.usable[i]
    }

    fn rounds(&self, i: usize) -> u32 {
        if i == self.board.system { self.board.counted[i] } else { self.board.pairs[i].count }
    }

    /// Posterior mean of the gain over `system`.
    fn gain(&self, i: usize) -> f64 {
        if i == self.board.system { 0.0 } else { -self.board.pairs[i].mean(self.w, 1.0 - self.w) }
    }

    fn find_best(&self) -> usize {
        let is_known = |i: &usize| self.may(*i) && self.rounds(*i) > 0 && self.is_affordable(*i);
        let known = (0..self.board.pairs.len()).filter(is_known);
        known.fold(self.incumbent, |best, i| if self.worth(i) > self.worth(best) { i } else { best })
    }

    /// Standard deviation of the candidates' true differences to `system` on an axis (0: CPU, 1: memory). It
    /// is the usual one, or this program's own where that is larger (mean square of the differences less the
    /// part that is noise). Some programs depend on their allocator far more than most.
    fn apart(&self, axis: usize) -> f64 {
        let a = [1.0, 0.0][axis];
        let known = self
            .board
            .pairs
            .iter()
            .enumerate()
            .filter(|(i, pairs)| *i != self.board.system && pairs.count > 0);
        let squares: Vec<f64> = known
            .map(|(_, pairs)| {
                pairs.mean(a, 1.0 - a).powi(2)
                    - self.axes[axis].expected(pairs).sigma.powi(2) / f64::from(pairs.count)
            })
            .collect();
        let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
        mean.max(USUAL[axis].powi(2)).sqrt()
    }

    /// Posterior mean of its gain over `system`.
    fn worth(&self, i: usize) -> f64 {
        self.belief(i, self.board.system).mean
    }

    /// Expectation of a candidate's difference to `system` on an axis before its first round.
    fn prior(&self, i: usize, axis: usize) -> Belief {
        Belief::usual(if i == self.board.system { 0.0 } else { self.apart[axis] })
    }

    /// Posterior of how much candidate `i` is better than `other`. Each axis is shrunk towards what was
    /// expected before, according to its noise: memory hardly, CPU considerably until there are several
    /// rounds.
    fn belief(&self, i: usize, other: usize) -> Belief {
        let rounds = self.common_rounds(i, other);
        if i == other || rounds == 0 {
            return Belief { mean: 0.0, variance: f64::MIN_POSITIVE };
        }
        let [cpu, memory] = [(0, 1.0), (1, 0.0)].map(|(axis, a)| {
            let mean =
                |i: usize| if i == self.board.system { 0.0 } else { self.board.pairs[i].mean(a, 1.0 - a) };
            let sigma = self.axes[axis].expected(self.pairs_of(i, other)).sigma;
            let before = self.prior(other, axis).less(self.prior(i, axis));
            before.after(rounds, mean(other) - mean(i), sigma)
        });
        let v = 1.0 - self.w;
        Belief {
            mean: self.w * cpu.mean + v * memory.mean,
            variance: self.w.powi(2) * cpu.variance + v.powi(2) * memory.variance,
        }
    }

    /// Differences to `system` that show how far one of both scatters: the differences of `system` itself are
    /// all 0.
    fn pairs_of(&self, i: usize, other: usize) -> &Moments {
        &self.board.pairs[if i == self.board.system { other } else { i }]
    }

    fn expected(&self, i: usize) -> Spread {
        self.noise.expected(&self.board.pairs[i])
    }

    /// Number of rounds that inform the difference of two candidates.
    fn common_rounds(&self, i: usize, other: usize) -> u32 {
        let rounds = |i: usize| if i == self.board.system { u32::MAX } else { self.rounds(i) };
        rounds(i).min(rounds(other))
    }

    /// Whether a candidate's last three rounds were all worse than `system`. For a better candidate this
    /// happens less than once in a hundred times. A mean over all rounds would show the change much later.
    fn is_regressed(&self, i: usize) -> bool {
        let recent = &self.board.recent[i];
        i != self.board.system
            && recent.len() == RECENT
            && recent.iter().all(|point| point.score(self.w) > 0.0)
    }

    fn status(&self, i: usize) -> Status {
        if !self.may(i) {
            return if self.roles[i] == Role::Kept { Status::Left } else { Status::Ineligible };
        }
        if i == self.incumbent {
            return Status::Incumbent;
        }
        if i != self.board.system && self.rounds(i) == 0 {
            return if self.is_void(i) { Status::Void } else { Status::Open };
        }
        if let Some(out) = self.out(i) {
            return out;
        }
        if self.is_too_costly(i) {
            return Status::TooCostly;
        }
        match self.is_proven(i) {
            true => Status::Proven,
            false if self.is_regressed(i) => Status::Regressed,
            false if self.is_hopeless(i) => Status::NotProvable,
            false => Status::Open,
        }
    }

    /// Whether a candidate's trials give no figures, here or in the fleet.
    fn is_void(&self, i: usize) -> bool {
        let fleet = self.board.fleet.as_ref().and_then(|fleet| fleet.candidates.get(i));
        self.board.void[i] >= VOID_TRIALS || fleet.is_some_and(FleetCandidate::is_void)
    }

    /// Status compared with the best.
    fn out(&self, i: usize) -> Option<Status> {
        if self.best == i {
            return None;
        }
        let belief = self.belief(i, self.best);
        let left = belief.upside() < PRICE;
        left.then_some(if -belief.mean > self.settings.margin(self.w) {
            Status::Worse
        } else {
            Status::NoBetter
        })
    }

    fn standing(&self, i: usize) -> Standing {
        let rounds = self.rounds(i);
        let is_system = i == self.board.system;
        let known = rounds > 0 && !is_system;
        let pairs = &self.board.pairs[i];
        Standing {
            status: self.status(i),
            rounds,
            gain: self.gain(i),
            within: if is_system { 0.0 } else { self.within(i, rounds) },
            cpu: if known { pairs.mean_x } else { 0.0 },
            memory: if known { pairs.mean_y } else { 0.0 },
            proof: if i == self.incumbent || rounds == 0 || !self.may(i) { None } else { self.proof(i) },
        }
    }

    /// Whether a candidate is proven to beat the incumbent, at a cost that a pick may have.
    fn may_replace(&self, i: usize) -> bool {
        self.may(i) && i != self.incumbent && self.is_affordable(i) && self.is_proven(i)
    }

    /// Ratio of CPU time (axis 0) or memory (axis 1) of a candidate to another, with its 95 % interval; None without
    /// rounds that inform it.
    fn ratio(&self, i: usize, other: usize, axis: usize) -> Option<Interval> {
        let rounds = self.common_rounds(i, other);
        let noise = self.axes[axis];
        let [shown, expected] = [Noise::shown, Noise::expected]
            .map(|spread| spread(&noise, self.pairs_of(i, other)).bound(0.025, rounds));
        let within = if shown.is_finite() { shown } else { expected };
        let difference = self.cost(i)[axis] - self.cost(other)[axis];
        let at = |off: f64| (difference + off).exp();
        let is_known = rounds > 0 && within.is_finite() && i != other;
        is_known.then(|| Interval { lo: at(-within), mid: at(0.0), hi: at(within) })
    }

    /// The candidate that costs least on the other axis, among those as good as the best within the noise,
    /// where one axis alone is wanted.
    fn best_of_tied(&self, best: usize, proven: &[usize]) -> usize {
        let Some(other) = other_axis(self.w) else { return best };
        let is_tied = |&i: &usize| {
            let ahead = self.belief(best, i);
            i == best
                || ahead.mean <= self.settings.margin(self.w)
                || ahead.mean <= SURE * ahead.variance.sqrt()
        };
        let cost = |i: usize| self.cost(i)[other];
        let tied = proven.iter().copied().filter(is_tied);
        tied.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(best)
    }

    /// Mean differences of ln CPU and ln memory to `system`.
    fn cost(&self, i: usize) -> [f64; 2] {
        if i == self.board.system {
            [0.0; 2]
        } else {
            [self.board.pairs[i].mean_x, self.board.pairs[i].mean_y]
        }
    }

    fn most_cost(&self) -> [f64; 2] {
        [self.settings.max_cpu, self.settings.max_memory].map(f64::ln_1p)
    }

    /// Whether a candidate's rounds cost no more on either axis than a pick may.
    fn is_affordable(&self, i: usize) -> bool {
        self.cost(i).iter().zip(self.most_cost()).all(|(cost, most)| *cost <= most)
    }

    /// Whether a candidate costs too much beyond the noise: further trials would not change that.
    fn is_too_costly(&self, i: usize) -> bool {
        let beyond = |axis: usize| {
            let pairs = &self.board.pairs[i];
            let sigma = self.axes[axis].expected(pairs).sigma;
            self.cost(i)[axis] - SURE * sigma / f64::from(pairs.count.max(1)).sqrt() > self.most_cost()[axis]
        };
        i != self.board.system && (0..2).any(beyond)
    }

    /// Noise from the program's own trials as soon as they give a spread.
    fn within(&self, i: usize, rounds: u32) -> f64 {
        let shown = self.noise.shown(&self.board.pairs[i]).bound(0.025, rounds);
        if shown.is_finite() { shown } else { self.expected(i).bound(0.025, rounds) }
    }

    /// Best of the proven candidates, else the incumbent. An incumbent that has become worse than `system`
    /// gives way to it.
    fn pick(&self, standings: &[Standing]) -> usize {
        // A candidate that is eliminated against a better one, but proven against the incumbent, still beats
        // the incumbent.
        let proven: Vec<usize> = (0..standings.len()).filter(|&i| self.may_replace(i)).collect();
        let best = proven.iter().copied().max_by(|&a, &b| self.worth(a).total_cmp(&self.worth(b)));
        best.map_or(self.incumbent, |best| self.best_of_tied(best, &proven))
    }

    /// The standings as they are reported. Another candidate may be expected to be better than the pick and
    /// not be proven so: the pick is then none the less the best that is proven, and not "worse than the
    /// best".
    fn with_pick(&self, mut standings: Vec<Standing>, pick: usize) -> Vec<Standing> {
        if pick != self.incumbent {
            standings[pick].status = Status::Proven;
        }
        standings
    }

    /// The next trial: the first candidate in seeded order that is not eliminated and has no trial in this
    /// round. None when the answer is settled.
    fn next(&self, standings: &[Standing], pick: usize) -> Option<usize> {
        let begun = self.board.rounds.max(1);
        let in_this = self.among(standings, pick, &self.board.in_round);
        let (among, round) = match in_this.is_empty() {
            true => (self.among(standings, pick, &[]), begun + 1),
            false => (in_this, begun),
        };
        let places = self.places(round);
        among.into_iter().min_by_key(|&i| places[i])
    }

    /// Candidates that are still to be tried in a round; none where the round is not worth its cost. Each
    /// candidate's own trials are counted. One that joins later (a new version, a new installation), or that
    /// was left out while only the pick was watched, gets as many trials as the others had, with the pick
    /// beside it. The last trial of a candidate is compared as the others are: its round goes on until `system`
    /// is in it.
    fn among(&self, standings: &[Standing], pick: usize, done: &[usize]) -> Vec<usize> {
        let may_go_on = |i: usize| done.contains(&i) || self.board.trials_of(i) < self.settings.max_rounds;
        let mut among: Vec<usize> = (0..standings.len())
            .filter(|&i| self.is_running(i, standings) && (i == pick || may_go_on(i)))
            .collect();
        if among.iter().all(|&i| i == pick) {
            return vec![];
        }
        among.extend([self.incumbent, self.board.system]);
        among.sort_unstable();
        among.dedup();
        among.retain(|i| !done.contains(i));
        among
    }

    fn is_running(&self, i: usize, standings: &[Standing]) -> bool {
        i != self.board.system
            && self.roles[i] == Role::Tested
            && matches!(standings[i].status, Status::Open | Status::Proven)
    }
}

/// The axis that is not wanted, where only one is; 0 is CPU, 1 is memory.
fn other_axis(w: f64) -> Option<usize> {
    match w {
        w if w > 0.75 => Some(1),
        w if w < 0.25 => Some(0),
        _ => None,
    }
}

impl Judge<'_> {
    /// Order of the candidates in a round, the first by their places: random by the seed, and computed without stored
    /// state.
    fn places(&self, round: u32) -> Vec<(u32, u64)> {
        let mut random = ChaCha8Rng::seed_from_u64(self.settings.seed);
        random.set_stream(u64::from(round));
        let place = |i: usize| self.board.places.get(i).copied().filter(|_| round <= 1).unwrap_or(0);
        (0..self.board.pairs.len()).map(|i| (place(i), random.random())).collect()
    }
}
