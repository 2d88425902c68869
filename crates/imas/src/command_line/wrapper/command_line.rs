// SPDX-License-Identifier: Apache-2.0
//! Beginning of the command on the command line of a wrapper: after the wrapper's options and its own
//! operands.
//!
//! `env [-i] [-u NAME] [NAME=VALUE]... COMMAND`: what it changes, without running it.
//!
//! `sh -c TEXT` where the text is one simple command: the shell then replaces itself by that command.
//!
//! Shims of pyenv, rbenv and their kind: a script that asks the manager which program is meant and execs it. The
//! managers run hook scripts before that exec; ours puts `imas run` before the program.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use imas_linux::environment::Variables;
use imas_linux::page;
use imas_linux::program::find;

use super::{Inner, is_elf, path_of};

/// Grammar of a wrapper's own words.
struct Grammar {
    names: &'static [&'static str],
    /// Letters of the options that have a value.
    valued: &'static str,
    /// Letters of the options that have no value.
    flags: &'static str,
    /// Long options without a value; those with one are written `--name=value`.
    long: &'static [&'static str],
    /// Words of its own before the command.
    operands: usize,
}

const fn grammar(
    names: &'static [&'static str],
    valued: &'static str,
    flags: &'static str,
    long: &'static [&'static str],
    operands: usize,
) -> Grammar {
    Grammar { names, valued, flags, long, operands }
}

/// Programs of coreutils, util-linux and the like: all are found to be ELF files before they are taken for
/// what they are called.
const GRAMMARS: [Grammar; 13] = [
    grammar(&["nice"], "n", "0123456789", &[], 0),
    grammar(&["nohup"], "", "", &[], 0),
    grammar(&["ionice"], "cn", "t", &["--ignore"], 0),
    grammar(&["chrt"], "TPD", "abdfimorRv", &["--batch", "--fifo", "--idle", "--other", "--rr"], 1),
    grammar(&["taskset"], "", "c", &["--cpu-list"], 1),
    grammar(&["setsid"], "", "cfw", &["--ctty", "--fork", "--wait"], 0),
    grammar(&["stdbuf"], "ioe", "", &[], 0),
    grammar(&["timeout"], "ks", "v", &["--foreground", "--preserve-status", "--verbose"], 1),
    grammar(&["time"], "fo", "apqv", &["--append", "--portability", "--quiet", "--verbose"], 0),
    grammar(&["numactl"], "imNCp", "al", &["--all", "--localalloc"], 0),
    grammar(&["prlimit"], "", "", &[], 0),
    grammar(&["xargs"], "IELnPsda", "0rtx", &["--null", "--no-run-if-empty", "--verbose", "--exit"], 0),
    grammar(&["tini", "dumb-init", "catatonit", "dbus-run-session"], "", "sgcv", &[], 0),
];

/// The number of the word at which the command begins; None for what is no wrapper, or is called in a way
/// that is not known here.
pub(super) fn command_at(file: &Path, is_elf: bool, words: &[OsString]) -> Option<usize> {
    let name = file.file_name()?.to_str()?;
    if matches!(name, "bundle" | "bundler") {
        let plain = words.get(2)?.to_str().is_some_and(|word| !word.starts_with('-'));
        return (words.get(1)? == "exec" && plain).then_some(2);
    }
    let grammar = GRAMMARS.iter().find(|grammar| is_elf && grammar.names.contains(&name))?;
    let at = grammar.options_end(words)? + grammar.operands;
    (at < words.len()).then_some(at)
}

impl Grammar {
    fn options_end(&self, words: &[OsString]) -> Option<usize> {
        let mut at = 1;
        while let Some(text) = words.get(at).map(|word| word.to_str().unwrap_or_default()) {
            if text == "--" {
                return Some(at + 1);
            }
            if !text.starts_with('-') || text == "-" {
                return Some(at);
            }
            at += self.length_of(text)?;
        }
        None
    }

    /// Number of words that the option is.
    fn length_of(&self, option: &str) -> Option<usize> {
        if option.starts_with("--") {
            return (self.long.contains(&option) || option.contains('=')).then_some(1);
        }
        let mut letters = option[1..].chars();
        while let Some(letter) = letters.next() {
            if self.valued.contains(letter) {
                return Some(if letters.as_str().is_empty() { 2 } else { 1 });
            }
            if !self.flags.contains(letter) {
                return None;
            }
        }
        Some(1)
    }
}

/// The command that remains after every leading `env`, and its environment. An `env` with other options
/// stays.
pub(super) fn taken_off_env(words: &[OsString], environment: Variables) -> (Vec<OsString>, Variables) {
    let mut state = (words.to_vec(), environment);
    while let Some(next) = one(&state.0, &state.1) {
        state = next;
    }
    state
}

fn one(words: &[OsString], environment: &Variables) -> Option<(Vec<OsString>, Variables)> {
    let file = find(words.first()?, path_of(environment)).ok()?;
    if file.file_name() != Some(OsStr::new("env")) || !is_elf(&file) {
        return None;
    }
    let mut environment = environment.clone();
    let mut rest = options(&words[1..], &mut environment)?;
    while let Some((name, value)) = rest.first().and_then(|word| assignment(word)) {
        environment.insert(name, value);
        rest = &rest[1..];
    }
    (!rest.is_empty()).then(|| (rest.to_vec(), environment))
}

/// Applies the options; None where one is not known here.
fn options<'a>(mut words: &'a [OsString], environment: &mut Variables) -> Option<&'a [OsString]> {
    while let Some(word) = words.first().filter(|word| word.as_bytes().starts_with(b"-")) {
        let text = word.to_str()?;
        words = &words[1..];
        match text {
            "--" => break,
            "-" | "-i" | "--ignore-environment" => environment.clear(),
            "-u" | "--unset" => {
                environment.remove(words.first()?);
                words = &words[1..];
            }
            _ => {
                let name = text.strip_prefix("--unset=").or_else(|| text.strip_prefix("-u"))?;
                environment.remove(OsStr::new(name));
            }
        }
    }
    Some(words)
}

fn assignment(word: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
    Some((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
}

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
pub(super) fn inner_of_shell(words: &[OsString], environment: &Variables) -> Option<Inner> {
    let option = words.get(1)?.to_str()?.strip_prefix('-')?;
    let others = option.strip_suffix('c')?;
    // With -x the shell shows what it starts, with -i it is not one that only starts something.
    if !others.chars().all(|letter| "eulf".contains(letter)) {
        return None;
    }
    let code = words.get(2)?.to_str()?;
    let byte = shell_command_at(code)?;
    let name = first_word(&code[byte..])?;
    let function = format!("BASH_FUNC_{name}%%");
    if OWN.contains(&name) || environment.contains_key(OsStr::new(&function)) {
        return None;
    }
    find(OsStr::new(name), path_of(environment)).ok()?;
    Some(Inner::Code { word: 2, byte })
}

/// Offset at which the command begins, in bytes, if the text is one simple command.
fn shell_command_at(code: &str) -> Option<usize> {
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

/// The words to put before the program, for our hook; it unsets this.
const WORDS: &str = "IMAS_SHIM_WORDS";
/// The folder of our hook, which it takes out of the manager's list again.
const FOLDER: &str = "IMAS_SHIM_FOLDER";

/// The hook: PREFIX stands for the manager's name in capitals. It is sourced by the manager, whose `$1` is
/// the program's name.
const HOOK: &str = r#"# Written by 'imas run': puts it before the program that PREFIX starts.
if [ -n "$IMAS_SHIM_WORDS" ]; then
  eval "imas_words=($IMAS_SHIM_WORDS)"
  set -- "$1" "${imas_words[@]:1}" "$PREFIX_COMMAND_PATH" "${@:2}"
  PREFIX_COMMAND_PATH="${imas_words[0]}"
  PREFIX_HOOK_PATH="${PREFIX_HOOK_PATH#"$IMAS_SHIM_FOLDER:"}"
  unset IMAS_SHIM_WORDS IMAS_SHIM_FOLDER imas_words
fi
"#;

/// Beginning of the names of the manager's variables, if the file is a shim: `PYENV`.
pub(super) fn shim_prefix(file: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(2048).read_to_string(&mut text).ok()?;
    let last = text.starts_with("#!").then(|| text.lines().rfind(|line| !line.trim().is_empty()))??;
    let manager = last.strip_prefix("exec \"")?.strip_suffix("\" exec \"$program\" \"$@\"")?;
    let name = Path::new(manager).file_name()?.to_str()?;
    let is_plain = name.ends_with("env") && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_plain.then(|| name.to_ascii_uppercase())
}

/// Writes the hook and has the manager find it before all others.
pub(super) fn shim_set(prefix: &str, launcher: &str, environment: &mut Variables) -> Option<()> {
    let folder = write(prefix).ok()?;
    let list: OsString = format!("{prefix}_HOOK_PATH").into();
    let mut hooks = folder.clone().into_os_string();
    if let Some(old) = environment.get(&list).filter(|old| !old.is_empty()) {
        hooks.push(":");
        hooks.push(old);
    }
    environment.insert(list, hooks);
    environment.insert(WORDS.into(), launcher.into());
    environment.insert(FOLDER.into(), folder.into());
    Some(())
}

/// The folder with the hook, beside the trial pages, where this user alone can write.
fn write(prefix: &str) -> Result<PathBuf, page::PageFileError> {
    let folder = page::folder()?.join(prefix.to_ascii_lowercase());
    let exec = folder.join("exec");
    page::private_folder(&folder)?;
    page::private_folder(&exec)?;
    let (file, text) = (exec.join("imas.bash"), HOOK.replace("PREFIX", prefix));
    if std::fs::read(&file).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(folder);
    }
    let io = |error| page::PageFileError::Io { path: file.clone(), error };
    let written = exec.join(format!("{}.new", std::process::id()));
    std::fs::write(&written, text).map_err(io)?;
    std::fs::rename(&written, &file).map_err(io)?;
    Ok(folder)
}
