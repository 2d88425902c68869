// SPDX-License-Identifier: Apache-2.0
//! Evidence of trials: each for the fleet, and all together as the gain that is expected of each pick.

use serde::{Deserialize, Serialize};

use super::AdaptiveState;
use super::Point;
use super::Settings;
use super::adaptive_state::{NumberedTrial, numbered_rounds};
use super::board::residue;
use super::round::{JudgedTrial, steady};
use crate::candidate::Candidate;
use crate::compare::Residue;
use crate::history::History;
use crate::paper::Pick;
use crate::quarantine::crashed_starts;
use crate::stats::saved;

/// Evidence from the trials of one host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostEvidence {
    /// Evidence of each trial; a trial that crashed shows two things.
    pub trials: Vec<TrialEvidence>,
    /// Residuals of the complete rounds, all together.
    pub residue: Residue,
}

/// Evidence from one trial or start about its candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct TrialEvidence {
    /// Id of the trial.
    pub trial_id: String,
    /// Index of its candidate; never `system`.
    pub candidate: usize,
    /// Evidence of the trial.
    pub shows: Shown,
}

/// Evidence from a trial: a difference, no figures, or a crash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shown {
    /// The difference to `system` of the same round.
    Pair(Point),
    /// The trial yielded no figures.
    Void,
    /// The program crashed or hung, and the candidate is to blame.
    Crash,
}

/// Evidence of the history. `is_last_complete` says whether the newest round is complete: nothing is to be
/// added to it. A trial in a round without figures of `system` shows no difference: what the machine did
/// between two rounds would be charged to the candidate.
pub fn host_evidence(history: &History<'_>, settings: &Settings, is_last_complete: bool) -> HostEvidence {
    let mut rounds = numbered_rounds(history, settings);
    let void = rounds.iter().flatten().filter(|trial| trial.judged.point.is_none());
    let mut trials: Vec<TrialEvidence> = void.map(|trial| trial.evidence(Shown::Void)).collect();
    if !is_last_complete {
        rounds.pop();
    }
    let judged: Vec<Vec<JudgedTrial>> =
        rounds.iter().map(|round| round.iter().map(|trial| trial.judged).collect()).collect();
    let judged: Vec<&[JudgedTrial]> = judged.iter().map(Vec::as_slice).collect();
    let system = history.candidates.iter().position(Candidate::is_system).unwrap_or(0);
    for (round, steadied) in rounds.iter().zip(steady(&judged, history.candidates.len())) {
        trials.extend(pairs(round, &steadied, system));
    }
    let crashes = crashed_starts(
        history.records,
        history.candidates,
        history.build_id,
        history.unblocked_at,
        history.now_unix_s,
    );
    let of_start = |(candidate, trial_id)| TrialEvidence { trial_id, candidate, shows: Shown::Crash };
    trials.extend(crashes.into_iter().map(of_start));
    trials.retain(|trial| trial.candidate != system);
    HostEvidence { trials, residue: residue(&judged) }
}

fn pairs(round: &[NumberedTrial], steadied: &[JudgedTrial], system: usize) -> Vec<TrialEvidence> {
    let reference = steadied.iter().filter(|trial| trial.candidate == system).find_map(|trial| trial.point);
    let pair = |(trial, steadied): (&NumberedTrial, &JudgedTrial)| {
        let (point, reference) = steadied.point.zip(reference)?;
        Some(trial.evidence(Shown::Pair(point.over(reference))))
    };
    round.iter().zip(steadied).filter_map(pair).collect()
}

impl NumberedTrial {
    fn evidence(&self, shows: Shown) -> TrialEvidence {
        TrialEvidence { trial_id: self.trial_id.clone(), candidate: self.judged.candidate, shows }
    }
}

// Expected gain of each pick.

/// A pick and its gain over `system`, as fractions of what `system` costs: 0.1 is 10 % less; a negative gain
/// is more.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct ExpectedGain {
    /// The pick that is meant. Its figure is CPU time for the fastest, memory for the leanest, and the root
    /// of their product for the balanced pick.
    pub pick: Pick,
    /// Index of the candidate; the index of `system` where no candidate is proven better.
    pub candidate: usize,
    /// The gain; 0 for `system`.
    pub gain: f64,
    /// 95 % interval for one candidate, not corrected for having been selected. None for `system`.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds it is computed from.
    pub rounds: u32,
}

/// The three picks. Empty without any trial.
pub fn expected(known: &AdaptiveState) -> Vec<ExpectedGain> {
    if known.roles.is_empty() || known.board.trials() == 0 {
        return vec![];
    }
    [(Pick::Fastest, 1.0), (Pick::Leanest, 0.0), (Pick::Balanced, 0.5)]
        .map(|(pick, w)| gain_of(known, pick, w))
        .into()
}

fn gain_of(known: &AdaptiveState, pick: Pick, w: f64) -> ExpectedGain {
    let judgement = known.judge(w);
    let standing = &judgement.standings[judgement.pick];
    let is_system = judgement.pick == known.board.system;
    let interval = (saved(standing.gain - standing.within), saved(standing.gain + standing.within));
    ExpectedGain {
        pick,
        candidate: judgement.pick,
        gain: saved(standing.gain),
        interval: (!is_system).then_some(interval),
        rounds: standing.rounds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::TrialRecord;
    use crate::sample::{Ended, MemoryFigures, OpFigures, Sample, Usage};

    fn trial(number: u32, candidate: &str, cpu_s: f64) -> TrialRecord {
        let calls = OpFigures { calls: 100, sampled: 1, mean_ns: 1.0, ..OpFigures::default() };
        let memory = MemoryFigures { snapshots: 1, resident_mean: 1 << 20, ..MemoryFigures::default() };
        let sample = Sample {
            trial_id: format!("t{number}"),
            candidate: candidate.into(),
            made_unix_s: f64::from(number),
            served: candidate.into(),
            malloc: calls,
            memory: MemoryFigures { resident_over_time: 1 << 20, ..memory },
            usage: Some(Usage { user_s: cpu_s, ..Usage::default() }),
            wall_s: 0.5,
            ended: Ended::Clean { status: Some(0) },
            ..Sample::default()
        };
        TrialRecord { sample, ..TrialRecord::default() }
    }

    fn evidence(records: &[TrialRecord], is_last_complete: bool) -> HostEvidence {
        let candidates = [Candidate::system(""), Candidate::new("a", "", &[]), Candidate::new("b", "", &[])];
        let history = History { now_unix_s: 100.0, ..History::of(records, &candidates) };
        host_evidence(&history, &Settings::default(), is_last_complete)
    }

    fn shown(evidence: &HostEvidence) -> Vec<(&str, usize, String)> {
        let text = |shows: &Shown| match shows {
            Shown::Pair(point) => format!("{:.3}", point.cpu),
            other => format!("{other:?}"),
        };
        evidence.trials.iter().map(|t| (t.trial_id.as_str(), t.candidate, text(&t.shows))).collect()
    }

    #[test]
    fn trials_of_complete_rounds_are_paired_with_their_own_system() {
        let records =
            [trial(1, "a", 2.0), trial(2, "system", 1.0), trial(3, "system", 1.0), trial(4, "a", 4.0)];
        let of_first = ("t1", 1, "0.693".to_owned());
        assert_eq!(shown(&evidence(&records, false)), std::slice::from_ref(&of_first));
        assert_eq!(shown(&evidence(&records, true)), [of_first, ("t4", 1, "1.386".to_owned())]);
        assert_eq!(evidence(&records, true).residue.freedom, 1.0);
        assert_eq!(evidence(&records, false).residue.freedom, 0.0);
        let alone =
            [trial(1, "system", 1.0), trial(2, "a", 2.0), trial(3, "a", 9.0), trial(4, "system", 3.0)];
        assert_eq!(shown(&evidence(&alone[1..3], true)), [], "no round has figures of system");
    }

    #[test]
    fn a_crash_is_a_trial_without_figures_and_a_crash() {
        let mut crash = trial(2, "b", 1.0);
        crash.sample.ended = Ended::Signal { signal: 11 };
        let records = [trial(1, "system", 1.0), crash];
        let expected = [("t2", 2, "Void".to_owned()), ("t2", 2, "Crash".to_owned())];
        assert_eq!(shown(&evidence(&records, false)), expected);
        let mut own = trial(3, "system", 1.0);
        own.sample.ended = Ended::Signal { signal: 11 };
        let records = [records.as_slice(), &[own]].concat();
        assert_eq!(shown(&evidence(&records, false)), expected[..1], "the program crashes by itself");
    }
}
