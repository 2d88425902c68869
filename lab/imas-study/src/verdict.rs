// SPDX-License-Identifier: Apache-2.0
//! A printed finding beside ours, and the rules that judge it.

use crate::band::Band;
use serde::Serialize;
use std::fmt;

/// The verdict on a printed finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reproduction {
    /// Our figures agree.
    Reproduced,
    /// The claimed effect is visible, but a typical run does not give the printed figure.
    Differs,
    /// Our figures do not show the claimed effect.
    NotReproduced,
    /// Our runs are too few or too noisy, or the claimed quantity was not measured.
    Undecided,
}

impl fmt::Display for Reproduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "differs",
            Self::NotReproduced => "not reproduced",
            Self::Undecided => "undecided",
        })
    }
}

impl Reproduction {
    /// The verdict on an exact figure or on a yes-or-no claim.
    pub(crate) fn holds(agrees: bool) -> Self {
        if agrees { Self::Reproduced } else { Self::NotReproduced }
    }

    /// The verdict on a printed number. Reproduced: it lies between our quartiles, as half of our runs do.
    /// Differs: it lies within the central nine tenths; some runs give it, most do not. Else not reproduced.
    pub(crate) fn of_value(printed: f64, ours: Band) -> Self {
        if (ours.lower_quartile..=ours.upper_quartile).contains(&printed) {
            Self::Reproduced
        } else if (ours.low..=ours.high).contains(&printed) {
            Self::Differs
        } else {
            Self::NotReproduced
        }
    }

    /// The verdict on a printed ratio that claims "less than 1" or "more than 1". Reproduced: the central
    /// nine tenths of our runs are on the same side of 1 and include the printed ratio. Differs: they are on
    /// the same side but do not include it. Else not reproduced.
    pub(crate) fn of_ratio(printed: f64, ours: Band) -> Self {
        let same_side = if printed < 1.0 { ours.high < 1.0 } else { ours.low > 1.0 };
        match (same_side, (ours.low..=ours.high).contains(&printed)) {
            (false, _) => Self::NotReproduced,
            (true, true) => Self::Reproduced,
            (true, false) => Self::Differs,
        }
    }
}

/// Meaning of the verdicts of studies over many seeds.
pub(crate) const RULE_OF_BANDS: &str = "Reproduced: our figures say the same; a printed number lies between our quartiles. Differs: the claim \
    holds, or a run may give the number, but most do not. Not reproduced: our runs do not show it. In brackets: the central nine tenths of our runs.";

/// One claim of the paper, and what our runs show.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Claim of the paper, in our words.
    pub claim: String,
    /// The figure it prints, with its unit.
    pub printed: String,
    /// Our figure, with its unit; of many runs median and, in brackets, the central nine tenths.
    pub ours: String,
    /// The judgement.
    pub verdict: Reproduction,
    /// One sentence of explanation.
    pub remark: String,
}

#[cfg(test)]
mod tests {
    use super::Reproduction;
    use crate::band::Band;

    fn band(low: f64, high: f64) -> Band {
        let quarter = (high - low) / 4.0;
        let at = |quarters: f64| low + quarter * quarters;
        Band { low, lower_quartile: at(1.0), median: at(2.0), upper_quartile: at(3.0), high }
    }

    #[test]
    fn a_value_is_judged_by_where_it_falls() {
        let ours = band(0.0, 40.0);
        assert_eq!(Reproduction::of_value(20.0, ours), Reproduction::Reproduced);
        assert_eq!(Reproduction::of_value(35.0, ours), Reproduction::Differs);
        assert_eq!(Reproduction::of_value(41.0, ours), Reproduction::NotReproduced);
    }

    #[test]
    fn a_ratio_needs_its_side_of_one_first() {
        assert_eq!(Reproduction::of_ratio(0.75, band(0.7, 0.9)), Reproduction::Reproduced);
        assert_eq!(Reproduction::of_ratio(0.75, band(0.8, 0.9)), Reproduction::Differs);
        assert_eq!(Reproduction::of_ratio(0.75, band(0.7, 1.1)), Reproduction::NotReproduced);
        assert_eq!(Reproduction::of_ratio(1.5, band(1.2, 3.0)), Reproduction::Reproduced);
    }
}
