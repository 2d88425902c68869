// SPDX-License-Identifier: Apache-2.0
//! Replaces `$PORT` and the other variables in words that no shell reads.

use std::ffi::OsStr;

use imas_linux::environment::Variables;

/// The text with `$NAME` and `${NAME}` replaced for each name in `names`. All else stays.
pub(crate) fn expand(text: &str, variables: &Variables, names: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, length) = name_at(after);
        let value = names.contains(&name).then(|| variables.get(OsStr::new(name))).flatten();
        match value {
            Some(value) => out.push_str(&value.to_string_lossy()),
            None => out.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    out + rest
}

/// The name at the beginning, and its length in the text with the braces.
fn name_at(text: &str) -> (&str, usize) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inner) = text.strip_prefix('{')
        && let Some(end) = inner.find('}')
    {
        return (&inner[..end], end + 2);
    }
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    (&text[..end], end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_replaced() {
        let variables = Variables::from([("PORT".into(), "80".into()), ("HOME".into(), "/h".into())]);
        let of = |text: &str| expand(text, &variables, &["PORT", "WORK"]);
        assert_eq!(of("--port=$PORT"), "--port=80");
        assert_eq!(of("a${PORT}b $HOME $PORTS ${WORK} $ 5$"), "a80b $HOME $PORTS ${WORK} $ 5$");
    }
}
