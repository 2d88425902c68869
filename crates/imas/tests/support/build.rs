// SPDX-License-Identifier: Apache-2.0
//! The C programs of `tests/programs`, compiled when a test needs them.

use std::path::{Path, PathBuf};
use std::process::Command;

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
