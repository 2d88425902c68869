// SPDX-License-Identifier: Apache-2.0
//! A printed finding beside ours, and the rules that judge it.

use crate::band::Band;
use serde::Serialize;
use std::fmt;

/// What became of a printed finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our figures say the same.
    Reproduced,
    /// What is claimed shows, but the printed figure is not what a typical run gives.
    Differs,
    /// Our figures do not show it.
    NotReproduced,
    /// Our runs are too few or too uneven to tell, or what it speaks of was not measured.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "differs",
            Self::NotReproduced => "not reproduced",
            Self::Undecided => "undecided",
        })
    }
}

impl Verdict {
    /// For an exact figure or a plain yes or no.
    pub(crate) fn holds(agrees: bool) -> Self {
        if agrees { Self::Reproduced } else { Self::NotReproduced }
    }

    /// For a printed number against our runs: reproduced between our quartiles (half of our runs), differs
    /// within the central nine tenths (a run may give it, most do not), not reproduced outside.
    pub(crate) fn of_value(printed: f64, ours: Band) -> Self {
        if (ours.lower_quartile..=ours.upper_quartile).contains(&printed) {
            Self::Reproduced
        } else if (ours.low..=ours.high).contains(&printed) {
            Self::Differs
        } else {
            Self::NotReproduced
        }
    }

    /// For a printed ratio that claims "less than 1" or "more than 1": not reproduced unless nine tenths of
    /// our runs are on the same side of 1; then reproduced if the printed ratio is within them, else differs.
    pub(crate) fn of_ratio(printed: f64, ours: Band) -> Self {
        let same_side = if printed < 1.0 { ours.high < 1.0 } else { ours.low > 1.0 };
        match (same_side, (ours.low..=ours.high).contains(&printed)) {
            (false, _) => Self::NotReproduced,
            (true, true) => Self::Reproduced,
            (true, false) => Self::Differs,
        }
    }
}

/// What the verdicts of studies over many seeds mean.
pub(crate) const RULE_OF_BANDS: &str = "Reproduced: our figures say the same; a printed number lies between our quartiles. Differs: the claim \
    holds, or a run may give the number, but most do not. Not reproduced: our runs do not show it. In brackets: the central nine tenths of our runs.";

/// One thing that the paper says, and what our runs say.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What the paper claims, in our words.
    pub claim: String,
    /// The figure it prints, with its unit.
    pub printed: String,
    /// Our figure, with its unit; of many runs median and, in brackets, the central nine tenths.
    pub ours: String,
    /// The judgement.
    pub verdict: Verdict,
    /// One sentence of explanation.
    pub remark: String,
}

#[cfg(test)]
mod tests {
    use super::Verdict;
    use crate::band::Band;

    fn band(low: f64, high: f64) -> Band {
        let quarter = (high - low) / 4.0;
        let at = |quarters: f64| low + quarter * quarters;
        Band { low, lower_quartile: at(1.0), median: at(2.0), upper_quartile: at(3.0), high }
    }

    #[test]
    fn a_value_is_judged_by_where_it_falls() {
        let ours = band(0.0, 40.0);
        assert_eq!(Verdict::of_value(20.0, ours), Verdict::Reproduced);
        assert_eq!(Verdict::of_value(35.0, ours), Verdict::Differs);
        assert_eq!(Verdict::of_value(41.0, ours), Verdict::NotReproduced);
    }

    #[test]
    fn a_ratio_needs_its_side_of_one_first() {
        assert_eq!(Verdict::of_ratio(0.75, band(0.7, 0.9)), Verdict::Reproduced);
        assert_eq!(Verdict::of_ratio(0.75, band(0.8, 0.9)), Verdict::Differs);
        assert_eq!(Verdict::of_ratio(0.75, band(0.7, 1.1)), Verdict::NotReproduced);
        assert_eq!(Verdict::of_ratio(1.5, band(1.2, 3.0)), Verdict::Reproduced);
    }
}
