// SPDX-License-Identifier: Apache-2.0
//! Who chose the allocator of a process.
//!
//! Libraries that a process was to load, and whether it has them: the one look afterwards whether a candidate serves.

use std::ffi::{OsStr, OsString};
use std::io::Result;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Injected;
use crate::activity::age_s;
use crate::elf::ElfImage;
use crate::environment::{GUARD, HOOK};
use crate::foreign_process::{self, Finding};
use crate::mapped_files::MappedFiles;
use crate::mapping_text::{self, file_name, former_path, is_of_glibc};
use crate::process;
use crate::running::Running;

/// Root's list of what every program preloads.
const PRELOAD_FILE: &str = "/etc/ld.so.preload";
const LD_PRELOAD: &str = "LD_PRELOAD";
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
    /// It is not known: its files do not answer.
    Unknown,
}

/// Choosers that the files of a process may show.
const BY_FILES: [Chooser; 3] = [Chooser::Preload, Chooser::Program, Chooser::CLibrary];
/// The variable and the file that name libraries for preloading.
const PRELOADERS: [&str; 2] = [LD_PRELOAD, PRELOAD_FILE];

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
        match running.injected() {
            Injected::Hook => Self::without_file(Chooser::Trial),
            Injected::Guard => Self::without_file(Chooser::Guard),
            Injected::Nothing => {
                Self::by_files(running.pid).unwrap_or_else(|| Self::without_file(Chooser::Unknown))
            }
        }
    }

    fn without_file(by: Chooser) -> Self {
        Self { by, file: None, preloader: None }
    }

    /// The choice by the files that the process has mapped, which a helper looks at. `None` where these do not answer.
    fn by_files(pid: u32) -> Option<Self> {
        let text = foreign_process::find_out(pid, Finding::Chooser, text_of).ok()?;
        let [by, preloader, file @ ..] = text.as_slice() else { return None };
        Some(Self {
            by: *BY_FILES.get(usize::from(*by))?,
            file: (!file.is_empty()).then(|| OsStr::from_bytes(file).into()),
            preloader: PRELOADERS.get(usize::from(*preloader)).copied(),
        })
    }

    /// The choice as [`Self::by_files`] reads it.
    fn text(&self) -> Option<Vec<u8>> {
        let by = BY_FILES.iter().position(|one| *one == self.by)?;
        let preloader = PRELOADERS.iter().position(|one| Some(*one) == self.preloader);
        let preloader = preloader.unwrap_or(PRELOADERS.len());
        let file = self.file.as_ref().map_or(&[][..], |file| file.as_os_str().as_bytes());
        Some([&[u8::try_from(by).ok()?, u8::try_from(preloader).ok()?], file].concat())
    }

    /// The choice by the files, looked at by this very process.
    fn here(running: &Running) -> Self {
        let without_file = Self::without_file;
        let definers = definers(running);
        if definers.is_empty() {
            return without_file(Chooser::CLibrary);
        }
        let preloads = preloads(running);
        let Some(file) = first(running, &definers, &preloads) else {
            return without_file(Chooser::CLibrary);
        };
        let preloader = preloads.iter().find(|one| one.is(file)).map(|one| one.by);
        let by = if preloader.is_some() { Chooser::Preload } else { Chooser::Program };
        Self { by, file: Some(file.to_owned()), preloader }
    }
}

/// The choice of a process's allocator by its files, as [`Choice::by_files`] reads it.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let choice = crate::running::one(pid).map(|running| Choice::here(&running));
    Ok(choice.and_then(|choice| choice.text()).ok_or(rustix::io::Errno::SRCH)?)
}

/// Mapped files that define malloc, without the C library.
fn definers(running: &Running) -> Vec<&Path> {
    let is_code = |file: &Path| file == executable(running) || file_name(file).contains(".so");
    let in_file = |file: &Path| ElfImage::read(&seen_by(running, file)).is_ok_and(|one| one.defines_malloc);
    let defines =
        |file: &&Path| running.mapped.replaced_defines_malloc(file).unwrap_or_else(|| in_file(file));
    let files = running.mapped().filter(|file| is_code(file) && !is_of_glibc(file));
    files.take(MOST_FILES).filter(defines).collect()
}

/// The mapped file below the root of the process: in a container the path names another file than here. The
/// files of a process after a chroot have their whole path.
fn seen_by(running: &Running, file: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", mapping_text::living_thread(running.pid)));
    let seen = root.join(file.strip_prefix("/").unwrap_or(file));
    if seen.exists() { seen } else { file.to_owned() }
}

/// The path that the executable had when the process was started.
fn executable(running: &Running) -> PathBuf {
    former_path(&running.program.path)
}

/// The file whose malloc serves where the C library's does not. The loader looks into the program first, then into
/// what is preloaded, in the order of the lists; a C library among that is before all other libraries.
fn first<'a>(running: &'a Running, definers: &[&'a Path], preloads: &[Preload]) -> Option<&'a Path> {
    let own = definers.iter().find(|file| **file == executable(running));
    let named = |one: &Preload| {
        running.mapped().find(|file| one.is(file) && (is_of_glibc(file) || definers.contains(file)))
    };
    let preloaded = || preloads.iter().find_map(named);
    let first = own.copied().or_else(preloaded).or_else(|| definers.first().copied())?;
    (!is_of_glibc(first)).then_some(first)
}

/// A word that asks for a library to be preloaded.
struct Preload {
    /// The variable or file that has it.
    by: &'static str,
    /// The library as it is named.
    named: PathBuf,
    /// The file behind that name.
    real: PathBuf,
}

impl Preload {
    fn is(&self, file: &Path) -> bool {
        self.real == file || self.named.file_name() == file.file_name()
    }
}

/// Libraries to be preloaded, in the order in which the loader takes it.
fn preloads(running: &Running) -> Vec<Preload> {
    let variables = running.variables(|name| name == LD_PRELOAD);
    let of_all = std::fs::read_to_string(PRELOAD_FILE).unwrap_or_default();
    let lists = variables.values().map(|list| (LD_PRELOAD, list)).chain([(PRELOAD_FILE, &of_all)]);
    let words = lists.flat_map(|(by, list)| list.split([':', ' ', '\n', '\t']).map(move |word| (by, word)));
    let preload = |(by, word): (&'static str, &str)| {
        let real = std::fs::canonicalize(word).unwrap_or_else(|_| PathBuf::from(word));
        Preload { by, named: PathBuf::from(word), real }
    };
    words.filter(|(_, word)| !word.is_empty()).map(preload).collect()
}

/// A process younger than this may not have loaded its libraries yet.
pub const YOUNG_S: f64 = 3.0;

/// Names of the guard, or the hook, and of what follows it in a list of preloads: the allocator, where the candidate
/// has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLibraries(Vec<String>);

impl WantedLibraries {
    /// Returns what a list of preloads asks for; `None` where nothing of ours is in it, as under settings alone.
    #[must_use]
    pub fn of_preload(list: &str) -> Option<Self> {
        let entries = list.split([':', ' ']).filter(|entry| !entry.is_empty());
        let names: Vec<&str> = entries.map(|entry| entry.rsplit('/').next().unwrap_or(entry)).collect();
        let ours = names.iter().position(|name| [GUARD, HOOK].contains(name))?;
        Some(Self(names[ours..].iter().take(2).map(|name| (*name).to_owned()).collect()))
    }

    /// Returns what an environment asks for, `NAME=VALUE` each.
    fn of_environment(environment: &[OsString]) -> Option<Self> {
        let mut lists = environment.iter().filter_map(|pair| pair.to_str()?.strip_prefix("LD_PRELOAD="));
        lists.find_map(Self::of_preload)
    }

    /// Whether all of them are mapped.
    #[must_use]
    pub fn is_in(&self, files: &MappedFiles) -> bool {
        self.0.iter().all(|name| files.iter().any(|file| is_named(file, name)))
    }

    /// Returns the process that holds the most memory among those that may be looked into, where it lacks them.
    #[must_use]
    pub fn missed_by(&self, pids: impl IntoIterator<Item = u32>) -> Option<u32> {
        let sized = pids.into_iter().filter_map(|pid| Some((process::resident_bytes(pid)?, pid)));
        let mut sized: Vec<_> = sized.collect();
        sized.sort_unstable_by_key(|one| std::cmp::Reverse(*one));
        let (largest, files) = sized.iter().find_map(|(_, pid)| Some((*pid, MappedFiles::of(*pid).ok()?)))?;
        (!self.is_in(&files)).then_some(largest)
    }
}

/// Returns the library that the environment of a process asks for and that it lacks: the allocator, else the library of
/// ours. `None` for a young process, which may not have loaded it yet.
#[must_use]
pub fn asked_in_vain(pid: u32) -> Option<String> {
    let wanted = WantedLibraries::of_environment(&process::environment(pid).ok()?)?;
    let is_old = age_s(process::start_ticks(pid).ok()?)? > YOUNG_S;
    let lacks = is_old && !wanted.is_in(&MappedFiles::of(pid).ok()?);
    if lacks { wanted.0.last().cloned() } else { None }
}

/// Whether the file is the library of that name. The kernel names what is mapped by its real path, and distributions
/// have links: `libmimalloc.so.2` leads to `libmimalloc.so.2.0`.
fn is_named(file: &Path, name: &str) -> bool {
    let rest = file_name(file).strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || (name.contains(".so.") && rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    /// A server that is linked with a malloc of its own, and the C library preloaded before it, as the laboratory's
    /// `redis-libc`.
    #[test]
    fn what_is_preloaded_first_serves() {
        let libc = crate::running::one(std::process::id()).unwrap();
        let is_libc = |file: &&Path| is_of_glibc(file) && file_name(file).starts_with("libc");
        let libc = libc.mapped().find(is_libc).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("libother.so.2");
        std::fs::copy(libc, &other).unwrap();
        let choice = |preloaded: &[&Path]| {
            let list: Vec<&str> = preloaded.iter().filter_map(|file| file.to_str()).collect();
            let choice = Choice::here(&Running {
                pid: 1,
                program: Program { path: "/usr/bin/server".into(), detail: String::new() },
                unit: None,
                control_group: String::new(),
                mapped: [libc, &other].into_iter().collect(),
                environment: vec![format!("LD_PRELOAD={}", list.join(":")).into()],
            });
            assert!(choice.text().is_some_and(|text| text.len() >= 2));
            choice
        };
        let without_file = Choice { by: Chooser::CLibrary, file: None, preloader: None };
        let served = |by, preloader| Choice { by, file: Some(other.clone()), preloader };
        assert_eq!(choice(&[]), served(Chooser::Program, None));
        assert_eq!(choice(&[libc]), without_file);
        assert_eq!(choice(&[libc, &other]), without_file);
        assert_eq!(choice(&[&other, libc]), served(Chooser::Preload, Some("LD_PRELOAD")));
    }

    fn wanted(list: &str) -> WantedLibraries {
        WantedLibraries::of_preload(list).unwrap()
    }

    #[test]
    fn the_guard_and_what_follows_it_are_wanted() {
        assert_eq!(wanted("/l/libimas-guard.so:/l/$LIB/libje.so:/u/own.so").0, [GUARD, "libje.so"]);
        assert_eq!(wanted("/l/libimas-settings.so /l/libimas-guard.so").0, [GUARD]);
        assert_eq!(wanted("/l/libimas.so:/l/libje.so").0, [HOOK, "libje.so"], "a trial");
        let environment = ["A=b", "LD_PRELOAD=/l/libimas-guard.so"].map(OsString::from);
        assert_eq!(WantedLibraries::of_environment(&environment).unwrap().0, [GUARD]);
        assert_eq!(WantedLibraries::of_preload("/u/own.so"), None, "settings alone load nothing");
    }

    #[test]
    fn what_is_mapped_is_known_by_its_name_or_the_name_of_its_link() {
        let has = |list: &str, files: &[&str]| wanted(list).is_in(&files.iter().collect());
        let distribution = "/i/libimas-guard.so:/usr/lib/libmimalloc.so.2";
        assert!(has(distribution, &["/i/libimas-guard.so", "/usr/lib/libmimalloc.so.2.0"]));
        assert!(has(distribution, &["/i/libimas-guard.so (deleted)", "/usr/lib/libmimalloc.so.2"]));
        assert!(!has(distribution, &["/i/libimas-guard.so", "/usr/lib/libmimalloc.so.20"]));
        let ours = "/i/libimas-guard.so:/i/libjemalloc.so";
        assert!(!has(ours, &["/i/libimas-guard.so", "/usr/lib/libjemalloc.so.2"]), "the program's own");
        assert!(!has(ours, &["/i/libjemalloc.so"]) && !has(ours, &["/i/libimas-guard.so"]));
    }

    #[test]
    fn a_process_that_lacks_them_is_found() {
        let own = std::process::id();
        assert_eq!(wanted("/i/libimas-guard.so").missed_by([own]), Some(own));
        assert_eq!(wanted("/i/libimas-guard.so").missed_by([u32::MAX]), None, "it is gone");
    }
}
