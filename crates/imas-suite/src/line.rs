// SPDX-License-Identifier: Apache-2.0
//! From a command line to words, without a shell where none is needed.

/// Characters that mean something to a shell.
const SPECIAL: &str = "|&;<>()$`\\\"'*?[]#~=%!{}\n";

/// The words to exec: the line's own when no character in it is special to a shell, else `sh -c` of the line.
///
/// A shell in between would cost a millisecond of every run and, while it waits, memory under the candidate that is not the
/// program's. dash execs the last command of a line, so that even then nothing of it stays. None for an empty line or an open quote.
#[must_use]
pub fn words(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line).filter(|words| !words.is_empty())?;
    if line.contains(|c| SPECIAL.contains(c)) {
        return Some(vec!["sh".to_owned(), "-euc".to_owned(), line.to_owned()]);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_shell_only_where_it_is_needed() {
        assert_eq!(words("gcc -O2 a.c").unwrap(), ["gcc", "-O2", "a.c"]);
        assert_eq!(words("a | b").unwrap(), ["sh", "-euc", "a | b"]);
        assert_eq!(words("echo $PORT").unwrap()[0], "sh");
        assert_eq!(words("  "), None);
        assert_eq!(words("a 'b"), None);
    }
}
