// SPDX-License-Identifier: Apache-2.0
//! The language runtime of a running process, and what the process was given. Nothing is attached to.

use std::ffi::OsString;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

use crate::catalogue::CatalogueCandidate;
use crate::elf::ElfImage;
use crate::foreign_process::{self, Finding, ForeignFile};
use crate::jvm_heap::JvmHeap;
use crate::program_file::ProgramFile;
use crate::running::Running;
use crate::runtime::{FoundRuntime, Runtime, only, with_version};
use crate::runtime_start::{Fitted, StartOfProgram, fitted, takes};
use crate::serving::RealCandidates;
use crate::variables::Variables;
use crate::{mapping_text, process};

/// Runtime of a process.
#[derive(Debug, Clone)]
pub struct RunningRuntime {
    /// The runtime.
    pub found: FoundRuntime,
    /// Heap of the JVM, where it keeps counters.
    pub jvm: Option<JvmHeap>,
    file: PathBuf,
    unfit: Option<String>,
    words: Vec<OsString>,
    environment: Variables,
}

impl RunningRuntime {
    /// The runtime of the process. None where none shows in its executable, or more than one.
    #[must_use]
    pub fn of(running: &Running) -> Option<Self> {
        let pid = running.pid;
        let file = running.program.path.clone();
        let text = foreign_process::find_out(pid, Finding::Runtime, text_of).ok()?;
        let (found, unfit) = serde_json::from_slice(&text).ok()?;
        let found: FoundRuntime = found;
        let words = process::arguments(pid).ok()?.into_iter().skip(1).collect();
        let jvm = (found.runtime == Runtime::Jvm).then(|| jvm_heap(pid)).flatten();
        Some(Self { found, jvm, file, unfit, words, environment: running.all_variables() })
    }

    /// The candidate as a start of the same command would get it.
    ///
    /// # Errors
    /// Why it does not, as a clause for people: the user has set something already, for example.
    pub fn fitted(&self, candidate: &CatalogueCandidate) -> Result<Fitted, String> {
        fitted(candidate, &self.start(false))
    }

    /// The candidate as a start of the same command gets it whose words cannot be added to: a script makes the start. The
    /// runtime is started once with the settings.
    ///
    /// # Errors
    /// Why it does not get it, as a clause for people.
    pub fn fitted_behind_a_script(&self, candidate: &CatalogueCandidate) -> Result<Fitted, String> {
        let start = self.start(true);
        let fitted = fitted(candidate, &start)?;
        takes(&fitted, &start).map(|()| fitted)
    }

    fn start(&self, is_by_script: bool) -> StartOfProgram<'_> {
        StartOfProgram {
            found: std::slice::from_ref(&self.found),
            file: &self.file,
            words: &self.words,
            // Its files may be another user's, in another file system: a start of the command looks at them.
            has_files: false,
            is_by_script,
            unfit: self.unfit.as_deref(),
            environment: &self.environment,
            memory_limit: None,
        }
    }
}

/// The name of the candidate that the process is on: what its files show; else, where it was given settings of its
/// runtime, the only one of that runtime that it can be.
#[must_use]
pub fn name_of_candidate<'a>(running: &Running, among: &'a RealCandidates) -> Option<&'a str> {
    running.name_of_candidate(among).or_else(|| {
        let runtime = running.is_given_settings().then(|| RunningRuntime::of(running)).flatten()?;
        running.name_of_settings(runtime.found.runtime, among)
    })
}

/// The runtime of a process, as [`RunningRuntime::of`] reads it. The executable is read through the process, by this very
/// one: a container has a file system of its own.
pub(crate) fn text_of(pid: u32) -> io::Result<Vec<u8>> {
    let none = || Error::from(rustix::io::Errno::NOENT);
    let path = process::executable_path(pid).map_err(|_| none())?;
    let file = ProgramFile::open(Path::new(&format!("/proc/{}/exe", mapping_text::living_thread(pid))))?;
    let elf = ElfImage::of(file.file(), &path).map_err(|_| none())?;
    let found = only(&elf.runtimes).ok().flatten().ok_or_else(none)?.clone();
    Ok(serde_json::to_vec(&(with_version(found, &path), elf.unfit().map(|unfit| unfit.why())))?)
}

/// Heap of a JVM. None where it keeps no counters, or its collector has no two generations.
fn jvm_heap(pid: u32) -> Option<JvmHeap> {
    JvmHeap::from_bytes(&foreign_process::read(pid, ForeignFile::JvmCounters).ok()?)
}
