// SPDX-License-Identifier: Apache-2.0
//! Why a prediction may have failed, from what was recorded of the program and its replay.

use imas_replay::reliability::PredictedFigure;

use super::judged::{JudgedCandidate, JudgedProgram};

/// Property of a run that a replay does not repeat. Several may hold; the first that does is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureReason {
    /// A part of the replay's memory is in huge pages, and the program's huge pages need not be the same.
    HugePages,
    /// The live change is larger than the allocator's own time: it is in the program's own cache misses.
    Locality,
    /// Other processes do a part of the work.
    OtherProcesses,
    /// Threads of the replay take turns.
    Threads,
    /// Which pages of a block the program writes is fitted, not recorded. It decides about memory, and about the
    /// time of page faults.
    Touching,
    /// No other reason: noise of live runs and replays, and what is not known.
    Other,
}

/// Part of the replay's memory in huge pages above which they are the reason.
const HUGE: f64 = 0.1;
/// Part of the CPU time outside of the replayed process above which other processes are the reason.
const ELSEWHERE: f64 = 0.1;

impl FailureReason {
    pub(crate) const ALL: [Self; 6] =
        [Self::HugePages, Self::Locality, Self::OtherProcesses, Self::Threads, Self::Touching, Self::Other];

    pub(crate) fn of(program: &JudgedProgram, one: &JudgedCandidate, figure: PredictedFigure) -> Self {
        let is_cpu = figure == PredictedFigure::Cpu;
        let (live, predicted) = (one.live.point.cpu.abs(), one.predicted.cpu.abs());
        match () {
            () if one.huge_share > HUGE => Self::HugePages,
            () if is_cpu && live > program.facts.allocator_share.max(predicted) => Self::Locality,
            () if program.process_share < 1.0 - ELSEWHERE => Self::OtherProcesses,
            () if program.facts.threads > 1 => Self::Threads,
            () if !is_cpu || predicted > live => Self::Touching,
            () => Self::Other,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::HugePages => "huge pages",
            Self::Locality => "locality: more than the allocator's own time",
            Self::OtherProcesses => "other processes do a part of the work",
            Self::Threads => "threads take turns in the replay",
            Self::Touching => "which pages are written is not recorded",
            Self::Other => "noise, or unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use imas_core::adaptive::Point;
    use imas_replay::reliability::RecordedRunFacts;

    use super::*;
    use crate::replay::made_up::program;

    #[test]
    fn a_change_beyond_the_allocators_own_time_is_locality() {
        let facts = RecordedRunFacts { allocator_share: 0.02, peak_bytes: 1e6, threads: 1 };
        let program =
            program("p", facts, &[("a", (0.0, 0.0), (-0.15, 0.0)), ("b", (0.0, 0.0), (-0.01, 0.3))]);
        let reason = |at: usize, figure| FailureReason::of(&program, &program.candidates[at], figure);
        assert_eq!(reason(0, PredictedFigure::Cpu), FailureReason::Locality);
        assert_eq!(reason(1, PredictedFigure::Cpu), FailureReason::Other);
        assert_eq!(reason(1, PredictedFigure::Peak), FailureReason::Touching);
        // Large blocks that the replay writes and the program does not: far more page faults than live.
        let faults =
            JudgedCandidate { predicted: Point { cpu: 1.2, memory: 0.0 }, ..program.candidates[0].clone() };
        assert_eq!(FailureReason::of(&program, &faults, PredictedFigure::Cpu), FailureReason::Touching);
        let huge = JudgedCandidate { huge_share: 0.6, ..program.candidates[0].clone() };
        assert_eq!(FailureReason::of(&program, &huge, PredictedFigure::Cpu), FailureReason::HugePages);
    }
}
