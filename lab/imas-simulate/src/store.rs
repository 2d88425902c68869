// SPDX-License-Identifier: Apache-2.0
//! A program of the user's own store, made ready for replay.

use crate::program::{ExcludedProgram, MIN_ROUNDS, SimulatedProgram};
use imas_core::adaptive::adaptive_state::replayed;
use imas_core::adaptive::board::{JudgedTrial, rounds};
use imas_core::adaptive::{Point, Settings};
use imas_core::candidate::CountedSample;
use imas_core::history::History;
use imas_core::printable::counted;

/// One round: by candidate of the history.
type Round = Vec<(Option<Point>, Option<CountedSample>)>;

/// The program called `name`, from its trials in order of time, whatever their age, cut into rounds where a
/// candidate comes up again; and the candidates, or the program as a whole, that cannot be replayed. A
/// candidate takes part when it has figures in [`MIN_ROUNDS`] rounds together with `system` and with the
/// others that take part: one that a policy dropped sooner cannot be judged on runs that it was not dropped
/// for. One that ever failed is out.
pub fn from_store(name: &str, history: &History<'_>) -> (Option<SimulatedProgram>, Vec<ExcludedProgram>) {
    let all = Settings { max_age_s: f64::INFINITY, ..Settings::default() };
    let trials = replayed(history, &all);
    let rounds = table(&trials, history.candidates.len());
    let system = history.candidates.iter().position(imas_core::Candidate::is_system).unwrap_or(0);
    let with_system: Vec<Round> = rounds.into_iter().filter(|round| round[system].0.is_some()).collect();
    let failed = |i: usize| trials.iter().any(|(trial, _)| trial.candidate == i && trial.point.is_none());
    let known = |i: usize| with_system.iter().filter(|round| round[i].0.is_some()).count();
    let mut left_out = vec![];
    let mut taking_part = vec![system];
    for i in (0..history.candidates.len()).filter(|&i| i != system) {
        let candidate = &history.candidates[i].name;
        match known(i) {
            _ if failed(i) => left_out.push(left(name, candidate, "a trial of it yielded no figures")),
            0 => {}
            few if few < MIN_ROUNDS => {
                left_out.push(left(
                    name,
                    candidate,
                    &format!("{} together with system, {MIN_ROUNDS} are needed", counted(few, "round")),
                ));
            }
            _ => taking_part.push(i),
        }
    }
    while taking_part.len() > 1 && complete(&with_system, &taking_part).count() < MIN_ROUNDS {
        let fewest = (1..taking_part.len()).min_by_key(|&at| known(taking_part[at])).unwrap_or(1);
        let i = taking_part.remove(fewest);
        left_out.push(left(
            name,
            &history.candidates[i].name,
            "it was tried in too few rounds of the others",
        ));
    }
    if taking_part.len() < 2 {
        let why = format!("no candidate with {MIN_ROUNDS} rounds of figures together with system");
        left_out.push(ExcludedProgram { name: name.to_owned(), why });
        return (None, left_out);
    }
    (Some(program(name, history, &with_system, &taking_part)), left_out)
}

fn left(program: &str, candidate: &str, why: &str) -> ExcludedProgram {
    ExcludedProgram { name: format!("{program} under {candidate}"), why: why.to_owned() }
}

fn table(trials: &[(JudgedTrial, Option<CountedSample>)], candidates: usize) -> Vec<Round> {
    let bare: Vec<JudgedTrial> = trials.iter().map(|(trial, _)| *trial).collect();
    let mut rest = trials;
    let mut table = vec![];
    for round in rounds(&bare) {
        let (here, after) = rest.split_at(round.len());
        let mut row = vec![(None, None); candidates];
        for (trial, counted) in here {
            row[trial.candidate] = (trial.point, *counted);
        }
        table.push(row);
        rest = after;
    }
    table
}

/// Rounds in which all of them have figures: in others a policy would take what was never run for a trial
/// that failed.
fn complete<'a>(rounds: &'a [Round], of: &'a [usize]) -> impl Iterator<Item = &'a Round> {
    rounds.iter().filter(|round| of.iter().all(|&i| round[i].0.is_some()))
}

fn program(name: &str, history: &History<'_>, rounds: &[Round], taking_part: &[usize]) -> SimulatedProgram {
    let of = |round: &Round| taking_part.iter().map(|&i| round[i]).unzip();
    let (rounds, counted) = complete(rounds, taking_part).map(of).unzip();
    SimulatedProgram {
        name: name.to_owned(),
        candidates: taking_part.iter().map(|&i| history.candidates[i].name.clone()).collect(),
        rounds,
        counted,
        same_runs: true,
        truth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Contender, Plan, assess};
    use imas_core::candidate::{Candidate, SYSTEM, TrialRecord};
    use imas_core::paper::Limits;
    use imas_core::sample::{MemoryFigures, OpFigures, Sample, Usage};

    fn record(candidate: &str, at: f64, bytes: u64) -> TrialRecord {
        let memory = MemoryFigures {
            snapshots: 1,
            heap_mean: 2 * bytes,
            live_mean: 50,
            resident_mean: bytes,
            ..MemoryFigures::default()
        };
        let malloc = OpFigures { calls: 64, sampled: 1, mean_ns: 80.0, ..OpFigures::default() };
        let usage = Some(Usage { user_s: 1.0, ..Usage::default() });
        let made_unix_s = at;
        let (candidate, trial_id) = (candidate.to_owned(), format!("{candidate}-{at}"));
        let sample = Sample { candidate, trial_id, made_unix_s, memory, malloc, usage, ..Sample::default() };
        TrialRecord { sample, build_id: "b".into(), allocator_version: String::new(), retest_s: None }
    }

    fn replay(records: &[TrialRecord]) -> (Option<SimulatedProgram>, Vec<ExcludedProgram>) {
        let names = [SYSTEM, "jemalloc", "hoard"];
        let candidates: Vec<Candidate> = names.iter().map(|name| Candidate::new(name, "", &[])).collect();
        let history = History { build_id: "b", now_unix_s: 1e9, ..History::of(records, &candidates) };
        from_store("p", &history)
    }

    fn records(rounds: u32) -> Vec<TrialRecord> {
        let round = |i: u32| {
            [("jemalloc", 0.1, 100), (SYSTEM, 0.2, 200)]
                .map(|(c, at, bytes)| record(c, f64::from(i) + at, bytes))
        };
        (0..rounds).flat_map(round).collect()
    }

    #[test]
    fn half_the_memory_is_found_in_a_store() {
        let mut records = records(8);
        records.push(record("hoard", 0.3, 900));
        let (program, left_out) = replay(&records);
        let program = program.unwrap();
        assert_eq!(
            (program.candidates.as_slice(), program.rounds.len()),
            (["system".to_owned(), "jemalloc".to_owned()].as_slice(), 8)
        );
        assert_eq!(left_out.len(), 1);
        assert!(left_out[0].name.contains("hoard") && left_out[0].why.contains("1 round "), "{left_out:?}");
        for contender in [Contender::Adaptive(Settings::default()), Contender::Paper(Limits::default())] {
            let result = assess(&contender, std::slice::from_ref(&program), &Plan::default());
            assert_eq!((result.programs, result.wrong), (1, 0), "{}", result.policy);
            assert!(result.gain > 0.29, "{}: {}", result.policy, result.gain);
        }
    }

    #[test]
    fn a_program_that_cannot_be_judged_is_left_out_with_a_reason() {
        let (program, left_out) = replay(&records(3));
        assert!(program.is_none() && left_out.len() == 2, "{left_out:?}");
        let mut records = records(8);
        records[0].sample.ended = imas_core::sample::Ended::Signal { signal: 11 };
        let (program, left_out) = replay(&records);
        assert!(program.is_none() && left_out[0].why.contains("no figures"), "{left_out:?}");
    }

    /// The counted runs of a store are its measured ones: what judges must not have been seen.
    #[test]
    fn paper_gets_only_its_own_figures() {
        let mut records = records(8);
        for record in &mut records[8..] {
            record.sample.malloc.sampled = 0;
        }
        let (program, _) = replay(&records);
        let program = program.unwrap();
        let settle = |seen: &[usize]| Contender::Paper(Limits::default()).settle(&program, seen, 0.5, 1);
        assert!(settle(&[0, 1]).is_some() && settle(&[6, 7]).is_none());
    }
}
