// SPDX-License-Identifier: Apache-2.0
//! The comparison as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::claims::{Criterion, Entrant, Field, Options, common_spread, pairs, ratio};
use super::eligibility::{CandidateRuns, IneligibleCandidate, MedianRun, Reference, prepare};
use super::warning::{TOO_NOISY, TOO_SHORT_S, TOO_UNSURE, Warning};
use crate::candidate::SYSTEM;
use crate::compare::{PairedRatio, Spread};
use crate::judgement::{BenchJudgement, JudgedCandidate, RoundsSoFar, conclude};
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

/// The result of a benchmark for one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateResult {
    /// Name in the catalogue.
    pub name: String,
    /// Medians over the runs that ended as under `system`.
    pub median: Option<MedianRun>,
    /// Ratios to `system`.
    pub ratio: Ratios,
    /// Reason why the candidate cannot be picked, if it cannot.
    pub ineligible: Option<IneligibleCandidate>,
}

/// The result of a benchmark.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Results of the candidates, in the order given.
    pub candidates: Vec<CandidateResult>,
    /// Answers, picks and ending.
    pub judgement: BenchJudgement,
    /// Warnings: what to beware of.
    pub warnings: Vec<Warning>,
}

/// Exits of the counted runs of each candidate: exit status, or 128 + the signal.
pub type CountedExits = BTreeMap<String, Vec<i32>>;

/// The runs of one program under all candidates, and what is known beside the measured ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Observed {
    /// Measured runs by candidate, in the order shown. Those that failed are among them.
    pub runs: Vec<CandidateRuns>,
    /// Ends of the counted runs. They are not compared, but a candidate with another exit status than `system` in one
    /// of them cannot be picked.
    pub counted: CountedExits,
    /// Candidates with a run that hung.
    pub hung: Vec<String>,
    /// Candidates with a run that took many times what any took under `system`.
    pub excess: Vec<String>,
    /// Candidates with a run that did not end in time.
    pub timed_out: Vec<String>,
}

impl Observed {
    /// Returns the observation of these runs alone.
    pub fn of(runs: Vec<CandidateRuns>) -> Self {
        Self { runs, ..Self::default() }
    }

    /// The runs as they are compared (with normalised CPU time, outliers marked), and what they say.
    #[must_use]
    pub fn compare(mut self, options: &Options) -> (Vec<CandidateRuns>, Comparison) {
        prepare(&mut self.runs);
        let comparison = self.as_prepared(options);
        (self.runs, comparison)
    }

    /// Compares every candidate with `system`, which must be among them: without its runs there are no ratios, and
    /// every pick is `system`. The order is the catalogue's.
    pub fn as_prepared(&self, options: &Options) -> Comparison {
        let system = self.runs.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
        let reference = Reference::of(system, self.exits(SYSTEM)).with_varying_output(options.output_varies);
        let common = CommonSpreads::of(&self.runs, &reference);
        let judged: Vec<Judged<'_>> = self
            .runs
            .iter()
            .map(|candidate| {
                let objection = self.seen(&candidate.name);
                let objection =
                    objection.or_else(|| reference.objection(candidate, self.exits(&candidate.name)));
                Judged::new(candidate, objection, system, (&reference, &common), options)
            })
            .collect();
        Comparison {
            judgement: judgement(&judged, system, options),
            warnings: warnings(&judged, system, &reference, options),
            candidates: judged.iter().map(Judged::result).collect(),
        }
    }

    fn exits(&self, name: &str) -> &[i32] {
        self.counted.get(name).map_or(&[][..], Vec::as_slice)
    }

    /// The end of a run that no exit status tells.
    fn seen(&self, name: &str) -> Option<IneligibleCandidate> {
        let all = [
            (&self.timed_out, IneligibleCandidate::TimedOut),
            (&self.excess, IneligibleCandidate::Excess),
            (&self.hung, IneligibleCandidate::Hung),
        ];
        all.into_iter().find_map(|(names, why)| names.iter().any(|one| one == name).then_some(why))
    }
}

/// Compares every candidate with `system`.
pub fn compare(candidates: &[CandidateRuns], options: &Options) -> Comparison {
    Observed::of(candidates.to_vec()).as_prepared(options)
}

fn judgement(judged: &[Judged<'_>], system: &[RawRun], options: &Options) -> BenchJudgement {
    let field = Field { entrants: judged.iter().filter_map(Judged::entrant).collect(), options };
    let rounds = RoundsSoFar { made: system.len(), least: options.min_runs, looks: options.looks };
    let (picks, ending, course) =
        conclude(&field.claims(), rounds, |of, fit, picks| field.choose(of, fit, picks));
    let candidate = |one: &Judged<'_>| {
        let name = one.candidate.name.clone();
        let entrant = field.entrants.iter().find(|entrant| entrant.name == name);
        let broken = |criterion| entrant.map(|one| field.breaks(one, criterion)).unwrap_or_default();
        JudgedCandidate {
            figures: entrant.map(|one| field.figures(one)).unwrap_or_default(),
            breaks: [broken(Criterion::Cpu), broken(Criterion::Memory)].concat(),
            name,
        }
    };
    BenchJudgement {
        rounds: system.len(),
        candidates: judged.iter().map(candidate).collect(),
        picks,
        ending,
        course,
    }
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
        ineligible: Option<IneligibleCandidate>,
        system: &[RawRun],
        (reference, common): (&Reference, &CommonSpreads),
        options: &Options,
    ) -> Self {
        let runs: Vec<&RawRun> = candidate.runs.iter().filter(|run| reference.is_expected(run)).collect();
        let pairs = pairs(runs.iter().copied(), system.iter());
        let (has_cpu, has_memory) = match candidate.name == SYSTEM {
            true => (true, true),
            false => options.floor.reached(system),
        };
        let is_wanted = |criterion| match criterion {
            Criterion::Cpu => has_cpu,
            Criterion::Memory => has_memory,
            Criterion::Balance => has_cpu && has_memory,
            Criterion::Wall | Criterion::Peak => options.wall_and_peak,
        };
        let of = |criterion| {
            is_wanted(criterion).then(|| ratio(&pairs, criterion, common.get(criterion), options)).flatten()
        };
        Self {
            cpu: of(Criterion::Cpu),
            memory: of(Criterion::Memory),
            balance: of(Criterion::Balance),
            wall: of(Criterion::Wall),
            peak: of(Criterion::Peak),
            ineligible,
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

    fn result(&self) -> CandidateResult {
        CandidateResult {
            name: self.candidate.name.clone(),
            median: MedianRun::of(self.runs.iter().copied()),
            ratio: Ratios {
                cpu: self.cpu.map(|r| r.interval),
                memory: self.memory.map(|r| r.interval),
                wall: self.wall.map(|r| r.interval),
                peak: self.peak.map(|r| r.interval),
            },
            ineligible: self.ineligible,
        }
    }
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
    let (has_cpu, has_memory) = options.floor.reached(system);
    if !has_cpu {
        warnings.push(Warning::TooLittleCpu { cpu_s: median.cpu_s });
    }
    if median.wall_s < TOO_SHORT_S {
        warnings.push(Warning::TooShort { wall_s: median.wall_s });
    }
    if !has_memory {
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
