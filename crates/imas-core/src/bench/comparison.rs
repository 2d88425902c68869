// SPDX-License-Identifier: Apache-2.0
//! The comparison as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::above_floor::AboveFloor;
use super::eligibility::{IneligibleCandidate, Reference};
use super::look_outcome::LookOutcome;
use super::options::Options;
use super::outlook::{Outlook, outlook};
use super::pairs::{Criterion, common_spread, more_runs, pairs, ratio};
use super::picks::{BenchPicks, Entrant, PassedOver, passed_over, picks};
use super::run::{CandidateRuns, MedianRun};
use super::verdict::{Verdict, Word, word};
use super::warning::{TOO_NOISY, TOO_SHORT_S, TOO_UNSURE, Warning};
use crate::candidate::SYSTEM;
use crate::compare::{PairedRatio, Spread};
use crate::run::RawRun;
use crate::stats::{Interval, attainable_confidence, relative_spread};

/// Ratios to `system`, medians over the rounds; None where there is nothing to compare.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Ratios {
    /// User and system CPU time.
    pub cpu: Option<Interval>,
    /// Mean of resident anonymous memory.
    pub memory: Option<Interval>,
    /// Elapsed time, where [`Options::wall_and_peak`] asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Interval>,
    /// Peak of resident anonymous memory, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Interval>,
}

/// Rough number of further runs until a ratio is settled: 0 when it is, None when it is too close to call or
/// unknown.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoreRuns {
    /// Number of runs for the CPU ratio.
    pub cpu: Option<u32>,
    /// Number of runs for the memory ratio.
    pub memory: Option<u32>,
}

/// The result of a benchmark for one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateResult {
    /// Name in the catalogue.
    pub name: String,
    /// Medians over the runs that ended as under `system`.
    pub median: Option<MedianRun>,
    /// Ratios to `system`.
    pub ratio: Ratios,
    /// Words on both.
    pub verdict: Verdict,
    /// Reason why the candidate cannot be picked, if it cannot.
    pub ineligible: Option<IneligibleCandidate>,
    /// Numbers of further runs that would settle what is undecided.
    pub more_runs: MoreRuns,
}

/// The result of a benchmark.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Results of the candidates, in the order given.
    pub candidates: Vec<CandidateResult>,
    /// The three picks.
    pub picks: BenchPicks,
    /// Candidates with better figures than the picks, and why they are not picked.
    pub passed_over: Vec<PassedOver>,
    /// Outlook: what the runs say as a whole.
    pub outlook: Outlook,
    /// Warnings: what to beware of.
    pub warnings: Vec<Warning>,
}

impl Comparison {
    /// This comparison with the candidates `names` ineligible for that reason.
    pub(super) fn without(mut self, names: &[String], why: IneligibleCandidate) -> Self {
        for candidate in self.candidates.iter_mut().filter(|candidate| names.contains(&candidate.name)) {
            candidate.ineligible = Some(why);
            let about = |warning: &Warning| warning.is_objection_to(&candidate.name);
            self.warnings.retain(|warning| !about(warning));
            self.warnings.extend(objection(&candidate.name, why));
        }
        for pick in [&mut self.picks.fastest, &mut self.picks.leanest, &mut self.picks.balanced] {
            if names.contains(&*pick) {
                SYSTEM.clone_into(pick);
            }
        }
        self.passed_over.retain(|one| !names.contains(&one.candidate));
        let picks = [&self.picks.fastest, &self.picks.leanest, &self.picks.balanced];
        let is_settled = picks.into_iter().any(|pick| pick != SYSTEM);
        self.outlook = match self.outlook {
            Outlook::LooksBetter { candidate, .. } if names.contains(&candidate) => {
                Outlook::Open { more_rounds: None, less_than: None }
            }
            Outlook::Settled if !is_settled => Outlook::Open { more_rounds: None, less_than: None },
            outlook => outlook,
        };
        self
    }
}

/// Exits of the counted runs of each candidate: exit status, or 128 + the signal.
pub type CountedExits = BTreeMap<String, Vec<i32>>;

/// Compares every candidate with `system`, which must be among them: without its runs there are no ratios,
/// every word is [`Word::NotEnoughData`] and every pick `system`. The order is the catalogue's.
pub fn compare(candidates: &[CandidateRuns], options: &Options) -> Comparison {
    compare_counted(candidates, &CountedExits::new(), options)
}

/// Compares every candidate with `system` as [`compare`] does, and looks at the counted runs. They are not
/// compared, but a candidate with another exit status than `system` in one of them cannot be picked.
pub fn compare_counted(
    candidates: &[CandidateRuns],
    counted: &CountedExits,
    options: &Options,
) -> Comparison {
    look(candidates, counted, options).0
}

/// Comparison as of [`compare_counted`], and whether more rounds would change the answer.
pub fn look(
    candidates: &[CandidateRuns],
    counted: &CountedExits,
    options: &Options,
) -> (Comparison, LookOutcome) {
    let system = candidates.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
    let exits = |name: &str| counted.get(name).map_or(&[][..], Vec::as_slice);
    let reference = Reference::of(system, exits(SYSTEM)).with_varying_output(options.output_varies);
    let common = CommonSpreads::of(candidates, &reference);
    let judged: Vec<Judged<'_>> = candidates
        .iter()
        .map(|candidate| {
            Judged::new(candidate, exits(&candidate.name), system, (&reference, &common), options)
        })
        .collect();
    let entrants: Vec<Entrant<'_>> = judged.iter().filter_map(Judged::entrant).collect();
    let proven: Vec<Entrant<'_>> = entrants.iter().map(|entrant| entrant.with_enough(options)).collect();
    let picks = picks(&proven, options);
    let passed_over = passed_over(&proven, &picks, options);
    let outlook = outlook(&entrants, &picks, options);
    let outcome = LookOutcome::of(&entrants, &outlook, system.len(), options);
    let comparison = Comparison {
        outlook,
        picks,
        passed_over,
        warnings: warnings(&judged, system, &reference, options),
        candidates: judged.iter().map(|j| j.result(options)).collect(),
    };
    (comparison, outcome)
}

/// The spread of a difference by the runs of all candidates that ended as under `system`.
struct CommonSpreads {
    cpu: Spread,
    memory: Spread,
    balance: Spread,
}

impl CommonSpreads {
    fn of(candidates: &[CandidateRuns], reference: &Reference) -> Self {
        let of = |criterion| {
            let runs = candidates.iter().map(|one| one.runs.iter().filter(|run| reference.is_expected(run)));
            common_spread(runs, criterion)
        };
        Self { cpu: of(Criterion::Cpu), memory: of(Criterion::Memory), balance: of(Criterion::Balance) }
    }

    fn get(&self, criterion: Criterion) -> Spread {
        match criterion {
            Criterion::Cpu => self.cpu,
            Criterion::Memory => self.memory,
            Criterion::Balance => self.balance,
            // Nothing is decided by these.
            Criterion::Wall | Criterion::Peak => Spread::default(),
        }
    }
}

/// A candidate against `system`.
struct Judged<'a> {
    candidate: &'a CandidateRuns,
    /// Runs that ended as under `system`.
    runs: Vec<&'a RawRun>,
    cpu: Option<PairedRatio>,
    memory: Option<PairedRatio>,
    balance: Option<PairedRatio>,
    wall: Option<PairedRatio>,
    peak: Option<PairedRatio>,
    ineligible: Option<IneligibleCandidate>,
}

impl<'a> Judged<'a> {
    fn new(
        candidate: &'a CandidateRuns,
        counted: &[i32],
        system: &[RawRun],
        (reference, common): (&Reference, &CommonSpreads),
        options: &Options,
    ) -> Self {
        let runs: Vec<&RawRun> = candidate.runs.iter().filter(|run| reference.is_expected(run)).collect();
        let pairs = pairs(runs.iter().copied(), system.iter());
        let above = AboveFloor::of(system, options.floor);
        let is_further = |criterion| matches!(criterion, Criterion::Wall | Criterion::Peak);
        let is_wanted = |criterion| options.wall_and_peak || !is_further(criterion);
        let is_shown = |criterion| above.has(criterion) || candidate.name == SYSTEM;
        let of = |criterion| {
            let ratio = is_wanted(criterion)
                .then(|| ratio(&pairs, criterion, common.get(criterion), options))
                .flatten();
            ratio.filter(|_| is_shown(criterion))
        };
        Self {
            cpu: of(Criterion::Cpu),
            memory: of(Criterion::Memory),
            balance: of(Criterion::Balance),
            wall: of(Criterion::Wall),
            peak: of(Criterion::Peak),
            ineligible: reference.objection(candidate, counted),
            candidate,
            runs,
        }
    }

    fn is_system(&self) -> bool {
        self.candidate.name == SYSTEM
    }

    /// This candidate with the ratios of all rounds, however few they are. None where it cannot be picked,
    /// and for `system`.
    fn entrant(&self) -> Option<Entrant<'a>> {
        (self.ineligible.is_none() && !self.is_system()).then(|| Entrant {
            name: &self.candidate.name,
            runs: self.runs.clone(),
            cpu: self.cpu,
            memory: self.memory,
            balance: self.balance,
        })
    }

    fn verdict(&self, options: &Options) -> Verdict {
        if self.is_system() {
            return Verdict { cpu: Word::Reference, memory: Word::Reference };
        }
        let of = |ratio, margin, better, worse| {
            let enough = enough(ratio, options);
            let word = word(enough.map(|r| r.interval), margin, better, worse);
            let is_change = word == better || word == worse;
            if is_change && !enough.is_some_and(|r| r.is_shown(&options.demand(1))) {
                Word::WithinNoise
            } else {
                word
            }
        };
        Verdict {
            cpu: of(self.cpu, options.margins.cpu, Word::Faster, Word::Slower),
            memory: of(self.memory, options.margins.memory, Word::LessMemory, Word::MoreMemory),
        }
    }

    fn result(&self, options: &Options) -> CandidateResult {
        let settle = |ratio: Option<PairedRatio>, margin| {
            ratio.and_then(|r| more_runs(r.interval, r.rounds, margin, options.min_runs))
        };
        CandidateResult {
            name: self.candidate.name.clone(),
            median: MedianRun::of(self.runs.iter().copied()),
            ratio: Ratios {
                cpu: self.cpu.map(|r| r.interval),
                memory: self.memory.map(|r| r.interval),
                wall: self.wall.map(|r| r.interval),
                peak: self.peak.map(|r| r.interval),
            },
            verdict: self.verdict(options),
            ineligible: self.ineligible,
            more_runs: MoreRuns {
                cpu: settle(self.cpu, options.margins.cpu),
                memory: settle(self.memory, options.margins.memory),
            },
        }
    }
}

/// The ratio, when it rests on enough rounds for a word.
fn enough(ratio: Option<PairedRatio>, options: &Options) -> Option<PairedRatio> {
    ratio.filter(|r| r.rounds >= options.min_runs)
}

fn warnings(
    judged: &[Judged<'_>],
    system: &[RawRun],
    reference: &Reference,
    options: &Options,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(load_high(options));
    warnings.extend(reference.failure().map(|exit| Warning::SystemFails { exit }));
    warnings.extend(about_system(system, options));
    warnings.extend(reference.varies().then_some(Warning::OutputVariesByItself));
    for candidate in judged {
        warnings.extend(candidate.ineligible.and_then(|why| objection(&candidate.candidate.name, why)));
        warnings.extend(outliers(candidate.candidate));
    }
    warnings
}

fn load_high(options: &Options) -> Option<Warning> {
    let conditions = options.conditions?;
    let (load5, cpus) = (conditions.load5, conditions.cpus);
    (load5 > f64::from(cpus) / 2.0).then_some(Warning::LoadHigh { load5, cpus })
}

/// Warnings that the runs of `system` alone give cause for.
fn about_system(system: &[RawRun], options: &Options) -> Vec<Warning> {
    let Some(median) = MedianRun::of(system) else {
        return vec![];
    };
    let mut warnings = Vec::new();
    let above = AboveFloor::of(system, options.floor);
    if !above.cpu {
        warnings.push(Warning::TooLittleCpu { cpu_s: median.cpu_s });
    }
    if median.wall_s < TOO_SHORT_S {
        warnings.push(Warning::TooShort { wall_s: median.wall_s });
    }
    if !above.memory {
        warnings.push(Warning::NoMemory);
    }
    let runs = system.len();
    let confidence = attainable_confidence(runs);
    if confidence < TOO_UNSURE {
        warnings.push(Warning::FewRuns { runs, confidence });
    }
    let cpu: Vec<f64> = system.iter().map(RawRun::compared_cpu_s).collect();
    let spread = relative_spread(&cpu, options.resamples, options.seed);
    warnings.extend(spread.filter(|&s| s > TOO_NOISY).map(|half_width| Warning::TooNoisy { half_width }));
    warnings
}

fn objection(name: &str, why: IneligibleCandidate) -> Option<Warning> {
    let candidate = name.to_owned();
    match why {
        IneligibleCandidate::NoRuns => None,
        IneligibleCandidate::Crashed { signal } => Some(Warning::CrashUnder { candidate, signal }),
        IneligibleCandidate::Hung => Some(Warning::HangsUnder { candidate }),
        IneligibleCandidate::Excess => Some(Warning::ExcessUnder { candidate }),
        IneligibleCandidate::TimedOut => Some(Warning::TimesOutUnder { candidate }),
        IneligibleCandidate::ExitDiffers { exit } => Some(Warning::ExitDiffers { candidate, exit }),
        IneligibleCandidate::OutputDiffers => Some(Warning::OutputDiffers { candidate }),
    }
}

fn outliers(candidate: &CandidateRuns) -> Option<Warning> {
    let outliers = candidate.runs.iter().filter(|run| run.outlier == Some(true)).count();
    (outliers > 0).then(|| Warning::Outliers {
        candidate: candidate.name.clone(),
        outliers,
        runs: candidate.runs.len(),
    })
}
