// SPDX-License-Identifier: Apache-2.0
//! Text of others, made safe for a terminal: names of files and programs may hold anything but a slash and a
//! NUL.

use std::borrow::Cow;
use std::fmt::Display;

/// A name in one line: whatever steers a terminal, ends a line or turns the direction of writing is escaped
/// as in Rust: `\u{1b}`, `\n`.
#[must_use]
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_default().to_string(), &[])
}

/// Text of several lines: line ends and tabs stay.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_default().to_string(), &['\n', '\t'])
}

/// JSON as it was made: outside its strings there is nothing to escape, and in them this means the same
/// character.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, |c| format!("\\u{:04x}", u32::from(c)), &['\n', '\t', '\r'])
}

fn escaped<'t>(text: &'t str, escape: impl Fn(char) -> String, kept: &[char]) -> Cow<'t, str> {
    let steers = |c: char| is_unsafe(c) && !kept.contains(&c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let push = |mut made: String, c: char| {
        if steers(c) {
            made.push_str(&escape(c))
        } else {
            made.push(c)
        }
        made
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), push))
}

/// Control characters (C0, DEL, C1), separators of lines and paragraphs, and what changes the direction of
/// writing. None is above U+FFFF.
fn is_unsafe(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_scripts_are_not() {
        assert_eq!(name("x\u{1b}]0;pwned\u{7}a"), "x\\u{1b}]0;pwned\\u{7}a");
        assert_eq!(name("a\nb\tc\rd\u{7f}"), "a\\nb\\tc\\rd\\u{7f}");
        assert_eq!(name("c1 \u{9b}2J, bidi \u{202e}gpj\u{2069}"), "c1 \\u{9b}2J, bidi \\u{202e}gpj\\u{2069}");
        assert_eq!(text("a\n\tb\u{1b}[2J\r"), "a\n\tb\\u{1b}[2J\\r");
        for fine in ["/usr/bin/python3.11", "/home/ä/日本語 🙂", "עברית", "C:\\x", ""] {
            assert!(matches!(name(fine), Cow::Borrowed(same) if same == fine));
        }
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left_and_json_keeps_its_meaning(any in any::<String>()) {
            prop_assert!(!name(&any).contains(is_unsafe));
            let json_text = serde_json::to_string(&any).unwrap();
            let shown = json(&json_text);
            prop_assert!(!shown.contains(is_unsafe));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), any);
        }
    }

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
