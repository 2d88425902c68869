// SPDX-License-Identifier: Apache-2.0
//! Verbs that are programs of their own beside `imas`: what they need (a terminal, a web server) would make
//! every start of `imas` slower.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command_line::cli::Places;
use imas_cli::message::Hinted;

/// Runs the program of that name that lies beside `imas`, in place of this process. The words of the command
/// line that name store and libraries go before `words`.
pub(crate) fn run(name: &str, places: &Places, words: &[OsString]) -> Result<Infallible> {
    let own = std::env::current_exe().context("cannot find out where imas itself is")?;
    let program = beside(&own, name);
    let error = Command::new(&program).args(options(places)).args(words).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => Hinted::error(
            format!("{name} is missing: there is no {}", program.display()),
            "it belongs to the package imas: install that again, or in the source tree run 'make build'",
        ),
        _ => Hinted::error(
            format!("{}: {error}", program.display()),
            "it belongs to the package imas: installing that again puts it right",
        ),
    })
}

fn beside(own: &Path, name: &str) -> PathBuf {
    own.with_file_name(name)
}

/// The options given before the verb. Variables of the environment are inherited as they are.
fn options(places: &Places) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec![];
    let mut add = |option: &str, value: Option<OsString>| {
        options.extend(value.map(|value| [OsString::from(option), value]).into_iter().flatten());
    };
    add("--lib-dir", places.lib_dir.clone().map(PathBuf::into_os_string));
    add("--store", places.store.clone().filter(|_| places.store_named).map(PathBuf::into_os_string));
    add("--retest", places.retest.map(|seconds| seconds.to_string().into()));
    options.extend(places.system.then(|| "--system".into()));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_verb_are_passed_on_and_the_environment_is_not_repeated() {
        let places = Places {
            lib_dir: Some("/l".into()),
            store: Some("/s.db".into()),
            retest: Some(0.5),
            ..Places::default()
        };
        assert_eq!(options(&places), ["--lib-dir", "/l", "--retest", "0.5"]);
        let named = Places { store_named: true, system: true, lib_dir: None, retest: None, ..places };
        assert_eq!(options(&named), ["--store", "/s.db", "--system"]);
        assert_eq!(beside(Path::new("/usr/bin/imas"), "imas-top"), Path::new("/usr/bin/imas-top"));
    }
}
