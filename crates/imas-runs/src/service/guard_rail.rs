// SPDX-License-Identifier: Apache-2.0
//! Limits on what a pick may cost: `p99+5%`, `cpu+2%`, `memory_peak+0%`.

use serde::{Deserialize, Serialize};

/// A limit on the change of one figure compared with `system`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct GuardRail {
    /// Name of the figure.
    pub figure: String,
    /// Largest allowed change for the worse: 0.05 is 5 %.
    pub most: f64,
}

impl GuardRail {
    /// Whether a ratio to `system` keeps the limit. In `worse`, values above 1 are worse.
    #[must_use]
    pub fn allows(&self, worse: f64) -> bool {
        worse <= 1.0 + self.most
    }

    /// The limit in per cent, as it was written: 0.07 * 100 is not 7.
    pub(crate) fn percent(&self) -> f64 {
        (self.most * 1e6).round() / 1e4
    }
}

impl std::str::FromStr for GuardRail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: write FIGURE+N%, such as 'p99+5%' or 'cpu+2%'");
        let (figure, rest) = text.split_once('+').ok_or_else(wrong)?;
        let number = rest.trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
        let is_name =
            !figure.is_empty() && figure.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
        if !is_name || !(0.0..=10_000.0).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self { figure: figure.to_owned(), most: percent / 100.0 })
    }
}

impl std::fmt::Display for GuardRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}%", self.figure, self.percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_rail_is_a_figure_and_a_share() {
        let rail: GuardRail = "p99.9+5%".parse().unwrap();
        assert_eq!((rail.figure.as_str(), rail.to_string().as_str()), ("p99.9", "p99.9+5%"));
        assert_eq!("rate+7%".parse::<GuardRail>().unwrap().to_string(), "rate+7%");
        assert!(rail.allows(1.05) && !rail.allows(1.051) && rail.allows(0.5));
        for wrong in ["p99", "p99+5", "+5%", "p 99+5%", "cpu+-2%", "cpu+x%"] {
            assert!(wrong.parse::<GuardRail>().is_err(), "{wrong}");
        }
    }
}
