// SPDX-License-Identifier: Apache-2.0
//! Is IMAS active in this process? Which allocator serves it, and who set that, by what is mapped into it.

use std::path::{Path, PathBuf};

use imas_linux::catalogue::SYSTEM;
use imas_linux::elf::ElfImage;
use imas_linux::running::{RealCandidates, Running};
use serde::Serialize;

/// The library of a production start.
const GUARD: &str = "libimas-guard.so";
/// The library of a trial.
const HOOK: &str = "libimas.so";
/// Root's list of what every program preloads.
const PRELOAD_FILE: &str = "/etc/ld.so.preload";
/// Most mapped files that are read: the process may be another user's.
const MOST_FILES: usize = 256;

/// The part that chose the allocator of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ChosenBy {
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

/// The answer for one process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Active {
    is_active: bool,
    by: ChosenBy,
    /// The candidate or file that serves; absent where neither is visible.
    allocator: Option<String>,
    /// The answer as one line.
    pub(crate) sentence: String,
}

impl Active {
    pub(crate) fn of(running: &Running, candidates: &RealCandidates) -> Self {
        let candidate = running.name_of_candidate(candidates);
        if has(running, HOOK) {
            return Self::ours(ChosenBy::Trial, candidate);
        }
        if has(running, GUARD) {
            return Self::ours(ChosenBy::Guard, candidate);
        }
        match other_malloc(running) {
            Some(file) => Self::of_a_file(running, &file),
            None => Self::of_the_c_library(running, candidate),
        }
    }

    fn ours(by: ChosenBy, candidate: Option<&str>) -> Self {
        let serves = candidate.unwrap_or("glibc's malloc, as 'system' or with settings,");
        let how = match by {
            ChosenBy::Trial => format!("in a trial ({HOOK} counts its calls)"),
            _ => format!("set by IMAS for production ({GUARD})"),
        };
        let sentence = format!("is IMAS active here: yes, {serves} serves, {how}");
        Self { is_active: true, by, allocator: candidate.map(str::to_owned), sentence }
    }

    fn of_a_file(running: &Running, file: &Path) -> Self {
        let (by, how) = match preloader(running, file) {
            Some(preloader) => (ChosenBy::Preload, format!("preloaded by {preloader} and not by IMAS")),
            None if file == running.program.path => {
                (ChosenBy::Program, "the program's own allocator".to_owned())
            }
            None => (ChosenBy::Program, "which the program has loaded itself".to_owned()),
        };
        let sentence = format!("is IMAS active here: no, {} serves, {how}", file.display());
        Self { is_active: false, by, allocator: Some(file.display().to_string()), sentence }
    }

    fn of_the_c_library(running: &Running, candidate: Option<&str>) -> Self {
        let has_glibc = running.mapped().any(|file| name(file) == "libc.so.6");
        let serves = match candidate {
            _ if !has_glibc => {
                "the program is static, or its C library is not glibc: nothing is preloaded".into()
            }
            None | Some(SYSTEM) => "glibc's malloc serves, and nothing was set".to_owned(),
            Some(settings) => {
                format!("glibc's malloc serves, with settings of its environment as {settings} has")
            }
        };
        let sentence = format!("is IMAS active here: no, {serves}");
        let allocator = candidate.filter(|_| has_glibc).map(str::to_owned);
        Self { is_active: false, by: ChosenBy::CLibrary, allocator, sentence }
    }
}

fn name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn has(running: &Running, library: &str) -> bool {
    running.mapped().any(|file| name(file) == library)
}

/// The file whose malloc serves where the C library's does not: the program's own comes before what is
/// preloaded, that before other libraries.
fn other_malloc(running: &Running) -> Option<PathBuf> {
    let is_of_libc = |file: &Path| name(file) == "libc.so.6" || name(file).starts_with("ld-linux");
    let is_code = |file: &Path| file == running.program.path || name(file).contains(".so");
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
