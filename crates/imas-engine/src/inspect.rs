// SPDX-License-Identifier: Apache-2.0
//! Inspection of an executable: its build, and whether anything may be preloaded into it.
//!
//! `imas` reads the file of a program that its user names ([`command`]). `imasd` reads files of users. A user
//! may have made such a file to attack imasd, so it is read only if it is the file that was seen running
//! ([`running`]).

use std::fs::Metadata;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_linux::elf::{ElfError, ElfImage, Unfit};
use imas_linux::foreign_file::{self, ForeignImage};
use imas_linux::foreign_process::owner_of_uid;
use imas_linux::in_time::{ROOT, in_time};
use imas_linux::index::Executable;
use imas_linux::program::Command;
use imas_linux::program_file::ProgramFile;
use imas_linux::runtime::{FoundRuntime, with_version};
use imas_store::Store;
use imas_store::memory::FileVersion;
use imas_store::samples::{Domain, StoredProgram};
use serde::{Deserialize, Serialize};

/// Name of what `imas` found, in the store.
const FOUND: &str = "executable, its libraries, their functions, runtimes, libc, exec";
/// Name of what `imasd` found, in the store.
const FOUND_BY_DAEMON: &str = "imasd-executable-exec";
/// Name of the count of readings that `imasd` began and did not end.
const BEGUN: &str = "imasd-executable-begun";
/// Number of readings begun and not ended after which the file is not read any more.
const MOST_DEATHS: u32 = 2;

/// Facts about an executable; kept in the store until the file changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutableFacts {
    /// Why nothing may be preloaded into the executable, as a sentence.
    pub unfit: Option<String>,
    /// Hexadecimal; empty if it has none.
    pub build_id: String,
    /// Functions of libc that it, or a library that it is linked with, defines ([`crate::runtime_command`]).
    pub defines: Vec<String>,
    /// Language runtimes that the executable is, or has inside.
    #[serde(default)]
    pub runtimes: Vec<FoundRuntime>,
    /// Whether an allocator that is built for musl may be preloaded, where `unfit` says that none of ours may
    /// ([`crate::runtime_command`]).
    #[serde(default)]
    pub fits_musl: bool,
    /// Whether it replaces itself by another program without libc.
    #[serde(default)]
    pub execs_itself: bool,
}

impl ExecutableFacts {
    fn unfit(why: String) -> Self {
        Self {
            unfit: Some(why),
            build_id: String::new(),
            defines: vec![],
            runtimes: vec![],
            fits_musl: false,
            execs_itself: false,
        }
    }

    fn read(file: &ProgramFile, path: &Path) -> Result<Self, ElfError> {
        let mut elf = ElfImage::of(file.file(), path)?;
        elf.runtimes = elf.runtimes.into_iter().map(|found| with_version(found, path)).collect();
        Ok(Self::of(elf))
    }

    fn of(elf: ElfImage) -> Self {
        let unfit = elf.unfit().map(|unfit| unfit.why().to_owned());
        let fits_musl = elf.fits_musl();
        let build_id = elf.build_id.unwrap_or_default();
        let ElfImage { defines, runtimes, execs_itself, .. } = elf;
        Self { unfit, build_id, defines, runtimes, fits_musl, execs_itself }
    }
}

/// The facts of a command's executable, from the store where it has them.
///
/// # Errors
/// When the file cannot be read or is not an ELF file.
pub fn command(command: &Command, store: Option<&Store>) -> Result<ExecutableFacts> {
    let path = &command.program.path;
    // Privileges depend on the script as well as on the interpreter, so they are not a fact of one file.
    if command.privileged {
        return Ok(ExecutableFacts::unfit(Unfit::Privileged.why().to_owned()));
    }
    if let Some(known) = store.and_then(|store| store.recall(path, FOUND).ok().flatten()) {
        return Ok(known);
    }
    let read = ProgramFile::open(path).map_err(ElfError::from);
    let read = read.and_then(|file| ExecutableFacts::read(&file, path));
    let found = read.with_context(|| path.display().to_string())?;
    if let Some(store) = store {
        let _ = store.remember(path, FOUND, &found); // without it the file is read again
    }
    Ok(found)
}

/// The facts of the executable of a stored program. A program of the machine's store is one that somebody else has
/// started: a helper looks at its file.
///
/// # Errors
/// When the file cannot be read, is not an ELF file, or its file system does not answer.
pub fn stored(program: &StoredProgram, command: &Command, store: &Store) -> Result<ExecutableFacts> {
    let Some(owner) = owner(program.domain) else { return self::command(command, Some(store)) };
    let path = &command.program.path;
    if let Some(known) = known_facts(store, program.domain, path) {
        return Ok(known);
    }
    facts(foreign_file::image(path, owner)?).with_context(|| path.display().to_string())
}

/// The facts of an executable that a process of the user runs. A helper looks at it.
///
/// # Errors
/// The errors of [`stored`].
pub fn of_user(path: &Path, uid: u32) -> Result<ExecutableFacts> {
    let image = foreign_file::image(path, owner_of_uid(uid))?;
    if image.is_privileged {
        return Ok(ExecutableFacts::unfit(Unfit::Privileged.why().to_owned()));
    }
    facts(image)
}

fn facts(image: ForeignImage) -> Result<ExecutableFacts> {
    image.elf.map(ExecutableFacts::of).map_err(anyhow::Error::msg)
}

/// Who answers for the files of programs of the domain; `None` for the caller's own.
fn owner(domain: Domain) -> Option<u64> {
    match domain {
        Domain::Own => None,
        Domain::Everybody => Some(ROOT),
        Domain::User(uid) => Some(owner_of_uid(uid)),
    }
}

/// Does work on a file of a program of the domain, for imasd. A user's file system may never answer: for imasd another thread
/// does the work.
///
/// # Errors
/// `TimedOut` when the file system does not answer, `WouldBlock` after files of the same user have taken too long.
pub fn on_file<T: Send + 'static>(
    domain: Domain,
    path: &Path,
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let Some(owner) = owner(domain) else { return Ok(work(path)) };
    let path = path.to_owned();
    in_time(owner, move || work(&path))
}

/// The facts of an executable of the domain that was seen running, from the store where it has them. A file during
/// whose reading this process died twice is not read a third time.
///
/// # Errors
/// When another file is at the path by now, it cannot be read, or the store fails.
pub fn running(
    store: &Store,
    domain: Domain,
    path: &Path,
    executable: Executable,
) -> Result<ExecutableFacts> {
    let file = on_file(domain, path, move |path| ProgramFile::open_executable(path, executable))??;
    let about = file.about().clone();
    if let Some(known) = store.recall_of(path, &about, FOUND_BY_DAEMON)? {
        return Ok(known);
    }
    let begun: u32 = store.recall_of(path, &about, BEGUN)?.unwrap_or(0);
    if begun >= MOST_DEATHS {
        let why =
            format!("imasd has died {begun} times while it read this file: it is not read until it changes");
        return Ok(ExecutableFacts::unfit(why));
    }
    // Stored before the first byte is read. If this process dies while it reads, the next one finds which
    // file was the cause.
    store.remember_of(path, &about, BEGUN, &(begun + 1))?;
    let found = on_file(domain, path, move |path| read_whatever_it_is(&file, path));
    store.remember_of(path, &about, BEGUN, &begun)?;
    let found = found??;
    store.remember_of(path, &about, FOUND_BY_DAEMON, &found)?;
    Ok(found)
}

/// The facts of the executable of the domain, as [`command`] or [`running`] found them, if it has not changed since.
#[must_use]
pub fn known_facts(store: &Store, domain: Domain, path: &Path) -> Option<ExecutableFacts> {
    let version = version_at(domain, path)?;
    let found = [FOUND, FOUND_BY_DAEMON].map(|kind| store.recall_of::<ExecutableFacts>(path, version, kind));
    found.into_iter().find_map(|found| found.ok().flatten())
}

/// Whether [`running`] has read the file of the domain that is at the path, and it has not changed since.
#[must_use]
pub fn was_read(store: &Store, domain: Domain, path: &Path) -> bool {
    let version = version_at(domain, path);
    let found = version.map(|version| store.recall_of::<ExecutableFacts>(path, version, FOUND_BY_DAEMON));
    matches!(found, Some(Ok(Some(_))))
}

/// The version of the regular file of the domain.
fn version_at(domain: Domain, path: &Path) -> Option<FileVersion> {
    let Some(owner) = owner(domain) else {
        return std::fs::metadata(path).ok().filter(Metadata::is_file).as_ref().map(FileVersion::from);
    };
    let (dev, ino, bytes, times) = foreign_file::stamp(path, owner).ok()?.parts();
    Some(FileVersion { dev, ino, bytes, times })
}

/// A fault of the file itself is a fact like any other, and is kept; only a failed reading is an error.
fn read_whatever_it_is(file: &ProgramFile, path: &Path) -> Result<ExecutableFacts, ElfError> {
    match ExecutableFacts::read(file, path) {
        Err(error) if error.is_of_the_file() => Ok(ExecutableFacts::unfit(error.to_string())),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_which_the_reader_died_twice_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("imas.db")).unwrap();
        let path = folder.path().join("program");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        let executable = Executable::from(&about);
        store.remember_of(&path, &about, BEGUN, &1).unwrap();
        assert!(!was_read(&store, Domain::Everybody, &path));
        let read = running(&store, Domain::Everybody, &path, executable).unwrap();
        assert!(
            read.unfit.is_none() && was_read(&store, Domain::Everybody, &path),
            "one death may be chance: {read:?}"
        );
        let other = folder.path().join("other");
        std::fs::copy("/proc/self/exe", &other).unwrap();
        let about = std::fs::metadata(&other).unwrap();
        store.remember_of(&other, &about, BEGUN, &MOST_DEATHS).unwrap();
        let unread = running(&store, Domain::Everybody, &other, Executable::from(&about)).unwrap();
        assert!(
            unread.unfit.unwrap().contains("died 2 times") && !was_read(&store, Domain::Everybody, &other)
        );
        assert!(
            running(&store, Domain::Everybody, &other, executable).is_err(),
            "another file is at the path"
        );
    }
}
