// SPDX-License-Identifier: Apache-2.0
//! Splits a command line into words, without a shell where none is needed.

/// Characters that a shell expands, also within double quotes.
const EXPANDED: &str = "$`";
/// Characters that are special to a shell outside of quotes.
const BARE: &str = "*?[]~#!{}<>";
/// Characters that join several commands into one line.
const JOINING: &str = "|&;()\n";
/// First words that cannot be given to `exec`.
const OF_THE_SHELL: [&str; 19] = [
    "for", "while", "until", "if", "case", "cd", "exec", "set", "export", "ulimit", "umask", "!", ".", "{",
    "eval", "trap", "unset", "wait", "read",
];

/// Means that are needed to run a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Takes {
    /// Splitting into words and removing quotes.
    Words,
    /// A shell that expands the words and then replaces itself by the command.
    Expansion,
    /// A shell that waits for its commands.
    Shell,
}

/// The words to exec: the line's own if only quotes must be removed, else `sh -c` with the line.
/// None for an empty line or an open quote.
///
/// A shell in between has three costs. It adds a millisecond to every run. While it waits, it uses memory
/// under the candidate that is not the program's. Signals end the shell in place of a server. dash does not
/// exec the last command of a line by itself, so a line with a single command is passed to it after `exec`.
#[must_use]
pub fn words(line: &str) -> Option<Vec<String>> {
    let words = shell_words::split(line).ok().filter(|words| !words.is_empty())?;
    let first = words[0].as_str();
    let is_command = !first.contains('=') && !OF_THE_SHELL.contains(&first);
    let shell = |line: String| Some(vec!["sh".to_owned(), "-euc".to_owned(), line]);
    match takes(line) {
        Takes::Words if is_command => Some(words),
        Takes::Words | Takes::Expansion if is_command => shell(format!("exec {line}")),
        _ => shell(line.to_owned()),
    }
}

fn takes(line: &str) -> Takes {
    let mut takes = Takes::Words;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let needs = match (quote, c) {
            (Some('\''), c) | (Some('"'), c @ '"') => {
                if quote == Some(c) {
                    quote = None;
                }
                continue;
            }
            (_, '\\') => {
                chars.next();
                continue;
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                continue;
            }
            (_, c) if EXPANDED.contains(c) => Takes::Expansion,
            (None, c) if JOINING.contains(c) => Takes::Shell,
            (None, c) if BARE.contains(c) => Takes::Expansion,
            _ => continue,
        };
        takes = takes.max(needs);
    }
    takes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_only_where_it_is_needed() {
        assert_eq!(words("gcc -O2 a.c").unwrap(), ["gcc", "-O2", "a.c"]);
        assert_eq!(
            words("sqlite3 '.read $a' --b=c \"d e\" f\\ g").unwrap(),
            ["sqlite3", ".read $a", "--b=c", "d e", "f g"]
        );
        assert_eq!(words("a | b").unwrap(), ["sh", "-euc", "a | b"]);
        for line in ["echo $PORT", "echo \"$PORT\"", "cat *.c", "sort <a >b"] {
            assert_eq!(words(line).unwrap(), ["sh", "-euc", &format!("exec {line}")]);
        }
        for line in ["A=1 b $c", "cd $HOME", "exec b $c", "a; b", "for i in 1 2\ndo a $i\ndone", "a 2>&1"] {
            assert_eq!(words(line).unwrap(), ["sh", "-euc", line]);
        }
        assert_eq!(words("  "), None);
        assert_eq!(words("a 'b"), None);
    }

    #[test]
    fn a_shell_that_is_needed_for_words_alone_does_not_stay() {
        let words = words("sh -c 'echo $PPID' \"$0\"").unwrap();
        let ran = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let parent: u32 = String::from_utf8(ran.stdout).unwrap().trim().parse().unwrap();
        assert_eq!(parent, std::process::id());
    }

    /// A shell splits each line of the suite into the same words.
    #[test]
    fn every_line_of_the_suite_is_understood() {
        let suite = include_str!("../../workloads/suite.toml");
        let suite: toml::Value = toml::from_str(suite).unwrap();
        let programs = suite["program"].as_array().unwrap();
        let lines = programs.iter().map(|program| program["command"].as_str().unwrap());
        let (mut direct, mut gone) = (0, 0);
        for line in lines {
            let words = words(line).unwrap();
            match words.as_slice() {
                [sh, _, script] if sh == "sh" && words[1] == "-euc" => {
                    gone += usize::from(script.starts_with("exec "));
                }
                words => {
                    assert_eq!(Ok(words.to_vec()), shell_words::split(line));
                    direct += 1;
                }
            }
        }
        assert!(direct > 150 && gone > 3, "{direct} {gone}");
    }
}
