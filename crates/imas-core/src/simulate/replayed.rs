// SPDX-License-Identifier: Apache-2.0
//! Predictions by replay in the laboratory: what was predicted of each program, and how far off that was with
//! all others.
//!
//! The file is what `imas-lab study replay` writes: a line of JSON for each program and candidate, after a
//! header. A program is judged with the reliability that its predictions have by the other programs, so none
//! trains its own prior.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::cost::cost;
use super::program::SimulatedProgram;
use crate::candidate::SYSTEM;
use crate::replay_prior::reliability::{ErrorTable, PredictionError, RecordedRunFacts};
use crate::replay_prior::{PredictedDifference, ReplayPrior};

/// A line of the file. The header and lines that tell why there is no prediction lack the ratios.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ReplayLine {
    /// The program.
    pub program: String,
    /// The candidate.
    pub candidate: String,
    /// Version of its allocator.
    pub version: String,
    /// Predicted CPU time by that under `system`.
    pub cpu_ratio: Option<f64>,
    /// The same of mean resident memory.
    pub mean_ratio: Option<f64>,
    /// The recorded run.
    #[serde(flatten)]
    pub run: RecordedRunFacts,
}

impl ReplayLine {
    fn predicted(&self) -> Option<PredictedDifference> {
        let ratio = |ratio: Option<f64>| ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let (cpu, memory) = ratio(self.cpu_ratio).zip(ratio(self.mean_ratio))?;
        let is_other = !self.program.is_empty() && !self.candidate.is_empty() && self.candidate != SYSTEM;
        is_other.then(|| PredictedDifference {
            candidate: self.candidate.clone(),
            version: self.version.clone(),
            cpu: cpu.ln(),
            memory: memory.ln(),
        })
    }
}

/// What the predictions start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorBasis {
    /// The replays of the program's own run.
    Replay,
    /// None of its own: what the candidate did to the other programs, of the same class if there are several.
    OtherPrograms,
}

/// The predictions of a file, by program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replays {
    /// By program: its recorded run, and what was predicted.
    programs: BTreeMap<String, (RecordedRunFacts, Vec<PredictedDifference>)>,
    /// Lines that are no JSON object of the format, by their number from 1.
    pub unread: Vec<usize>,
}

impl Replays {
    /// Of the text of a file.
    pub fn read(text: &str) -> Self {
        let mut all = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str::<ReplayLine>(line) {
                Ok(line) => all.add(&line),
                Err(_) => all.unread.push(number + 1),
            }
        }
        all
    }

    fn add(&mut self, line: &ReplayLine) {
        let Some(predicted) = line.predicted() else { return };
        let (_, of_program) = self.programs.entry(line.program.clone()).or_insert_with(|| (line.run, vec![]));
        // A later line replaces an earlier one: the program was replayed again.
        of_program.retain(|one| one.candidate != predicted.candidate);
        of_program.push(predicted);
    }

    /// Whether anything is predicted of the program.
    pub fn knows(&self, program: &str) -> bool {
        self.programs.contains_key(program)
    }

    /// How far off the predictions for a program were, by all its rounds.
    fn errors(&self, program: &SimulatedProgram, basis: PriorBasis) -> Vec<PredictionError> {
        let Some((run, predicted)) = self.programs.get(&program.name) else { return vec![] };
        let rounds: Vec<usize> = (0..program.rounds.len()).collect();
        let error = |one: &PredictedDifference| {
            let at = program.candidates.iter().position(|name| *name == one.candidate)?;
            let live = cost(program, &rounds, at)?;
            let [cpu, memory] = basis.predicted(one);
            Some(PredictionError {
                candidate: one.candidate.clone(),
                run: *run,
                cpu: live.cpu - cpu,
                memory: live.memory - memory,
            })
        };
        predicted.iter().filter_map(error).collect()
    }

    /// How reliable the predictions for all these programs were.
    pub fn reliability(&self, programs: &[SimulatedProgram], source: &str) -> ErrorTable {
        let errors: Vec<_> = programs.iter().flat_map(|one| self.errors(one, PriorBasis::Replay)).collect();
        ErrorTable::learn(source, &errors)
    }

    /// By program: its prior, with the reliability that the predictions for all other programs have.
    pub fn held_out(
        &self,
        programs: &[SimulatedProgram],
        basis: PriorBasis,
    ) -> BTreeMap<String, ReplayPrior> {
        let errors: Vec<Vec<PredictionError>> = programs.iter().map(|one| self.errors(one, basis)).collect();
        let prior = |(at, program): (usize, &SimulatedProgram)| {
            let (run, predicted) = self.programs.get(&program.name)?;
            let others: Vec<PredictionError> = errors
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .flat_map(|(_, e)| e.clone())
                .collect();
            let table = ErrorTable::learn("the other programs", &others);
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
    use crate::replay_prior::reliability::PredictedAxis;
    use crate::simulate::World;

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
        let replays = Replays::read(&file(&programs, 0.3));
        let priors = replays.held_out(&programs, PriorBasis::Replay);
        assert_eq!((priors.len(), replays.unread.len()), (60, 0));
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
        let table = replays.reliability(&programs, "a test");
        assert!(
            (table.entries.iter().find(|one| one.figure == PredictedAxis::Memory).unwrap().error.mean - 0.3)
                .abs()
                < 0.02,
            "{:?}",
            table.entries[0]
        );
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
        let prior = |text: &str| Replays::read(text).held_out(&programs, PriorBasis::Replay)[name].clone();
        let deviations = |prior: &ReplayPrior| -> Vec<f64> {
            prior.forecasts.iter().map(|one| one.memory.deviation).collect()
        };
        assert_eq!(deviations(&prior(&text)), deviations(&prior(&wrong)));
    }

    #[test]
    fn lines_without_ratios_predict_nothing_and_others_are_named() {
        let line = |ratio: &str| {
            format!("{{\"program\":\"p\",\"candidate\":\"a\",\"cpu_ratio\":1,\"mean_ratio\":{ratio}}}\n")
        };
        let replays = Replays::read(&(line("null") + &line("0") + "no line\n" + &line("-1")));
        assert!(!replays.knows("p"));
        assert_eq!(replays.unread, [3]);
        let twice = Replays::read(&(line("2") + &line("4")));
        assert_eq!(twice.programs["p"].1.len(), 1);
        assert!((twice.programs["p"].1[0].memory - 4f64.ln()).abs() < 1e-12, "the later line counts");
    }
}
