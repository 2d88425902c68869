// SPDX-License-Identifier: Apache-2.0
//! Size of the code and of its functions.

use std::collections::BTreeMap;

use serde::Serialize;
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::file::SourceFile;
use crate::{lines, names, tests_of};

/// Longest function that is not counted as long.
const LONG: usize = 60;

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    files: usize,
    code_lines: usize,
    /// By the path from the folder.
    code_lines_by_file: BTreeMap<String, usize>,
    functions: usize,
    function_lines_median: usize,
    function_lines_p90: usize,
    function_lines_max: usize,
    /// File and line of the longest function.
    longest_function: String,
    functions_over_60_percent: f64,
    duplicate_type_names: usize,
}

/// Of production code.
pub(crate) fn of(files: &[SourceFile]) -> anyhow::Result<Figures> {
    let mut functions: Vec<(usize, String)> = files.iter().flat_map(functions).collect();
    functions.sort();
    let lengths: Vec<usize> = functions.iter().map(|(lines, _)| *lines).collect();
    let lines_of = |file: &SourceFile| Ok((file.path.display().to_string(), lines::of_code(file)?));
    let code = files.iter().map(lines_of).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    Ok(Figures {
        files: files.len(),
        code_lines: code.values().sum(),
        code_lines_by_file: code,
        functions: lengths.len(),
        function_lines_median: percentile(&lengths, 50),
        function_lines_p90: percentile(&lengths, 90),
        function_lines_max: percentile(&lengths, 100),
        longest_function: functions.last().map(|(_, place)| place.clone()).unwrap_or_default(),
        functions_over_60_percent: percent_over(&lengths, LONG),
        duplicate_type_names: names::duplicates(files).len(),
    })
}

/// The nearest rank of sorted lengths.
fn percentile(sorted: &[usize], percent: usize) -> usize {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of functions")]
fn percent_over(lengths: &[usize], bound: usize) -> f64 {
    let over = lengths.iter().filter(|length| **length > bound).count();
    100.0 * over as f64 / lengths.len().max(1) as f64
}

/// Length and place of each function, from its first word to its closing brace.
fn functions(file: &SourceFile) -> Vec<(usize, String)> {
    let mut found = Functions { file, lengths: vec![] };
    found.visit_file(&file.syntax);
    let tests = tests_of::lines(file);
    found.lengths.retain(|(first, ..)| !tests.iter().any(|lines| lines.contains(first)));
    found.lengths.into_iter().map(|(_, length, place)| (length, place)).collect()
}

struct Functions<'file> {
    file: &'file SourceFile,
    lengths: Vec<(usize, usize, String)>,
}

impl Functions<'_> {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        self.lengths.push((first, last - first + 1, self.file.place(signature.span())));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn functions_are_counted_from_their_first_word_to_their_last_brace() {
        let text = "/// Doc.\n#[inline]\npub fn a(\n    b: u8,\n) {\n    fn c() {}\n}\ntrait T {\n    fn d();\n    fn e() {\n    }\n}\n\
                    #[test]\nfn f() {\n}\nimpl S {\n    fn g() {}\n}\n";
        let mut lengths: Vec<_> = functions(&parsed(text)).into_iter().map(|(length, _)| length).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [1, 1, 2, 5]);
        let figures = of(&[parsed(text)]).unwrap();
        assert_eq!((figures.functions, figures.function_lines_median, figures.function_lines_max), (4, 1, 5));
        assert_eq!(figures.longest_function, "x/src/lib.rs:3");
        assert_eq!(figures.code_lines_by_file["x/src/lib.rs"], figures.code_lines);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let ten: Vec<usize> = (1..=10).collect();
        assert_eq!([50, 90, 100].map(|percent| percentile(&ten, percent)), [5, 9, 10]);
        assert_eq!(percentile(&[], 50), 0);
        assert!((percent_over(&ten, 8) - 20.0).abs() < 1e-9);
    }
}
