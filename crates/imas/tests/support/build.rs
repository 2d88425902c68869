// SPDX-License-Identifier: Apache-2.0
//! Programs of the tests: those of `tests/programs`, compiled when a test needs them; and the records that its `witness.c`
//! writes about the processes that load it.

use std::path::{Path, PathBuf};
use std::process::Command;

use imas_linux::catalogue::CatalogueCandidate;

use super::workspace;

/// Compiles a program of `tests/programs` into the folder, under its own name.
pub(crate) fn program(source: &str, folder: &Path) -> PathBuf {
    program_with("cc", source, &[], &folder.join(source))
}

/// Compiles a program of `tests/programs` to `to`, with the given compiler and flags.
pub(crate) fn program_with(compiler: &str, source: &str, flags: &[&str], to: &Path) -> PathBuf {
    compile(compiler, source, &[&["-pthread", "-Wl,--build-id"], flags].concat(), to)
}

/// Compiles a library of `tests/programs` into the folder, as `libNAME.so`.
pub(crate) fn library(source: &str, folder: &Path) -> PathBuf {
    compile("cc", source, &["-shared", "-fPIC"], &folder.join(format!("lib{source}.so")))
}

fn compile(compiler: &str, source: &str, flags: &[&str], to: &Path) -> PathBuf {
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(to);
    command.arg(workspace().join(format!("tests/programs/{source}.c"))).args(flags);
    let output = super::output(&mut command);
    assert!(output.status.success(), "{compiler} {source}: {}", super::describe(&output));
    to.to_owned()
}

/// Testimony of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Testimony {
    pub(crate) pid: u32,
    /// Base name of its executable.
    pub(crate) executable: String,
    /// Base name of the file that its malloc comes from.
    pub(crate) serving: String,
    /// The name that this file reports; `-` without one.
    pub(crate) name: String,
    /// Allocator variables in the environment, each as `NAME=value ` with a space after it; may be empty.
    pub(crate) settings: String,
}

impl Testimony {
    /// Whether this process ran under the candidate, with its settings and no others. For a candidate without
    /// a library, any malloc is right that is not from a library of IMAS.
    pub(crate) fn is_under(&self, candidate: &CatalogueCandidate) -> bool {
        let settings: Vec<_> =
            candidate.environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let served = match &candidate.library {
            None => self.name == "-",
            Some(library) => {
                self.name.starts_with(&super::calls_itself(candidate))
                    && library.file_name().is_some_and(|file| file == self.serving.as_str())
            }
        };
        served && self.settings == settings.concat()
    }
}

/// The witness library, ready to be preloaded.
pub(crate) struct Witness {
    library: PathBuf,
    notes: PathBuf,
}

impl Witness {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { library: library("witness", folder), notes: folder.join("witness.txt") }
    }

    /// Preloads the witness into the command and all that it starts. In `LD_PRELOAD` the user's libraries
    /// come after imas's own.
    pub(crate) fn watch<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", &self.library).env("IMAS_TEST_WITNESS", &self.notes)
    }

    /// The new records since the last call, without imas's own.
    pub(crate) fn take(&self) -> Vec<Testimony> {
        let text = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let _ = std::fs::remove_file(&self.notes);
        text.lines().map(testimony).filter(|printed| printed.executable != "imas").collect()
    }
}

fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn testimony(line: &str) -> Testimony {
    let fields: Vec<&str> = line.split('\t').collect();
    assert_eq!(fields.len(), 5, "{line}");
    Testimony {
        pid: fields[0].parse().unwrap(),
        executable: base(fields[1]),
        serving: base(fields[2]),
        name: fields[3].to_owned(),
        settings: fields[4].to_owned(),
    }
}
