// SPDX-License-Identifier: Apache-2.0
//! Which columns of the table fit the terminal.

use super::column::{BenchColumn, USUAL};

/// What the reader asked for and has room for.
#[derive(Debug, Clone, Default)]
pub struct BenchLayout {
    /// The columns in this order. Without a selection: those of the default columns that fit.
    pub columns: Vec<BenchColumn>,
    /// The rows are sorted by this one; None: as the catalogue has them.
    pub sort: Option<BenchColumn>,
    /// Width of the terminal in characters; None: as wide as the table gets.
    pub width: Option<usize>,
}

/// One way to lay the table out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) columns: Vec<BenchColumn>,
    /// Whether changes have their intervals.
    pub(super) with_intervals: bool,
    /// The verdict is wrapped to this number of characters.
    pub(super) verdict: Option<u16>,
}

/// Narrow, but every word of a verdict fits.
const NARROW_VERDICT: u16 = 14;
const WRAPPED_VERDICT: u16 = 26;

/// Left out one after the other where the table is too wide, before intervals are.
const FIRST_OUT: [BenchColumn; 4] =
    [BenchColumn::Fragmentation, BenchColumn::NsPerOp, BenchColumn::User, BenchColumn::System];
/// Left out after the intervals.
const LAST_OUT: [BenchColumn; 4] =
    [BenchColumn::Wall, BenchColumn::Cpu, BenchColumn::Mean, BenchColumn::Peak];

impl BenchLayout {
    /// The ways to lay the table out, widest first. Columns that were named all stay.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        let is_named = !self.columns.is_empty();
        let columns = if is_named { self.columns.clone() } else { USUAL.to_vec() };
        let mut last = Attempt { columns, with_intervals: true, verdict: None };
        let mut attempts = vec![last.clone()];
        let mut then = |change: &dyn Fn(&mut Attempt)| {
            change(&mut last);
            attempts.push(last.clone());
        };
        let without = |out: BenchColumn| move |to: &mut Attempt| to.columns.retain(|column| *column != out);
        if !is_named {
            FIRST_OUT.iter().for_each(|out| then(&without(*out)));
        }
        then(&|to| to.verdict = Some(WRAPPED_VERDICT));
        then(&|to| to.with_intervals = false);
        then(&|to| to.verdict = Some(NARROW_VERDICT));
        if !is_named {
            LAST_OUT.iter().for_each(|out| then(&without(*out)));
        }
        attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_the_answer_are_left_out_last() {
        let attempts = BenchLayout::default().attempts();
        assert_eq!(attempts[0].columns, USUAL);
        let least = [BenchColumn::CpuChange, BenchColumn::MeanChange, BenchColumn::Verdict];
        assert_eq!(attempts.last().unwrap().columns, least);
        let named = BenchLayout { columns: vec![BenchColumn::Wall], ..BenchLayout::default() };
        assert!(named.attempts().iter().all(|attempt| attempt.columns == [BenchColumn::Wall]));
    }
}
