// SPDX-License-Identifier: Apache-2.0
//! What it means for a program when a fact of the conformance kit does not hold.

/// Each fact of the programs that are run on the user's machine, in their order, and its words after a tab.
const WORDS: &str = include_str!("words.tsv");

/// The words for the fact; None for one that the quick part of the kit does not have.
pub(super) fn of(fact: &str) -> Option<&'static str> {
    let mut words = WORDS.lines().filter_map(|line| line.split_once('\t'));
    words.find(|(name, _)| *name == fact).map(|(_, words)| words)
}
