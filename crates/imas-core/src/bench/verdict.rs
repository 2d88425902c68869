// SPDX-License-Identifier: Apache-2.0
//! The words of a comparison.

use serde::{Deserialize, Serialize};

use crate::compare::Answer;
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
    /// The candidate is `system` itself.
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

/// The words about a candidate's CPU time and memory.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Word on user and system CPU time.
    pub cpu: Word,
    /// Word on the mean of resident anonymous memory.
    pub memory: Word,
}

/// The word for a ratio: it speaks of one candidate alone, by its own interval.
pub(super) fn word(ratio: Option<Interval>, margin: f64, better: Word, worse: Word) -> Word {
    match ratio.map(|ratio| Answer::by_interval(ratio, margin)) {
        None => Word::NotEnoughData,
        Some(Answer::Better) => better,
        Some(Answer::Worse) => worse,
        Some(Answer::NotShown) => Word::WithinNoise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word() {
        let of = |lo, mid, hi| word(Some(Interval { lo, mid, hi }), 0.02, Word::Faster, Word::Slower);
        assert_eq!(of(0.90, 0.95, 0.99), Word::Faster);
        assert_eq!(of(1.01, 1.05, 1.20), Word::Slower);
        assert_eq!(of(0.99, 1.05, 1.20), Word::WithinNoise);
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
