// SPDX-License-Identifier: Apache-2.0
//! Counted nouns.

use std::fmt::Display;

/// The count with its noun: `1 run`, `2 runs`, `0 more runs`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = match (count == N::from(1), noun.ends_with("ss")) {
        (true, _) => "",
        (false, true) => "es",
        (false, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

/// The count with its noun and the verb that goes with it: `1 program runs`, `2 programs run`.
#[must_use]
pub fn counted_verb<N: Display + PartialEq + From<u8> + Copy>(
    count: N,
    noun: &str,
    one: &str,
    several: &str,
) -> String {
    let verb = if count == N::from(1) { one } else { several };
    format!("{} {verb}", counted(count, noun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let of = |n: usize| counted_verb(n, "program", "runs", "run");
        assert_eq!([of(1), of(2)], ["1 program runs", "2 programs run"]);
        assert_eq!(
            [0usize, 1, 2].map(|n| counted(n, "more run")),
            ["0 more runs", "1 more run", "2 more runs"]
        );
        assert_eq!(
            (counted(1u32, "process"), counted(3u64, "process")),
            ("1 process".into(), "3 processes".into())
        );
    }
}
