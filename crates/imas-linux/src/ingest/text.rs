// SPDX-License-Identifier: Apache-2.0
//! Strings of a page: fixed fields, closed by a NUL.

use crate::ingest::error::{PageError, TextProblem};

/// Bytes before the closing NUL. What follows it is not read.
fn closed<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], PageError> {
    let end = bytes.iter().position(|&byte| byte == 0);
    end.map(|end| &bytes[..end]).ok_or_else(|| problem(field, TextProblem::Unterminated))
}

fn problem(field: &'static str, problem: TextProblem) -> PageError {
    PageError::Text { field, problem }
}

/// Name of a file, or words of a command line: they may hold anything but a NUL. Bytes that are not UTF-8 are replaced.
/// Whoever prints it escapes it, as every name of a program.
pub(crate) fn any(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    Ok(String::from_utf8_lossy(closed(field, bytes)?).into_owned())
}

/// Free text for people: as [`any`], and control characters are refused.
pub(crate) fn free(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = any(field, bytes)?;
    if text.chars().any(char::is_control) {
        return Err(problem(field, TextProblem::Control));
    }
    Ok(text)
}

/// An absolute path, never empty.
pub(crate) fn path(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = any(field, bytes)?;
    match text.bytes().next() {
        None => Err(problem(field, TextProblem::Empty)),
        Some(b'/') => Ok(text),
        Some(_) => Err(problem(field, TextProblem::NotAbsolute)),
    }
}

/// Letters, digits and `. _ : + - @`, never empty: names of candidates and trials.
pub(crate) fn name(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = of(field, bytes, |byte| byte.is_ascii_alphanumeric() || b"._:+-@".contains(&byte))?;
    if text.is_empty() { Err(problem(field, TextProblem::Empty)) } else { Ok(text) }
}

/// Hexadecimal digits and dashes, or empty: build-ids and boot ids.
pub(crate) fn hex(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    of(field, bytes, |byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn of(field: &'static str, bytes: &[u8], may: impl Fn(u8) -> bool) -> Result<String, PageError> {
    let bytes = closed(field, bytes)?;
    if bytes.iter().all(|&byte| may(byte)) {
        Ok(bytes.iter().copied().map(char::from).collect())
    } else {
        Err(problem(field, TextProblem::Charset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result<String, PageError>) -> TextProblem {
        match result {
            Err(PageError::Text { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_after_the_nul_are_ignored() {
        assert_eq!(name("f", b"jemalloc:mem\0\x01junk").unwrap(), "jemalloc:mem");
        assert_eq!(hex("f", b"\0zz").unwrap(), "");
        assert_eq!(path("f", b"/usr/bin/python3.11\0").unwrap(), "/usr/bin/python3.11");
    }

    #[test]
    fn each_problem_of_a_text_is_reported() {
        assert_eq!(why(free("f", b"open")), TextProblem::Unterminated);
        assert_eq!(why(free("f", b"")), TextProblem::Unterminated);
        assert_eq!(why(free("f", b"a\x1b[31m\0")), TextProblem::Control);
        assert_eq!(why(free("f", "a\u{85}b\0".as_bytes())), TextProblem::Control);
        assert_eq!(why(path("f", b"\0")), TextProblem::Empty);
        assert_eq!(why(path("f", b"bin/true\0")), TextProblem::NotAbsolute);
        assert_eq!(why(name("f", b"\0")), TextProblem::Empty);
        assert_eq!(why(name("f", b"../x\0")), TextProblem::Charset);
        assert_eq!(why(hex("f", b"xyz\0")), TextProblem::Charset);
    }

    #[test]
    fn names_of_files_may_hold_control_characters() {
        assert_eq!(path("f", b"/opt/a\nb\0").unwrap(), "/opt/a\nb");
        assert_eq!(any("f", b"-c a\x1b\tb\0").unwrap(), "-c a\x1b\tb");
        assert_eq!(why(any("f", b"open")), TextProblem::Unterminated);
    }

    #[test]
    fn paths_that_are_not_utf8_are_kept_readable() {
        assert_eq!(path("f", b"/opt/caf\xe9\0").unwrap(), "/opt/caf\u{fffd}");
    }
}
