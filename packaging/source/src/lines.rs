// SPDX-License-Identifier: Apache-2.0
//! Lines of code: lines with code on them. Comments, documentation, blank lines and tests do not count.

use std::collections::BTreeSet;

use anyhow::Result;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use crate::file::SourceFile;
use crate::tests_of;

/// How many lines of code the file has.
pub(crate) fn of_code(file: &SourceFile) -> Result<usize> {
    let tokens: TokenStream =
        file.text.parse().map_err(|error: proc_macro2::LexError| anyhow::anyhow!("{error}"))?;
    let mut lines = BTreeSet::new();
    add(tokens, &mut lines);
    for tests in tests_of::lines(file) {
        lines.retain(|line| !tests.contains(line));
    }
    Ok(lines.len())
}

fn add(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(length) = documentation(&tokens[at..]) {
            at += length;
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => {
                lines.extend(touched(group.span_open()));
                add(group.stream(), lines);
                lines.extend(touched(group.span_close()));
            }
            token => lines.extend(touched(token.span())),
        }
        at += 1;
    }
}

fn touched(span: Span) -> std::ops::RangeInclusive<usize> {
    span.start().line..=span.end().line
}

/// How many tokens a documentation comment is; `None` if there is none. The lexer makes `#[doc = "..."]` of
/// `/// ...`.
fn documentation(tokens: &[TokenTree]) -> Option<usize> {
    let is =
        |at: usize, sign| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
    if !is(0, '#') {
        return None;
    }
    let at = if is(1, '!') { 2 } else { 1 };
    let Some(TokenTree::Group(group)) = tokens.get(at) else { return None };
    let first = group.stream().into_iter().next();
    let is_doc = matches!(&first, Some(TokenTree::Ident(name)) if name == "doc");
    (group.delimiter() == Delimiter::Bracket && is_doc).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn comments_blank_lines_and_tests_are_no_code() {
        let count = |text: &str| of_code(&parsed(text)).unwrap();
        assert_eq!(count("//! Head.\n\n// why\nfn a() {\n    /* more */\n    b(); // c\n}\n"), 3);
        assert_eq!(count("/// One\n/// two.\nstruct A;\n"), 1);
        assert_eq!(count("const A: &str = \"one\n\nthree\";\n"), 3, "a string's lines are code");
        assert_eq!(count("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"), 1);
        assert_eq!(count("#[derive(Debug)]\nstruct A {\n    /// Field.\n    b: u8,\n}\n"), 4);
    }
}
