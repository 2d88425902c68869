// SPDX-License-Identifier: Apache-2.0
//! Programs with known predictions and live figures, for tests.

use imas_core::adaptive::Point;
use imas_replay::reliability::RecordedRunFacts;

use super::judged::LiveFigures;
use super::judged::{JudgedCandidate, JudgedProgram};

/// Name, then predicted and live logarithms of CPU and memory.
pub(crate) type MadeUpCandidate<'a> = (&'a str, (f64, f64), (f64, f64));

pub(crate) fn program(
    name: &str,
    facts: RecordedRunFacts,
    candidates: &[MadeUpCandidate<'_>],
) -> JudgedProgram {
    let point = |(cpu, memory): (f64, f64)| Point { cpu, memory };
    let of = |&(name, predicted, live): &MadeUpCandidate<'_>| JudgedCandidate {
        name: name.to_owned(),
        predicted: point(predicted),
        predicted_peak: Some(predicted.1),
        live: LiveFigures { point: point(live), peak: Some(live.1) },
        huge_share: 0.0,
    };
    JudgedProgram {
        name: name.to_owned(),
        category: "made up".to_owned(),
        facts,
        process_share: 1.0,
        candidates: candidates.iter().map(of).collect(),
    }
}
