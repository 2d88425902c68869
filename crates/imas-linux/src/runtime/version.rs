// SPDX-License-Identifier: Apache-2.0
//! Ranges of versions, such as `>=17.0.9` or `>=1.19,<2`. Versions of runtimes have one number or several, so
//! semantic versions do not fit.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Limit for the length of a version.
const LONGEST: usize = 32;

/// Whether the text can be shown as a version: it begins with a digit, and has nothing odd in it.
#[must_use]
pub fn is_version(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-');
    text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(is_plain)
}

/// A range of versions; the empty one has all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionRange {
    text: String,
}

impl VersionRange {
    /// The range that the text means; `None` where it means none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_right = text.is_empty() || parts(text).all(|part| part.is_some());
        is_right.then(|| Self { text: text.to_owned() })
    }

    /// Whether the version is in the range.
    #[must_use]
    pub fn has(&self, version: &str) -> bool {
        self.is_everything()
            || parts(&self.text).flatten().all(|(sign, bound)| sign.allows(compare(version, bound)))
    }

    /// Whether every version is in the range.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether a version may be too new for it.
    #[must_use]
    pub fn has_end(&self) -> bool {
        parts(&self.text).flatten().any(|(sign, _)| matches!(sign, Sign::Below))
    }

    /// The range as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Debug, Clone, Copy)]
enum Sign {
    AtLeast,
    Below,
}

impl Sign {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::AtLeast => order != Ordering::Less,
            Self::Below => order == Ordering::Less,
        }
    }
}

fn parts(text: &str) -> impl Iterator<Item = Option<(Sign, &str)>> {
    text.split(',').map(|part| {
        let part = part.trim();
        let signs = [(">=", Sign::AtLeast), ("<", Sign::Below)];
        let (sign, bound) =
            signs.iter().find_map(|(sign, means)| Some((*means, part.strip_prefix(sign)?)))?;
        is_version(bound).then_some((sign, bound))
    })
}

/// Compares number by number; what is missing counts as 0.
fn compare(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        // A letter ends it: 1.21rc2 is 1.21, which it becomes.
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(text.len());
        text[..end].split(['.', '_']).map(|number| number.parse().unwrap_or(0)).collect()
    };
    let (mut a, mut b) = (numbers(a), numbers(b));
    let length = a.len().max(b.len());
    a.resize(length, 0);
    b.resize(length, 0);
    a.cmp(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_and_not_letters() {
        let has = |range: &str, version: &str| VersionRange::parse(range).unwrap().has(version);
        assert!(has(">=17", "17") && has(">=17", "17.0.15") && has(">=17", "21") && !has(">=17", "8.0_402"));
        assert!(has(">=17.0.9", "17.0.15") && !has(">=17.0.9", "17.0.8.1") && has(">=17.0.9", "21"));
        assert!(has(">=1.19, <2", "1.26.8") && !has(">=1.19,<2", "2.0") && has(">=1.21", "1.21rc2"));
        assert!(has("", "0") && has(">=18.18", "18.18+"));
        assert!(
            [(">=17", false), ("<2", true), (">=1,<2", true), ("", false)]
                .iter()
                .all(|(range, has_end)| VersionRange::parse(range).unwrap().has_end() == *has_end)
        );
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in ["17", "=17", ">=", ">= x", ">=17,", "~1"] {
            assert!(VersionRange::parse(bad).is_none(), "{bad}");
        }
    }
}
