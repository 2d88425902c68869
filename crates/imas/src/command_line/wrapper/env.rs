// SPDX-License-Identifier: Apache-2.0
//! `env [-i] [-u NAME] [NAME=VALUE]... COMMAND`: what it changes, without running it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use imas_linux::environment::Variables;
use imas_linux::program::find;

use super::{is_elf, path_of};

/// The command that remains after every leading `env`, and its environment. An `env` with other options
/// stays.
pub(super) fn taken_off(words: &[OsString], environment: Variables) -> (Vec<OsString>, Variables) {
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
