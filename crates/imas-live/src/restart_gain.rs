// SPDX-License-Identifier: Apache-2.0
//! What a restart under the pick would save, by the program's own trials.
//!
//! A saving is never guessed: with too few trials on either side there is no figure.

use imas_core::TrialRecord;
use imas_core::sample::PageKind;
use imas_core::stats::{Interval, RESAMPLES, bootstrap, median};
use imas_view::program_view::ProgramView;

/// With fewer trials on either side, no saving is reported.
const FEWEST: usize = 3;
/// A smaller saving does not justify a restart. The limit is that of picks of `imas bench`.
const CPU_MARGIN: f64 = 0.02;
const MEMORY_MARGIN: f64 = 0.05;

/// The pick compared with the present candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RestartGain {
    /// Ratio of CPU seconds per operation, pick to present candidate, with its 95 % interval; None without
    /// enough trials.
    pub cpu: Option<Interval>,
    /// The same for resident memory.
    pub memory: Option<Interval>,
    /// Median of the resident bytes in the trials of the present candidate.
    pub memory_bytes: Option<f64>,
    /// Number of valid trials, of the present candidate and of the pick.
    pub trials: [usize; 2],
}

impl RestartGain {
    /// From candidate `on` to candidate `pick`.
    #[must_use]
    pub fn of(state: &ProgramView, on: &str, pick: &str) -> Self {
        let sides = [Side::of(state, on), Side::of(state, pick)];
        Self {
            cpu: ratio(&sides[0].cpu, &sides[1].cpu),
            memory: ratio(&sides[0].memory, &sides[1].memory),
            memory_bytes: median(&sides[0].memory),
            trials: [sides[0].trials, sides[1].trials],
        }
    }

    /// Whether a saving justifies a restart: its interval includes none, and it is above the margin.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        let proven = |ratio: &Option<Interval>, margin: f64| {
            ratio.is_some_and(|ratio| ratio.hi < 1.0 && ratio.mid <= 1.0 - margin)
        };
        proven(&self.cpu, CPU_MARGIN) || proven(&self.memory, MEMORY_MARGIN)
    }
}

/// Figures of the valid trials of one candidate with the present build.
struct Side {
    trials: usize,
    /// CPU seconds per million operations. The work differs between runs, but the cost of an operation less
    /// so.
    cpu: Vec<f64>,
    /// Mean resident bytes of each run.
    memory: Vec<f64>,
}

impl Side {
    fn of(state: &ProgramView, candidate: &str) -> Self {
        let records = &state.known.records;
        let view = state.profile.candidate(candidate);
        let left_out = |id: &str| view.is_none_or(|view| view.left_out.iter().any(|out| out.trial_id == id));
        let counts = |record: &&TrialRecord| {
            let sample = &record.sample;
            sample.candidate == candidate
                && sample.kind == PageKind::Trial
                && record.is_of_build(&state.known.build_id)
                && !left_out(&sample.trial_id)
        };
        let counted: Vec<_> = records.iter().filter(counts).collect();
        Self {
            trials: counted.len(),
            cpu: counted.iter().filter_map(|record| cpu_of(record)).collect(),
            memory: counted.iter().filter_map(|record| memory_of(record)).collect(),
        }
    }
}

fn cpu_of(record: &TrialRecord) -> Option<f64> {
    let usage = record.sample.usage.as_ref()?;
    let operations: u64 = record.sample.classes().iter().map(|class| class.calls).sum();
    let seconds = usage.user_s + usage.system_s;
    (operations > 0 && seconds > 0.0).then(|| seconds * 1e6 / operations as f64)
}

fn memory_of(record: &TrialRecord) -> Option<f64> {
    let memory = &record.sample.memory;
    (memory.snapshots > 0 && memory.resident() > 0).then_some(memory.resident() as f64)
}

/// Ratio of the medians, pick to present candidate, with its bootstrap interval.
fn ratio(present: &[f64], pick: &[f64]) -> Option<Interval> {
    if present.len() < FEWEST || pick.len() < FEWEST {
        return None;
    }
    let tagged: Vec<(bool, f64)> =
        present.iter().map(|&x| (false, x)).chain(pick.iter().map(|&x| (true, x))).collect();
    let of = |drawn: &[(bool, f64)], side: bool| {
        median(&drawn.iter().filter(|(tag, _)| *tag == side).map(|(_, x)| *x).collect::<Vec<_>>())
    };
    bootstrap(&tagged, RESAMPLES, 1, |drawn| {
        let below = of(drawn, false).filter(|x| *x > 0.0)?;
        Some(of(drawn, true)? / below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_trials_on_both_sides() {
        assert_eq!(ratio(&[1.0, 1.0], &[1.0, 1.0, 1.0]), None);
        assert_eq!(ratio(&[1.0, 1.0, 1.0], &[]), None);
        let half = ratio(&[2.0, 2.0, 2.0, 2.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!((half.lo, half.mid, half.hi), (0.5, 0.5, 0.5));
    }

    #[test]
    fn noise_proves_nothing() {
        let wide = ratio(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!(wide.lo < 1.0 && wide.hi > 1.0, "{wide:?}");
        let gain = |cpu| RestartGain { cpu, memory: None, memory_bytes: None, trials: [4, 4] };
        assert!(!gain(Some(wide)).is_proven() && !gain(None).is_proven());
        assert!(gain(Some(Interval { lo: 0.8, mid: 0.9, hi: 0.95 })).is_proven());
        assert!(!gain(Some(Interval { lo: 0.98, mid: 0.99, hi: 0.995 })).is_proven(), "below the margin");
    }
}
