// SPDX-License-Identifier: Apache-2.0
//! Programs that were left out as a whole, in lines of raw runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A program that a start wanted to measure and could not: it is missing, or fails by itself.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct NotRun {
    /// Name of the program.
    pub left_out: String,
    /// Reason, in words.
    pub why: String,
    /// Time when it was left out, seconds since the epoch.
    #[serde(default)]
    pub at_s: f64,
}

/// Reads lines of runs and of excluded programs one by one, and then says which programs are excluded.
///
/// The latest line about a program decides, by its time: files are given and joined in any order, so the
/// order of lines is that of time only within one start. Lines of the same time go by their order. A line
/// without a time, as in a file made by hand, goes with the line before it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dropped {
    /// Latest line about each program: its time, and why the program was excluded then; None for a run.
    last: BTreeMap<String, (f64, Option<String>)>,
    /// Time of the last line that has one, seconds since the epoch.
    now_s: f64,
}

impl Dropped {
    /// The program has a run from that time, seconds since the epoch; 0 where none is known.
    pub fn ran(&mut self, program: &str, at_s: f64) {
        self.record(program, at_s, None);
    }

    /// The program was left out.
    pub fn left_out(&mut self, line: NotRun) {
        self.record(&line.left_out, line.at_s, Some(line.why));
    }

    fn record(&mut self, program: &str, at_s: f64, why: Option<String>) {
        if at_s > 0.0 {
            self.now_s = at_s;
        }
        match self.last.get_mut(program) {
            Some((last_s, _)) if *last_s > self.now_s => {}
            Some(last) => *last = (self.now_s, why),
            None => {
                self.last.insert(program.to_owned(), (self.now_s, why));
            }
        }
    }

    /// Programs that were excluded and not run since, by name, each with its latest reason. Their earlier
    /// runs still count.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<&str, &str> {
        self.last.iter().filter_map(|(name, (_, why))| Some((name.as_str(), why.as_deref()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(name: &str, why: &str, at_s: f64) -> NotRun {
        NotRun { left_out: name.into(), why: why.into(), at_s }
    }

    #[test]
    fn the_last_word_by_the_clock_counts() {
        let mut dropped = Dropped::default();
        // The later start's file was given first.
        dropped.left_out(left_out("a", "no input", 20.0));
        dropped.ran("b", 21.0);
        dropped.left_out(left_out("a", "not installed", 10.0));
        dropped.left_out(left_out("b", "not installed", 10.0));
        dropped.ran("a", 11.0);
        assert_eq!(dropped.reasons(), BTreeMap::from([("a", "no input")]));
    }
}
