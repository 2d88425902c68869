// SPDX-License-Identifier: Apache-2.0
//! One figure with its name, unit and direction.

use serde::{Deserialize, Serialize};

/// Whether a lower or a higher value is better.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    #[default]
    Lower,
    /// More is better.
    Higher,
}

/// A named figure.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Figure {
    /// One of the names in [`crate::server_run::ServerRun::figures`].
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// `s`, `ms`, `B`, `1/s` or a unit that the load defines; empty for a count.
    pub unit: String,
    /// Direction.
    pub better: Better,
}

impl Figure {
    /// A figure of which less is better; `unit` is that of `value`.
    pub fn lower(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.to_owned(), value, unit: unit.to_owned(), better: Better::Lower }
    }

    /// A figure of which more is better; `unit` is that of `value`.
    pub fn higher(name: &str, value: f64, unit: &str) -> Self {
        Self { better: Better::Higher, ..Self::lower(name, value, unit) }
    }
}

/// Combines several values of one figure. Counts are added. All else is averaged geometrically, so that each
/// part has the same weight at any size.
pub fn together(figures: &[&Figure]) -> Option<Figure> {
    let first = *figures.first()?;
    if figures.len() == 1 {
        return Some(first.clone());
    }
    let n = figures.len() as f64;
    let value = if first.unit.is_empty() {
        figures.iter().fold(0.0, |sum, one| sum + one.value)
    } else if figures.iter().all(|one| one.value > 0.0) {
        (figures.iter().map(|one| one.value.ln()).sum::<f64>() / n).exp()
    } else {
        figures.iter().map(|one| one.value).sum::<f64>() / n
    };
    Some(Figure { value, ..first.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_latencies_average() {
        let errors = [Figure::lower("errors", 1.0, ""), Figure::lower("errors", 2.0, "")];
        assert_eq!(together(&errors.iter().collect::<Vec<_>>()).unwrap().value, 3.0);
        let p99 = [Figure::lower("p99", 1.0, "ms"), Figure::lower("p99", 4.0, "ms")];
        assert!((together(&p99.iter().collect::<Vec<_>>()).unwrap().value - 2.0).abs() < 1e-12);
        assert_eq!(together(&[]), None);
    }
}
