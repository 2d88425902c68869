// SPDX-License-Identifier: Apache-2.0
//! What `imas bench --quick` predicted before it measured.

use imas_core::bench::PredictedRatios;
use imas_core::candidate::SYSTEM;
use imas_core::stats::Interval;
use serde::{Deserialize, Serialize};

use super::CandidateReport;
use imas_cli::{format, table};

/// What came before the measured runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuickReport {
    /// What the measured candidates were chosen by: `cpu`, `memory`, or `balanced`.
    pub objective: String,
    /// Why nothing was predicted, so that every candidate was measured; None where it was.
    pub fallback: Option<String>,
    /// The recorded run; None where there is no trace of it.
    pub recorded: Option<RecordedReport>,
    /// The candidates that were compared, in the order of the catalogue, without `system`.
    pub predicted: Vec<PredictedCandidate>,
    /// Seconds from the beginning of the recorded run to the end of the last replay.
    pub took_s: f64,
}

/// The run that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedReport {
    /// Calls of the process that was replayed.
    pub calls: u64,
    /// Processes that were recorded.
    pub processes: usize,
    /// The share of the run's CPU time that the replayed process used, 0 to 1.
    pub cpu_share: f64,
}

/// A candidate and what the replay says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedCandidate {
    /// Name in the catalogue.
    pub name: String,
    /// Predicted ratios to `system`; None where there is no replay.
    pub ratio: Option<PredictedRatios>,
    /// Why there is no replay.
    pub failure: Option<String>,
    /// Whether the candidate was chosen for live runs.
    pub is_measured: bool,
}

const HEADS: [&str; 7] = [
    "candidate",
    "CPU predicted",
    "CPU measured",
    "mean predicted",
    "mean measured",
    "peak predicted",
    "peak measured",
];

/// The table's heads for a terminal of 80 columns.
const TEXT_HEADS: [&str; 7] = ["candidate", "CPU", "live", "mean", "live", "peak", "live"];
const BESIDE: &str = "(beside each prediction the live figure)";

impl QuickReport {
    /// Predictions beside what was measured, and what they rest on.
    #[must_use]
    pub fn text(&self, candidates: &[CandidateReport]) -> String {
        match &self.fallback {
            Some(why) => format!("{}.\n", fallback_text(why)),
            None => {
                let table = table::plain(&TEXT_HEADS, self.rows(candidates));
                format!("{}\n{BESIDE}\n\n{table}", self.heading())
            }
        }
    }

    /// The predictions as Markdown.
    #[must_use]
    pub fn markdown(&self, candidates: &[CandidateReport]) -> String {
        match &self.fallback {
            Some(why) => format!("{}.\n", fallback_text(why)),
            None => format!("{}\n\n{}", self.heading(), table::markdown(&HEADS, self.rows(candidates))),
        }
    }

    fn heading(&self) -> String {
        let calls = self.recorded.as_ref().map_or(0, |recorded| recorded.calls);
        let share = self.recorded.as_ref().map_or(0.0, |recorded| recorded.cpu_share);
        format!(
            "Predicted by replay of one recorded run ({calls} calls, {:.0} % of the CPU time), and measured where\nthe predicted score ({}) is among the best:",
            share.min(1.0) * 100.0,
            self.objective
        )
    }

    fn rows<'a>(&'a self, candidates: &'a [CandidateReport]) -> impl Iterator<Item = Vec<String>> + 'a {
        self.predicted.iter().filter(|one| one.name != SYSTEM).map(|one| {
            let measured = candidates.iter().find(|candidate| candidate.name == one.name);
            let measured = measured.map(|candidate| candidate.ratio).unwrap_or_default();
            let predicted = |of: fn(&PredictedRatios) -> Interval| one.ratio.as_ref().map(of);
            [
                predicted(|ratio| ratio.cpu),
                measured.cpu,
                predicted(|ratio| ratio.memory),
                measured.memory,
                predicted(|ratio| ratio.peak),
                measured.peak,
            ]
            .into_iter()
            .fold(vec![one.name.clone()], |mut row, ratio| {
                row.push(ratio.map_or_else(|| "-".to_owned(), |ratio| change(&ratio)));
                row
            })
        })
    }
}

fn change(ratio: &Interval) -> String {
    format::large_factor(ratio.mid)
        .filter(|_| ratio.mid > 1.0)
        .unwrap_or_else(|| format!("{:+.1} %", (ratio.mid - 1.0) * 100.0))
}

/// The reason as a sentence, without its full stop.
#[must_use]
pub fn fallback_text(why: &str) -> String {
    format!("nothing could be predicted ({why}): every candidate is measured, as without --quick")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, mid: Option<f64>) -> PredictedCandidate {
        let ratio = mid.map(|mid| Interval { lo: mid, mid, hi: mid });
        let ratio = ratio.map(|all| PredictedRatios { cpu: all, memory: all, peak: all });
        PredictedCandidate { name: name.into(), ratio, failure: None, is_measured: mid.is_some() }
    }

    #[test]
    fn the_table_has_what_was_predicted_and_what_was_measured() {
        let quick = QuickReport {
            objective: "balanced".into(),
            predicted: vec![candidate("a", Some(0.8)), candidate("b", Some(2.5)), candidate("c", None)],
            ..QuickReport::default()
        };
        let mut measured = CandidateReport::unusable("a", "1", "");
        measured.ratio.cpu = Some(Interval { lo: 0.8, mid: 0.9, hi: 1.0 });
        let text = quick.text(&[measured]);
        let line = |name: &str| text.lines().find(|line| line.starts_with(&format!(" {name} "))).unwrap();
        assert!(line("a").contains("-20.0 %") && line("a").contains("-10.0 %"), "{text}");
        assert!(line("b").contains("2.5 x"), "{text}");
        assert!(!line("c").contains('%'), "{text}");
        let table = text.lines().skip_while(|line| !line.contains("candidate"));
        assert!(table.into_iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_fallback_has_its_reason() {
        let quick = QuickReport { fallback: Some("it is static".into()), ..QuickReport::default() };
        assert!(quick.text(&[]).contains("(it is static): every candidate is measured"));
        assert!(quick.markdown(&[]).contains("(it is static)"));
    }
}
