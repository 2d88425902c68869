// SPDX-License-Identifier: Apache-2.0
//! The words of a comparison.

use serde::{Deserialize, Serialize};

use crate::stats::Interval;

/// What a ratio to `system` amounts to. Serialised as the words that people read.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Less CPU time.
    #[serde(rename = "faster")]
    Faster,
    /// More CPU time.
    #[serde(rename = "slower")]
    Slower,
    /// Less memory.
    #[serde(rename = "less memory")]
    LessMemory,
    /// More memory.
    #[serde(rename = "more memory")]
    MoreMemory,
    /// No difference that the runs can show, or one not worth reporting.
    #[serde(rename = "within noise")]
    WithinNoise,
    /// Too few runs, or the figure could not be measured.
    #[serde(rename = "not enough data")]
    NotEnoughData,
    /// It is `system` itself.
    #[serde(rename = "reference")]
    Reference,
}

impl Word {
    /// The words as people read them.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::LessMemory => "less memory",
            Self::MoreMemory => "more memory",
            Self::WithinNoise => "within noise",
            Self::NotEnoughData => "not enough data",
            Self::Reference => "reference",
        }
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Both words about a candidate.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// On user and system CPU time.
    pub cpu: Word,
    /// On the mean of resident anonymous memory.
    pub memory: Word,
}

/// `better` or `worse` when the interval excludes 1 and the estimate differs from 1 by more than `margin`.
pub(super) fn word(ratio: Option<Interval>, margin: f64, better: Word, worse: Word) -> Word {
    match ratio {
        None => Word::NotEnoughData,
        Some(ratio) if is_better(ratio, margin) => better,
        Some(ratio) if ratio.lo > 1.0 && ratio.mid > 1.0 + margin => worse,
        Some(_) => Word::WithinNoise,
    }
}

/// True when the interval lies below 1 and the estimate beats 1 by more than `margin`.
pub(super) fn is_better(ratio: Interval, margin: f64) -> bool {
    ratio.hi < 1.0 && ratio.mid < 1.0 - margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_both_the_interval_and_the_margin() {
        let of = |lo, mid, hi| word(Some(Interval { lo, mid, hi }), 0.02, Word::Faster, Word::Slower);
        assert_eq!(of(0.90, 0.95, 0.99), Word::Faster);
        assert_eq!(of(0.90, 0.95, 1.00), Word::WithinNoise, "touches 1");
        assert_eq!(of(0.97, 0.985, 0.99), Word::WithinNoise, "inside the margin");
        assert_eq!(of(1.01, 1.05, 1.20), Word::Slower);
        assert_eq!(of(0.99, 1.05, 1.20), Word::WithinNoise);
        assert_eq!(of(1.005, 1.01, 1.20), Word::WithinNoise);
        assert_eq!(word(None, 0.02, Word::Faster, Word::Slower), Word::NotEnoughData);
    }

    #[test]
    fn words_are_what_serde_writes() {
        let all = [
            Word::Faster,
            Word::Slower,
            Word::LessMemory,
            Word::MoreMemory,
            Word::WithinNoise,
            Word::NotEnoughData,
            Word::Reference,
        ];
        for word in all {
            assert_eq!(serde_json::to_string(&word).unwrap(), format!("\"{word}\""));
        }
    }
}
