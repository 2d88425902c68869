// SPDX-License-Identifier: Apache-2.0
//! The language runtime of a running process, and what the process was given. Nothing is attached to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::catalogue::CatalogueCandidate;
use crate::elf::ElfImage;
use crate::foreign_process::{self, ForeignFile};
use crate::in_time::in_time;
use crate::jvm_heap::JvmHeap;
use crate::living_thread;
use crate::process;
use crate::program_file::ProgramFile;
use crate::running::Running;
use crate::runtime::{FoundRuntime, Runtime, only, with_version};
use crate::runtime_start::{Fitted, StartOfProgram, fitted};
use crate::serving::candidate::RealCandidates;
use crate::variables::Variables;

/// Runtime of a process.
#[derive(Debug, Clone)]
pub struct RunningRuntime {
    /// The runtime.
    pub found: FoundRuntime,
    /// Heap of the JVM, where it keeps counters.
    pub jvm: Option<JvmHeap>,
    file: PathBuf,
    unfit: Option<&'static str>,
    words: Vec<OsString>,
    environment: Variables,
}

impl RunningRuntime {
    /// The runtime of the process. None where none shows in its executable, or more than one.
    #[must_use]
    pub fn of(running: &Running) -> Option<Self> {
        let pid = running.pid;
        let file = running.program.path.clone();
        let owner = foreign_process::owner_of(pid)?;
        let path = file.clone();
        let (found, unfit) = in_time(owner, move || read(pid, &path)).ok()??;
        let words = process::arguments(pid).ok()?.into_iter().skip(1).collect();
        let jvm = (found.runtime == Runtime::Jvm).then(|| jvm_heap(pid)).flatten();
        Some(Self { found, jvm, file, unfit, words, environment: running.all_variables() })
    }

    /// The candidate as a start of the same command would get it.
    ///
    /// # Errors
    /// Why it does not, as a clause for people: the user has set something already, for example.
    pub fn fitted(&self, candidate: &CatalogueCandidate) -> Result<Fitted, String> {
        let start = StartOfProgram {
            found: std::slice::from_ref(&self.found),
            file: &self.file,
            words: &self.words,
            // Its files may be another user's, in another file system: a start of the command looks at them.
            has_files: false,
            is_by_script: false,
            unfit: self.unfit,
            environment: &self.environment,
            memory_limit: None,
        };
        fitted(candidate, &start)
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

/// The executable is read through the process: a container has a file system of its own.
fn read(pid: u32, path: &Path) -> Option<(FoundRuntime, Option<&'static str>)> {
    let file = ProgramFile::open(Path::new(&format!("/proc/{}/exe", living_thread::of(pid)))).ok()?;
    let elf = ElfImage::of(file.file(), path).ok()?;
    let found = only(&elf.runtimes).ok()??.clone();
    Some((with_version(found, path), elf.unfit().map(|unfit| unfit.why())))
}

/// Heap of a JVM. None where it keeps no counters, or its collector has no two generations.
fn jvm_heap(pid: u32) -> Option<JvmHeap> {
    JvmHeap::from_bytes(&foreign_process::read(pid, ForeignFile::JvmCounters).ok()?)
}
