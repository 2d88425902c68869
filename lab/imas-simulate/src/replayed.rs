// SPDX-License-Identifier: Apache-2.0
//! Predictions by replay in the laboratory: what was predicted of each program, and how far off that was with
//! all others.
//!
//! A program is judged with the reliability that its predictions have by the other programs, so none trains its
//! own prior.

use std::collections::BTreeMap;

use crate::contender::checks_of;
use crate::cost::cost;
use crate::predictions::{PredictionLine, Predictions};
use crate::program::SimulatedProgram;
use crate::reliability::learned;
use imas_core::adaptive::Point;
use imas_core::candidate::SYSTEM;
use imas_core::reliability::{CheckedPrediction, PredictedFigure, RecordedRunFacts, ReliabilityTable};
use imas_core::replay_prior::{PredictedDifference, ReplayPrior};

/// What the predictions start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorBasis {
    /// The replays of the program's own run.
    Replay,
    /// No prediction of its own: what the candidate did to the other programs, of the same class if there are
    /// several.
    OtherPrograms,
}

/// The predictions of a file, by program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replays {
    /// Recorded run of each program, and what was predicted of it, by the program's name.
    programs: BTreeMap<String, (RecordedRunFacts, Vec<PredictedDifference>)>,
}

impl Replays {
    /// Predictions from the lines of a file. Lines without ratios predict nothing.
    pub fn of(predictions: &Predictions) -> Self {
        let mut all = Self::default();
        for line in &predictions.lines {
            let Some(predicted) = difference(line) else { continue };
            let of_program = all.programs.entry(line.program.clone());
            of_program.or_insert_with(|| (line.facts(), vec![])).1.push(predicted);
        }
        all
    }

    /// Whether anything is predicted of the program.
    pub fn knows(&self, program: &str) -> bool {
        self.programs.contains_key(program)
    }

    /// How far off the predictions for a program were, by all its rounds.
    fn checked(&self, program: &SimulatedProgram, basis: PriorBasis) -> Vec<CheckedPrediction> {
        let Some((run, predicted)) = self.programs.get(&program.name) else { return vec![] };
        let rounds: Vec<usize> = (0..program.rounds.len()).collect();
        let checked = |one: &PredictedDifference| {
            let at = program.candidates.iter().position(|name| *name == one.candidate)?;
            let live = cost(program, &rounds, at)?;
            let [cpu, memory] = basis.predicted(one);
            let of =
                |figure, off| CheckedPrediction { figure, candidate: one.candidate.clone(), run: *run, off };
            Some([
                of(PredictedFigure::Cpu, live.cpu - cpu),
                of(PredictedFigure::Memory, live.memory - memory),
            ])
        };
        predicted.iter().filter_map(checked).flatten().collect()
    }

    /// Priors by the program's name. Each has the reliability that the predictions for all other programs
    /// have.
    pub fn held_out(
        &self,
        programs: &[SimulatedProgram],
        basis: PriorBasis,
    ) -> BTreeMap<String, ReplayPrior> {
        let checked: Vec<Vec<CheckedPrediction>> =
            programs.iter().map(|one| self.checked(one, basis)).collect();
        let prior = |(at, program): (usize, &SimulatedProgram)| {
            let (run, predicted) = self.programs.get(&program.name)?;
            let others = checked.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<CheckedPrediction> = others.flat_map(|(_, of_it)| of_it.clone()).collect();
            let table = learned("the other programs", 0, &others);
            let based = |one: &PredictedDifference| {
                let [cpu, memory] = basis.predicted(one);
                PredictedDifference { cpu, memory, ..one.clone() }
            };
            let predicted: Vec<_> = predicted.iter().map(based).collect();
            Some((program.name.clone(), ReplayPrior::new(&predicted, run, &table)))
        };
        programs.iter().enumerate().filter_map(prior).collect()
    }
}

/// How the predictions for a host's programs are corrected in [`Replays::on_a_host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCorrection {
    /// No correction: the study's table alone.
    None,
    /// Correction by the errors of the predictions in the host's trials of its other programs.
    OwnTrials,
}

impl Replays {
    /// Priors by the program's name, on a host that has half of the programs, where the study has the other
    /// half. Each half is the host's once.
    pub fn on_a_host(
        &self,
        programs: &[SimulatedProgram],
        correction: HostCorrection,
        seed: u64,
    ) -> BTreeMap<String, ReplayPrior> {
        let half = |half: usize| {
            let (studied, own): (Vec<_>, Vec<_>) =
                programs.iter().enumerate().partition(|(at, _)| at % 2 == half);
            let studied: Vec<_> =
                studied.into_iter().flat_map(|(_, one)| self.checked(one, PriorBasis::Replay)).collect();
            let table = learned("the study", 0, &studied);
            let own: Vec<&SimulatedProgram> = own.into_iter().map(|(_, program)| program).collect();
            self.half_host(&own, &table, correction, seed)
        };
        half(0).into_iter().chain(half(1)).collect()
    }

    fn half_host(
        &self,
        own: &[&SimulatedProgram],
        table: &ReliabilityTable,
        correction: HostCorrection,
        seed: u64,
    ) -> BTreeMap<String, ReplayPrior> {
        let checks: Vec<Vec<CheckedPrediction>> = match correction {
            HostCorrection::None => vec![vec![]; own.len()],
            HostCorrection::OwnTrials => {
                own.iter().map(|program| self.checks_by_trials(program, table, seed)).collect()
            }
        };
        let prior = |(at, program): (usize, &&SimulatedProgram)| {
            let (run, predicted) = self.programs.get(&program.name)?;
            let others = checks.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<CheckedPrediction> = others.flat_map(|(_, of_it)| of_it.clone()).collect();
            let prior = ReplayPrior::new(predicted, run, &table.corrected_by(&others));
            Some((program.name.clone(), prior))
        };
        own.iter().enumerate().filter_map(prior).collect()
    }

    /// What the trials that the policy makes of the program say of its predictions.
    fn checks_by_trials(
        &self,
        program: &SimulatedProgram,
        table: &ReliabilityTable,
        seed: u64,
    ) -> Vec<CheckedPrediction> {
        let Some((run, predicted)) = self.programs.get(&program.name) else { return vec![] };
        let prior = ReplayPrior::new(predicted, run, table);
        let both = |(candidate, off): (String, Point)| {
            let of = |figure, off| CheckedPrediction { figure, candidate: candidate.clone(), run: *run, off };
            [of(PredictedFigure::Cpu, off.cpu), of(PredictedFigure::Memory, off.memory)]
        };
        checks_of(program, &prior, seed).into_iter().flat_map(both).collect()
    }
}

/// What a line predicts of a candidate beside `system`; None without ratios.
fn difference(line: &PredictionLine) -> Option<PredictedDifference> {
    let ratio = |ratio: Option<f64>| ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    let (cpu, memory) = ratio(line.cpu_ratio).zip(ratio(line.mean_ratio))?;
    (line.candidate != SYSTEM).then(|| PredictedDifference {
        candidate: line.candidate.clone(),
        version: line.version.clone(),
        cpu: cpu.ln(),
        memory: memory.ln(),
    })
}

impl PriorBasis {
    /// CPU and memory.
    fn predicted(self, one: &PredictedDifference) -> [f64; 2] {
        match self {
            Self::Replay => [one.cpu, one.memory],
            Self::OtherPrograms => [0.0, 0.0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    /// What each candidate truly costs, but for an error that is the same with every program.
    fn file(programs: &[SimulatedProgram], off: f64) -> String {
        let mut text =
            "{\"imas\":\"replay\",\"schema\":1}\n{\"left_out\":\"p\",\"why\":\"it is static\"}\n".to_owned();
        for program in programs {
            let truth = program.truth.as_ref().unwrap();
            for (candidate, cost) in program.candidates.iter().zip(truth) {
                text += &format!(
                    "{{\"program\":\"{}\",\"candidate\":\"{candidate}\",\"cpu_ratio\":{},\"mean_ratio\":{},\"threads\":1}}\n",
                    program.name,
                    cost.cpu.exp(),
                    (cost.memory - off).exp()
                );
            }
        }
        text
    }

    #[test]
    fn the_error_that_other_programs_show_is_taken_out() {
        let programs = World { programs: 60, ..World::default() }.programs(3);
        let predictions = Predictions::of(&file(&programs, 0.3));
        let replays = Replays::of(&predictions);
        let priors = replays.held_out(&programs, PriorBasis::Replay);
        assert_eq!((priors.len(), predictions.unreadable.len()), (60, 0));
        let mut off = vec![];
        for program in &programs {
            let forecasts = &priors[&program.name].forecasts;
            assert_eq!(forecasts.len(), 5, "none of system");
            for (forecast, truth) in forecasts.iter().zip(&program.truth.as_ref().unwrap()[1..]) {
                off.push(forecast.memory.mean - truth.memory);
            }
        }
        let mean = off.iter().sum::<f64>() / off.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
    }

    /// One program of which the replay says nonsense does not train its own prior.
    #[test]
    fn no_program_trains_its_own_prior() {
        let programs = World { programs: 40, ..World::default() }.programs(3);
        let text = file(&programs, 0.0);
        let name = &programs[7].name;
        let wrong: String = text
            .lines()
            .map(|line| match line.contains(&format!("\"{name}\"")) {
                true => line.replace("\"mean_ratio\":", "\"mean_ratio\":9") + "\n",
                false => format!("{line}\n"),
            })
            .collect();
        let prior = |text: &str| {
            Replays::of(&Predictions::of(text)).held_out(&programs, PriorBasis::Replay)[name].clone()
        };
        let deviations = |prior: &ReplayPrior| -> Vec<f64> {
            prior.forecasts.iter().map(|one| one.memory.deviation).collect()
        };
        assert_eq!(deviations(&prior(&text)), deviations(&prior(&wrong)));
    }

    /// On this host every live figure of memory is a third above its prediction, and the study says otherwise.
    #[test]
    fn a_hosts_trials_correct_the_predictions_for_its_other_programs() {
        let programs = World { programs: 80, ..World::default() }.programs(3);
        let (text, off) = (file(&programs, 0.0), file(&programs, 0.3));
        // The first half is studied, the second is the host's: only its predictions are off.
        let mixed: String = text
            .lines()
            .zip(off.lines())
            .map(|(right, wrong)| {
                let at = programs.iter().position(|one| right.contains(&format!("\"{}\"", one.name)));
                let line = if at.is_some_and(|at| at % 2 == 1) { wrong } else { right };
                format!("{line}\n")
            })
            .collect();
        let replays = Replays::of(&Predictions::of(&mixed));
        let error = |correction| {
            let priors = replays.on_a_host(&programs, correction, 1);
            let own = programs.iter().enumerate().filter(|(at, _)| at % 2 == 1);
            let offs = own.flat_map(|(_, program)| {
                let truth = &program.truth.as_ref().unwrap()[1..];
                let forecasts = &priors[&program.name].forecasts;
                forecasts.iter().zip(truth).map(|(one, truth)| (one.memory.mean - truth.memory).abs())
            });
            let offs: Vec<f64> = offs.collect();
            offs.iter().sum::<f64>() / offs.len() as f64
        };
        let (without, with) = (error(HostCorrection::None), error(HostCorrection::OwnTrials));
        assert!(with < 0.8 * without, "{with} of {without}");
    }

    #[test]
    fn lines_without_ratios_predict_nothing_and_others_are_named() {
        let line = |ratio: &str| {
            format!("{{\"program\":\"p\",\"candidate\":\"a\",\"cpu_ratio\":1,\"mean_ratio\":{ratio}}}\n")
        };
        let predictions = Predictions::of(&(line("null") + &line("0") + "no line\n" + &line("-1")));
        assert!(!Replays::of(&predictions).knows("p"));
        assert_eq!(predictions.unreadable, [3]);
        let twice = Replays::of(&Predictions::of(&(line("2") + &line("4"))));
        assert_eq!(twice.programs["p"].1.len(), 1);
        assert!((twice.programs["p"].1[0].memory - 4f64.ln()).abs() < 1e-12, "the later line counts");
    }
}
