// SPDX-License-Identifier: Apache-2.0
//! The comparison as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::eligibility::{Ineligible, Reference};
use super::options::Options;
use super::pairs::{Criterion, Ratio, pairs, ratio};
use super::picks::{BenchPicks, Entrant, picks};
use super::run::{CandidateRuns, MedianRun, Run};
use super::verdict::{Verdict, Word, word};
use super::warning::{TOO_NOISY, TOO_SHORT_S, TOO_UNSURE, Warning};
use crate::candidate::SYSTEM;
use crate::stats::{Interval, attainable_confidence, relative_spread, runs_to_settle};

/// Ratios to `system`, medians over the rounds; None where there is nothing to compare.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Ratios {
    /// User and system CPU time.
    pub cpu: Option<Interval>,
    /// Mean of resident anonymous memory.
    pub memory: Option<Interval>,
}

/// Rough number of further runs until a ratio is settled: 0 when it is, None when it is too close to call or unknown.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoreRuns {
    /// For the CPU ratio.
    pub cpu: Option<u32>,
    /// For the memory ratio.
    pub memory: Option<u32>,
}

/// What a benchmark says of one candidate.
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
    /// Set when it cannot be picked.
    pub ineligible: Option<Ineligible>,
    /// How many more runs would settle what is undecided.
    pub more_runs: MoreRuns,
}

/// What a benchmark says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Comparison {
    /// In the order given.
    pub candidates: Vec<CandidateResult>,
    /// The three picks.
    pub picks: BenchPicks,
    /// What to beware of.
    pub warnings: Vec<Warning>,
}

impl Comparison {
    /// What is known of these candidates beside how their runs ended: one of either kind stood still until it was ended.
    #[must_use]
    pub fn with_hung(mut self, hung: &[&str]) -> Self {
        for candidate in
            self.candidates.iter_mut().filter(|candidate| hung.contains(&candidate.name.as_str()))
        {
            candidate.ineligible = Some(Ineligible::Hung);
            let about = |warning: &Warning| warning.is_objection_to(&candidate.name);
            self.warnings.retain(|warning| !about(warning));
            self.warnings.extend(objection(&candidate.name, Ineligible::Hung));
        }
        for pick in [&mut self.picks.fastest, &mut self.picks.leanest, &mut self.picks.balanced] {
            if hung.contains(&pick.as_str()) {
                SYSTEM.clone_into(pick);
            }
        }
        self
    }
}

/// How the counted runs ended, by candidate: exit status, or 128 + the signal.
pub type CountedExits = BTreeMap<String, Vec<i32>>;

/// Compares every candidate with `system`, which must be among them: without its runs there are no ratios,
/// every word is [`Word::NotEnoughData`] and every pick `system`. The order is the catalogue's.
pub fn compare(candidates: &[CandidateRuns], options: &Options) -> Comparison {
    compare_counted(candidates, &CountedExits::new(), options)
}

/// The same where there were counted runs, too: they are not compared, but who ends otherwise than `system` in one of them cannot be picked.
pub fn compare_counted(
    candidates: &[CandidateRuns],
    counted: &CountedExits,
    options: &Options,
) -> Comparison {
    let system = candidates.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
    let exits = |name: &str| counted.get(name).map_or(&[][..], Vec::as_slice);
    let reference = Reference::of(system, exits(SYSTEM));
    let judged: Vec<Judged<'_>> = candidates
        .iter()
        .map(|candidate| Judged::new(candidate, exits(&candidate.name), system, &reference, options))
        .collect();
    let entrants: Vec<Entrant<'_>> = judged.iter().filter_map(|j| j.entrant(options)).collect();
    Comparison {
        picks: picks(&entrants, options),
        warnings: warnings(&judged, system, &reference, options),
        candidates: judged.iter().map(|j| j.result(options)).collect(),
    }
}

/// A candidate against `system`.
struct Judged<'a> {
    candidate: &'a CandidateRuns,
    /// Runs that ended as under `system`.
    runs: Vec<&'a Run>,
    cpu: Option<Ratio>,
    memory: Option<Ratio>,
    balance: Option<Ratio>,
    ineligible: Option<Ineligible>,
}

impl<'a> Judged<'a> {
    fn new(
        candidate: &'a CandidateRuns,
        counted: &[i32],
        system: &[Run],
        reference: &Reference<'_>,
        options: &Options,
    ) -> Self {
        let runs: Vec<&Run> = candidate.runs.iter().filter(|run| reference.is_expected(run)).collect();
        let pairs = pairs(runs.iter().copied(), system.iter());
        let of = |criterion| ratio(&pairs, criterion, options);
        Self {
            cpu: of(Criterion::Cpu),
            memory: of(Criterion::Memory),
            balance: of(Criterion::Balance),
            ineligible: reference.objection(candidate, counted),
            candidate,
            runs,
        }
    }

    fn is_system(&self) -> bool {
        self.candidate.name == SYSTEM
    }

    fn entrant(&self, options: &Options) -> Option<Entrant<'a>> {
        (self.ineligible.is_none() && !self.is_system()).then(|| Entrant {
            name: &self.candidate.name,
            runs: self.runs.clone(),
            cpu: enough(self.cpu, options),
            memory: enough(self.memory, options),
            balance: enough(self.balance, options),
        })
    }

    fn verdict(&self, options: &Options) -> Verdict {
        if self.is_system() {
            return Verdict { cpu: Word::Reference, memory: Word::Reference };
        }
        let interval = |ratio| enough(ratio, options).map(|r| r.interval);
        let (cpu, memory) = (interval(self.cpu), interval(self.memory));
        Verdict {
            cpu: word(cpu, options.cpu_margin, Word::Faster, Word::Slower),
            memory: word(memory, options.memory_margin, Word::LessMemory, Word::MoreMemory),
        }
    }

    fn result(&self, options: &Options) -> CandidateResult {
        let settle = |ratio: Option<Ratio>, margin| {
            ratio.and_then(|r| more_runs(r.interval, r.rounds, margin, options.min_runs))
        };
        CandidateResult {
            name: self.candidate.name.clone(),
            median: MedianRun::of(self.runs.iter().copied()),
            ratio: Ratios { cpu: self.cpu.map(|r| r.interval), memory: self.memory.map(|r| r.interval) },
            verdict: self.verdict(options),
            ineligible: self.ineligible,
            more_runs: MoreRuns {
                cpu: settle(self.cpu, options.cpu_margin),
                memory: settle(self.memory, options.memory_margin),
            },
        }
    }
}

/// The ratio, when it rests on enough rounds for a word.
fn enough(ratio: Option<Ratio>, options: &Options) -> Option<Ratio> {
    ratio.filter(|r| r.rounds >= options.min_runs)
}

/// With fewer runs than a word needs, at least those that are missing.
fn more_runs(interval: Interval, rounds: usize, margin: f64, min_runs: usize) -> Option<u32> {
    let missing = u32::try_from(min_runs.saturating_sub(rounds)).unwrap_or(u32::MAX);
    runs_to_settle(interval, rounds, margin).map(|more| more.max(missing))
}

fn warnings(
    judged: &[Judged<'_>],
    system: &[Run],
    reference: &Reference<'_>,
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
fn about_system(system: &[Run], options: &Options) -> Vec<Warning> {
    let Some(median) = MedianRun::of(system) else {
        return vec![];
    };
    let mut warnings = Vec::new();
    if median.wall_s < TOO_SHORT_S {
        warnings.push(Warning::TooShort { wall_s: median.wall_s });
    }
    if median.mean_bytes == 0 {
        warnings.push(Warning::NoMemory);
    }
    let runs = system.len();
    let confidence = attainable_confidence(runs);
    if confidence < TOO_UNSURE {
        warnings.push(Warning::FewRuns { runs, confidence });
    }
    let cpu: Vec<f64> = system.iter().map(Run::compared_cpu_s).collect();
    let spread = relative_spread(&cpu, options.resamples, options.seed);
    warnings.extend(spread.filter(|&s| s > TOO_NOISY).map(|half_width| Warning::TooNoisy { half_width }));
    warnings
}

fn objection(name: &str, why: Ineligible) -> Option<Warning> {
    let candidate = name.to_owned();
    match why {
        Ineligible::NoRuns => None,
        Ineligible::Crashed { signal } => Some(Warning::CrashUnder { candidate, signal }),
        Ineligible::Hung => Some(Warning::HangsUnder { candidate }),
        Ineligible::ExitDiffers { exit } => Some(Warning::ExitDiffers { candidate, exit }),
        Ineligible::OutputDiffers => Some(Warning::OutputDiffers { candidate }),
    }
}

fn outliers(candidate: &CandidateRuns) -> Option<Warning> {
    let outliers = candidate.runs.iter().filter(|run| run.outlier).count();
    (outliers > 0).then(|| Warning::Outliers {
        candidate: candidate.name.clone(),
        outliers,
        runs: candidate.runs.len(),
    })
}
