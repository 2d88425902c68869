// SPDX-License-Identifier: Apache-2.0
//! Doc comments that do not name what they describe: a reader would have to look at the item before.

use std::collections::BTreeMap;

use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use crate::file::SourceFile;

/// First words of a comment whose noun is in another comment.
const WITHOUT: [&str; 5] = ["As ", "By ", "Of ", "The same", "Those"];

/// A line for each doc comment that begins with such a word.
pub(crate) fn missing(file: &SourceFile) -> Vec<String> {
    let mut comments = Comments::default();
    comments.visit_file(&file.syntax);
    let lines = &comments.0;
    let begins = |line: &usize| line.checked_sub(1).is_none_or(|before| !lines.contains_key(&before));
    let wrong = |text: &str| WITHOUT.iter().any(|word| text.trim_start().starts_with(word));
    lines
        .iter()
        .filter(|(line, text)| begins(line) && wrong(text))
        .map(|(line, text)| format!("{}:{line}: a doc comment names its noun:{text}", file.path.display()))
        .collect()
}

/// The text of each line of doc comments, by the line's number.
#[derive(Default)]
struct Comments(BTreeMap<usize, String>);

impl<'ast> Visit<'ast> for Comments {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value
        {
            self.0.insert(attribute.span().start().line, text.value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn the_first_line_of_a_comment_counts() {
        let lines = |text: &str| missing(&parsed(text)).len();
        assert_eq!(lines("/// Those.\nstruct A;"), 1);
        assert_eq!(lines("struct A {\n/// Of the same: less.\nb: u8,\n}"), 1);
        assert_eq!(lines("/// The bytes of the page,\n/// as the kernel counts them.\nstruct A;"), 0);
        assert_eq!(lines("/// The bytes.\n/// Of all pages.\nstruct A;\n// By hand.\nstruct B;"), 0);
    }
}
