// SPDX-License-Identifier: Apache-2.0
//! Who chose the allocator of a process.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::injected::{Injected, file_name};
use crate::elf::ElfImage;
use crate::running::Running;

/// Root's list of what every program preloads.
const PRELOAD_FILE: &str = "/etc/ld.so.preload";
/// Most mapped files that are read: the process may be another user's.
const MOST_FILES: usize = 256;

/// The part that chose the allocator of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chooser {
    /// IMAS, for production.
    Guard,
    /// IMAS, for a trial.
    Trial,
    /// A preload that is not IMAS's: the user's, or root's for the whole machine.
    Preload,
    /// The program: it defines malloc, or loads a library that does.
    Program,
    /// Nobody: the C library serves.
    CLibrary,
}

/// The choice of a process's allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The part that chose.
    pub by: Chooser,
    /// The file whose malloc serves, where neither IMAS nor the C library gives it.
    pub file: Option<PathBuf>,
    /// The variable or file that named that file for preloading.
    pub preloader: Option<&'static str>,
}

impl Choice {
    /// The choice for that process.
    #[must_use]
    pub fn of(running: &Running) -> Self {
        let without_file = |by| Self { by, file: None, preloader: None };
        match running.injected() {
            Injected::Hook => return without_file(Chooser::Trial),
            Injected::Guard => return without_file(Chooser::Guard),
            Injected::Nothing => {}
        }
        let Some(file) = other_malloc(running) else { return without_file(Chooser::CLibrary) };
        let preloader = preloader(running, &file);
        let by = if preloader.is_some() { Chooser::Preload } else { Chooser::Program };
        Self { by, file: Some(file), preloader }
    }
}

/// The file whose malloc serves where the C library's does not: the program's own comes before what is
/// preloaded, that before other libraries.
fn other_malloc(running: &Running) -> Option<PathBuf> {
    let is_of_libc = |file: &Path| file_name(file) == "libc.so.6" || file_name(file).starts_with("ld-linux");
    let is_code = |file: &Path| file == running.program.path || file_name(file).contains(".so");
    let defines = |file: &&Path| ElfImage::read(file).is_ok_and(|image| image.defines_malloc);
    let files = running.mapped().filter(|file| is_code(file) && !is_of_libc(file));
    let found: Vec<&Path> = files.take(MOST_FILES).filter(defines).collect();
    let is_preloaded = |file: &&&Path| preloader(running, file).is_some();
    let own = found.iter().find(|file| **file == running.program.path);
    let first = own.or_else(|| found.iter().find(is_preloaded)).or_else(|| found.first())?;
    Some((*first).to_owned())
}

/// The variable or file that named the library for preloading.
fn preloader(running: &Running, file: &Path) -> Option<&'static str> {
    let names = |list: &str| {
        let words = list.split([':', ' ', '\n', '\t']).filter(|word| !word.is_empty());
        words.into_iter().any(|word| {
            let real = std::fs::canonicalize(word).unwrap_or_else(|_| PathBuf::from(word));
            real == file || Path::new(word).file_name() == file.file_name()
        })
    };
    let variables = running.variables(|name| name == "LD_PRELOAD");
    let of_all = std::fs::read_to_string(PRELOAD_FILE).unwrap_or_default();
    match variables.values().any(|list| names(list)) {
        true => Some("LD_PRELOAD"),
        false => names(&of_all).then_some(PRELOAD_FILE),
    }
}
