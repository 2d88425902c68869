// SPDX-License-Identifier: Apache-2.0
//! `sh -c TEXT` where the text is one simple command: the shell then replaces itself by that command.

use std::ffi::{OsStr, OsString};

use imas_linux::environment::Variables;
use imas_linux::program::find;

use super::{Inner, path_of};

/// Words with which a command of the shell's own begins, or something that is not one simple command.
const OWN: [&str; 62] = [
    "!", "[", "[[", "alias", "bg", "bind", "break", "builtin", "case", "cd", "command", "continue",
    "declare", "dirs", "do", "echo", "enable", "eval", "exit", "export", "false", "fc", "fg", "for",
    "function", "getopts", "hash", "help", "history", "if", "jobs", "kill", "let", "local", "logout", "popd",
    "printf", "print", "pushd", "pwd", "read", "readonly", "return", "select", "set", "shift", "shopt",
    "source", "suspend", "test", "time", "times", "trap", "true", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "until", "while",
];

/// The command in the text of `sh -c TEXT`.
pub(super) fn inner(words: &[OsString], environment: &Variables) -> Option<Inner> {
    let option = words.get(1)?.to_str()?.strip_prefix('-')?;
    let others = option.strip_suffix('c')?;
    // With -x the shell shows what it starts, with -i it is not one that only starts something.
    if !others.chars().all(|letter| "eulf".contains(letter)) {
        return None;
    }
    let code = words.get(2)?.to_str()?;
    let byte = command_at(code)?;
    let name = first_word(&code[byte..])?;
    let function = format!("BASH_FUNC_{name}%%");
    if OWN.contains(&name) || environment.contains_key(OsStr::new(&function)) {
        return None;
    }
    find(OsStr::new(name), path_of(environment)).ok()?;
    Some(Inner::Code { word: 2, byte })
}

/// Offset at which the command begins, in bytes, if the text is one simple command.
fn command_at(code: &str) -> Option<usize> {
    let body = code.trim_start();
    let command = match body.strip_prefix("exec") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => body,
    };
    is_one_command(command.trim_end()).then(|| code.len() - command.len())
}

/// The first word, if it is written out.
fn first_word(command: &str) -> Option<&str> {
    let word = command.split([' ', '\t']).next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./+-[!".contains(&byte);
    (!word.is_empty() && word.bytes().all(plain)).then_some(word)
}

/// Nothing in it ends the command, begins another one, or runs one for its output.
fn is_one_command(text: &str) -> bool {
    let mut signs = text.chars().peekable();
    let mut quote = None;
    let mut previous = ' ';
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => {
                if signs.next().is_none_or(|escaped| escaped == '\n') {
                    return false;
                }
            }
            (_, '`') => return false,
            (_, '$') if signs.peek() == Some(&'(') => return false,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(sign),
            (None, '&') if matches!(previous, '>' | '<') => {}
            (None, ';' | '&' | '|' | '(' | ')' | '\n' | '#') => return false,
            (None, '<') if signs.peek() == Some(&'<') => return false,
            (None, _) => {}
        }
        previous = sign;
    }
    quote.is_none() && !text.is_empty()
}
