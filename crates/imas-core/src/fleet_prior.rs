// SPDX-License-Identifier: Apache-2.0
//! Measurements of other hosts, as the policy takes them (docs/decisions/0032-a-fleet-learns-together.md).
//!
//! ```text
//! FleetPrior --arranged by candidate--> FleetEvidence --> pairs of limited weight beside the host's own: beliefs
//!                                            |
//!                                            +--> robust figure over groups of hosts: proof by the fleet
//! ```
//! The pairs decide which candidates need no trial here. They prove nothing: a candidate is proven by this host's
//! own trials, or by the fleet's robust figure alone. Without a prior the policy is what it is on one host.
//!
//! A proof by the fleet stays. The next figure of one noisy host would take away about every second proof of three
//! hosts, and a host that starts the program then would know nothing of it. So the fleet keeps the strongest figure that
//! it had for a candidate ([`FleetCandidate::strongest`]), until what it has now shows no gain.
//!
//! Last, a median over groups of hosts, and how far it can be trusted ([`RobustFigure`]).

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::compare::{Answer, Estimate, KnownFigure, judge};
use crate::stats::{Moments, mad, mean_and_deviation, median};

/// The fleet counts as no more than this number of the host's own rounds. A host that has finished its own
/// ([`crate::adaptive::Settings::max_rounds`]) goes by these: its machine may differ from the others.
pub const MOST_PAIRS: u32 = 4;
/// Degrees of freedom that the fleet's scatter of runs counts at most.
const MOST_FREEDOM: f64 = 8.0;
/// Least number of groups with which the fleet proves anything.
pub const LEAST_GROUPS: usize = 3;
/// Hosts among which one may lie; of fewer hosts none may. All liars may have reported, while
/// few of the others have. So as many groups are left out, those that praise a candidate most.
const HOSTS_PER_LIAR: u32 = 10;
/// Least number of groups whose median is believed, where liars are allowed for. Of two groups the
/// median is their mean, which one liar moves as he likes.
const LEAST_OF_MANY: usize = 3;
/// Weights of CPU for which the strongest figures are kept: leanest, balanced, fastest.
pub const WEIGHTS: [f64; 3] = [0.0, 0.5, 1.0];
/// Distance between two of the [`WEIGHTS`].
const STEP: f64 = 0.5;
/// A candidate is quarantined when it crashed the program in this number of groups.
pub const CRASHED_GROUPS: u32 = 3;
/// A candidate without figures is given up when its trials gave none in this number of groups.
const VOID_GROUPS: u32 = 3;

/// The fleet's knowledge of a program in this environment.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct FleetPrior {
    /// Hosts that reported, roughly.
    pub hosts: u32,
    /// The number of these whose figures count.
    pub counted: u32,
    /// Scatter of single runs, where known.
    pub scatter: Option<FleetScatter>,
    /// Candidates, each version of an allocator being one.
    pub candidates: Vec<FleetCandidate>,
}

/// Scatter of single runs: medians over hosts.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct FleetScatter {
    /// Standard deviation of ln CPU.
    pub cpu: f64,
    /// Standard deviation of ln memory.
    pub memory: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// The fleet's knowledge of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct FleetCandidate {
    /// Name of the candidate.
    pub name: String,
    /// Version of its allocator.
    pub version: String,
    /// Mean difference to `system` of each group of hosts that has figures.
    pub groups: Vec<GroupDifference>,
    /// Groups in which trials gave no figures.
    pub void_groups: u32,
    /// Groups in which it crashed the program.
    pub crashed_groups: u32,
    /// Surest gain for each of [`WEIGHTS`]: of all of at least the usual margin that the fleet has had, the
    /// one that is least likely to be chance. None where it had none since its figures showed no gain.
    #[serde(default)]
    pub strongest: [Option<RobustFigure>; 3],
}

/// Measurements of one group of hosts: mean differences of logarithms to `system`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct GroupDifference {
    /// Mean difference of ln CPU time.
    pub cpu: f64,
    /// Mean difference of ln memory.
    pub memory: f64,
}

impl FleetPrior {
    /// Arranged by candidate. What is known of another version does not count.
    pub fn evidence(&self, candidates: &[Candidate]) -> FleetEvidence {
        let of = |candidate: &Candidate| {
            let is_it =
                |one: &&FleetCandidate| one.name == candidate.name && one.version == candidate.version;
            self.candidates.iter().find(is_it).cloned().unwrap_or_default()
        };
        FleetEvidence {
            candidates: candidates.iter().map(of).collect(),
            counted: self.counted,
            scatter: self.scatter,
        }
    }

    /// Groups in which the candidate crashed the program; None where it is not quarantined for that.
    pub fn quarantines(&self, candidate: &Candidate) -> Option<u32> {
        let is_it = |one: &&FleetCandidate| one.name == candidate.name && one.version == candidate.version;
        let crashed = self.candidates.iter().find(is_it)?.crashed_groups;
        (crashed >= CRASHED_GROUPS && !candidate.is_system()).then_some(crashed)
    }
}

impl FleetCandidate {
    /// Gain of the candidate over `system` at weight `w` of CPU; None where no host has figures.
    pub fn gain(&self, w: f64) -> Option<RobustFigure> {
        RobustFigure::of(&self.gains(w))
    }

    /// Gain over `system` at weight `w` of CPU, without the groups that praise the candidate most: of
    /// `counted` hosts a tenth may lie. None where no more groups than these have reported.
    pub fn surest_gain(&self, w: f64, counted: u32) -> Option<RobustFigure> {
        let mut gains = self.gains(w);
        gains.sort_unstable_by(f64::total_cmp);
        gains.truncate(gains.len().saturating_sub(liars(counted)));
        RobustFigure::of(&gains)
    }

    /// Whether the fleet alone proves a gain of at least `margin`, with error probability `tail`: by its present figure,
    /// or by an earlier one while the present one shows a gain.
    pub fn proves(&self, w: f64, margin: f64, tail: f64, counted: u32) -> bool {
        let is_proof =
            |gain: &RobustFigure| judge(KnownFigure::Gain(gain.estimate(), tail), margin) == Answer::Better;
        let was_proof = || {
            let mut around = WEIGHTS.iter().zip(&self.strongest).filter(|(at, _)| (w - **at).abs() < STEP);
            around.all(|(_, strongest)| strongest.as_ref().is_some_and(is_proof))
        };
        self.present_gain(w, counted).is_some_and(|now| is_proof(&now) || was_proof())
    }

    /// Brings the strongest figures up to date, where `counted` hosts count. `margin` gives the usual one at a weight.
    pub fn renew_strongest(&mut self, counted: u32, margin: impl Fn(f64) -> f64) {
        for (at, w) in WEIGHTS.into_iter().enumerate() {
            let before = self.strongest[at];
            let is_stronger = |now: &RobustFigure| {
                now.value >= margin(w) && before.is_none_or(|before| now.chance() < before.chance())
            };
            let now = self.present_gain(w, counted);
            self.strongest[at] = now.and_then(|now| if is_stronger(&now) { Some(now) } else { before });
        }
    }

    /// The surest gain of enough groups, if it is one.
    fn present_gain(&self, w: f64, counted: u32) -> Option<RobustFigure> {
        self.surest_gain(w, counted).filter(|now| now.groups >= LEAST_GROUPS && now.value > 0.0)
    }

    /// Whether the candidate gives no figures for the program.
    pub fn is_void(&self) -> bool {
        self.groups.is_empty() && self.void_groups >= VOID_GROUPS
    }

    fn gains(&self, w: f64) -> Vec<f64> {
        self.groups.iter().map(|group| -(w * group.cpu + (1.0 - w) * group.memory)).collect()
    }

    /// The fleet's figures, expressed as rounds of this host. A median of n groups is as exact as a mean of
    /// about 2 n / 3. A single group shows nothing of others.
    fn pairs(&self, scatter: Option<FleetScatter>, counted: u32) -> Moments {
        if liars(counted) > 0 && self.groups.len() < LEAST_OF_MANY {
            return Moments::default();
        }
        let groups = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let count = (groups.saturating_mul(2) / 3).min(MOST_PAIRS);
        let axis =
            |of: fn(&GroupDifference) -> f64| median(&self.groups.iter().map(of).collect::<Vec<f64>>());
        let Some((x, y)) = axis(|group| group.cpu).zip(axis(|group| group.memory)) else {
            return Moments::default();
        };
        if count == 0 {
            return Moments::default();
        }
        let freedom = f64::from(count - 1);
        let squares = |sigma: f64| 2.0 * sigma * sigma * freedom;
        let [xx, yy] = scatter.map_or([0.0; 2], |scatter| [scatter.cpu, scatter.memory].map(squares));
        Moments { count, mean_x: x, mean_y: y, xx, yy, xy: 0.0 }
    }
}

/// Greatest number of liars among these hosts that is allowed for: none below ten, where a tenth is less than one host.
pub fn liars(counted: u32) -> usize {
    let most = if counted < HOSTS_PER_LIAR { 0 } else { counted.div_ceil(HOSTS_PER_LIAR) };
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The prior, arranged as the board is: one entry for each candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct FleetEvidence {
    /// Figures of each candidate; without groups where nothing is known.
    pub candidates: Vec<FleetCandidate>,
    /// Hosts whose figures count.
    pub counted: u32,
    /// Scatter of single runs.
    pub scatter: Option<FleetScatter>,
}

impl FleetEvidence {
    /// The host's own pairs, by candidate, joined with the fleet's.
    pub(crate) fn joined(&self, own: &[Moments]) -> Vec<Moments> {
        let fleet = |i: usize| {
            self.candidates.get(i).map_or_else(Moments::default, |one| one.pairs(self.scatter, self.counted))
        };
        own.iter().enumerate().map(|(i, pairs)| pairs.merge(fleet(i))).collect()
    }

    /// Sum of squares of single runs' scatter at weight `w`, and its degrees of freedom.
    pub(crate) fn squares(&self, w: f64) -> (f64, f64) {
        let Some(scatter) = self.scatter else { return (0.0, 0.0) };
        let freedom = scatter.freedom.min(MOST_FREEDOM);
        let variance = (w * scatter.cpu).powi(2) + ((1.0 - w) * scatter.memory).powi(2);
        (variance * freedom, freedom)
    }
}

/// The error of a median is this many times the error of a mean, for normal noise: sqrt(pi / 2).
const OF_MEDIAN: f64 = 1.2533;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// With fewer groups than this, the spread is their standard deviation if that is greater.
const FEW_GROUPS: usize = 10;
/// Least error that is assumed, as a difference of logarithms.
const LEAST_ERROR: f64 = 0.001;

/// A median over groups.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct RobustFigure {
    /// The median.
    pub value: f64,
    /// Standard error of the median, by the spread between the groups.
    pub error: f64,
    /// Number of groups.
    pub groups: usize,
}

impl RobustFigure {
    /// Figure from the values of the groups, one of each. None without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (value, spread) = median(values).zip(mad(values))?;
        let sigma = OF_MEDIAN * TO_SIGMA * spread;
        // The median deviation of three values is the smaller gap between them: it is often far too small by chance.
        let sigma = if values.len() < FEW_GROUPS { sigma.max(mean_and_deviation(values).1) } else { sigma };
        let error = (sigma / (values.len() as f64).sqrt()).max(LEAST_ERROR);
        Some(Self { value, error, groups: values.len() })
    }

    /// Probability of at least this value if the true one were 0; 1 for a single group.
    pub fn chance(&self) -> f64 {
        self.estimate().chance()
    }

    /// Converts the figure to an estimate of a gain.
    pub fn estimate(&self) -> Estimate {
        Estimate { gain: self.value, error: self.error, freedom: self.groups as f64 - 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(cpu: &[f64]) -> FleetCandidate {
        let groups = cpu.iter().map(|&cpu| GroupDifference { cpu, memory: 0.0 }).collect();
        FleetCandidate { groups, ..FleetCandidate::default() }
    }

    #[test]
    fn a_tenth_of_the_groups_may_lie() {
        let mut cpu = vec![0.03; 20];
        assert!(!candidate(&cpu).proves(1.0, 0.02, 0.05, 20));
        cpu[0] = -2.0;
        cpu[1] = -2.0;
        assert!(!candidate(&cpu).proves(1.0, 0.02, 0.05, 20));
        let surest = candidate(&cpu).surest_gain(1.0, 20).unwrap();
        assert!((surest.value + 0.03).abs() < 1e-12 && surest.groups == 18, "{surest:?}");
        assert!(!candidate(&[-2.0; 10]).proves(1.0, 0.02, 0.01, 100), "all of them may lie");
    }

    #[test]
    fn three_groups_prove_what_is_clear() {
        let proves = |cpu: &[f64], counted| candidate(cpu).proves(1.0, 0.02, 0.01, counted);
        assert!(proves(&[-0.10, -0.101, -0.099], 3));
        assert!(!proves(&[-0.10, -0.101], 2), "too few groups");
        assert!(!proves(&[-0.10, -0.101, -0.02], 3), "two agree by chance");
        assert!(
            proves(&[-0.10, -0.101, -0.099], 9) && !proves(&[-0.10, -0.101, -0.099], 10),
            "one of ten may lie"
        );
        assert_eq!([0, 9, 10, 11, 20, 100, 101].map(liars), [0, 0, 1, 2, 2, 10, 11]);
    }

    #[test]
    fn the_fleet_counts_as_few_rounds_however_large_it_is() {
        let count = |groups: usize, counted| candidate(&vec![-0.1; groups]).pairs(None, counted).count;
        assert_eq!([0, 1, 2, 3, 6, 128].map(|groups| count(groups, 9)), [0, 0, 1, 2, 4, MOST_PAIRS]);
        assert_eq!([1, 2, 3, 128].map(|groups| count(groups, 10)), [0, 0, 2, MOST_PAIRS], "one may lie");
    }

    #[test]
    fn a_proof_stays_until_the_figures_show_no_gain() {
        let mut one = candidate(&[-0.10, -0.101, -0.099]);
        let proves = |one: &FleetCandidate| one.proves(1.0, 0.02, 0.01, 4);
        one.renew_strongest(4, |_| 0.02);
        let noisy = |one: &FleetCandidate, cpu: f64| FleetCandidate {
            groups: [one.groups.clone(), candidate(&[cpu]).groups].concat(),
            ..one.clone()
        };
        let after = noisy(&one, 0.3);
        assert!(proves(&one) && proves(&after), "{after:?}");
        assert!(!proves(&FleetCandidate { strongest: [None; 3], ..after.clone() }), "the noise of one host");
        let at = [0.0, 0.25, 0.5, 0.75].map(|w| after.proves(w, 0.02, 0.01, 4));
        assert_eq!(at, [false, false, true, true], "memory alone shows no gain");
        assert!(!after.proves(1.0, 0.2, 0.01, 4), "it never was so large");
        let mut worse = noisy(&noisy(&after, 0.2), 0.1);
        worse.groups.remove(0);
        assert!(!proves(&worse), "the median shows a loss");
        worse.renew_strongest(4, |_| 0.02);
        assert_eq!(worse.strongest, [None; 3]);
        let mut few = one;
        few.renew_strongest(100, |_| 0.02);
        assert_eq!(few.strongest, [None; 3], "all three may lie");
    }

    #[test]
    fn the_median_of_groups_its_error_and_its_chance() {
        let figure = RobustFigure::of(&[0.10, 0.12, 0.08, 0.11, 0.09]).unwrap();
        assert!((figure.value - 0.10).abs() < 1e-12 && figure.groups == 5);
        assert!((figure.error - OF_MEDIAN * TO_SIGMA * 0.01 / 5_f64.sqrt()).abs() < 1e-9, "{figure:?}");
        assert!(RobustFigure::of(&[]).is_none());
        // t = 2.132 with four degrees of freedom is exceeded with a probability of 0.05.
        let chance = RobustFigure { value: 0.2132, error: 0.1, groups: 5 }.chance();
        assert!((chance - 0.05).abs() < 1e-4, "{chance}");
        assert_eq!(
            RobustFigure { value: 1.0, error: 0.1, groups: 1 }.chance(),
            1.0,
            "one group proves nothing"
        );
    }
}
