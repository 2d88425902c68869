// SPDX-License-Identifier: Apache-2.0
//! How a file changes.

use std::fmt::Write as _;

use similar::ChangeTag;
use similar::algorithms::{Capture, Replace, lcs};
use similar::udiff::UnifiedHunkHeader;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The difference of two texts as `diff -u` prints it, with this name; an empty text is `/dev/null`.
///
/// `similar::TextDiff` does the same, but has all algorithms compiled for all its wrappers: 0.6 MB in `imas`.
#[must_use]
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<&str>>();
    let (old, new) = (lines(old), lines(new));
    let shown = |lines: &[&str]| if lines.is_empty() { "/dev/null".to_owned() } else { name.to_owned() };
    let mut text = format!("--- {}\n+++ {}\n", shown(&old), shown(&new));
    let mut capture = Replace::new(Capture::new());
    // The capture accepts all that it is given.
    let _ = lcs::diff_deadline_raw(&mut capture, &old[..], 0..old.len(), &new[..], 0..new.len(), None);
    for hunk in similar::group_diff_ops(capture.into_inner().into_ops(), CONTEXT) {
        let _ = writeln!(text, "{}", UnifiedHunkHeader::new(&hunk)); // a string takes all
        for change in hunk.iter().flat_map(|op| op.iter_changes(&old[..], &new[..])) {
            text.push(match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            });
            text.push_str(change.value());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_has_no_old_file() {
        assert_eq!(unified("a", "", "x\n"), "--- /dev/null\n+++ a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(unified("a", "x\n", ""), "--- a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert_eq!(unified("a", "x\n", "y\n"), "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n");
    }

    #[test]
    fn three_lines_around_a_change_are_shown() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\nfive and a half\n");
        let wanted = "--- a\n+++ a\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+five and a half\n 6\n 7\n 8\n";
        assert_eq!(unified("a", old, &new), wanted);
    }
}
