// SPDX-License-Identifier: Apache-2.0
//! The server of one run: start, end (also in words), and what it printed. Then what is seen of its processes from outside:
//! the contents of their heaps while there is no load, and the library that serves malloc under `system`, since settings of
//! glibc cannot act on another malloc.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use imas_core::sample::is_crash_signal;
use imas_core::server_run::{ArenaHeaps, C_LIBRARY, Failure, HeldMemory, STATIC, ServerRun, Stage};
use imas_linux::elf::{JEMALLOC, looks_for_jemalloc};
use imas_linux::environment::Variables;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::process::signal_name;
use imas_linux::program::Command;
use imas_linux::resident::{ResidentMemory, arena_heaps};
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::serving::chooser::{Choice, Chooser};
use imas_linux::start_program::{ChildSetup, ProgramStart, StartedProgram};
use imas_linux::{process_trim, running, sampler};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::executor::last_line;
use crate::service::definition::{MemoryBound, ServiceError};
use crate::service::line::{KeptOn, exit_text, tail};
use crate::service::recorder::SharedTree;
use crate::service::tree::{Group, MemoryGroup, Tree};

/// Time limit for the server to end. Then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that processes have to end by themselves after the first one.
const ORPHANS_END: Duration = Duration::from_millis(500);
/// Time between two checks whether the server has ended.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// Number of the server's last lines that are kept with a failure.
const SERVER_LINES: usize = 6;
const SERVER_TEXT: u64 = 4096;

/// How the server of a run is started.
pub(crate) struct ServerStart<'a> {
    pub(crate) command: Command,
    /// Whole environment of the server, with the candidate.
    pub(crate) environment: Variables,
    /// The CPUs for it; empty: all that are allowed.
    pub(crate) cpus: &'a [usize],
    /// Working folder of the server.
    pub(crate) folder: &'a Path,
    /// The candidate is the C library's malloc, untouched or with settings.
    pub(crate) is_on_libc: bool,
    /// Its group counts its memory, and may limit it.
    pub(crate) memory: Option<&'a MemoryBound>,
}

/// The server of one run. Drop ends all of its processes.
pub(crate) struct Server {
    child: StartedProgram,
    memory: Option<MemoryGroup>,
    /// Exit status of the server's first process.
    status: Option<ExitStatus>,
    tree: SharedTree,
    began: Instant,
    log: File,
    is_on_libc: bool,
}

impl Server {
    pub(crate) fn start(start: &ServerStart<'_>) -> Result<Self, ServiceError> {
        let ServerStart { command, environment, cpus, folder, is_on_libc, memory } = start;
        let others: BTreeSet<u32> = sampler::tree(std::process::id()).into_iter().skip(1).collect();
        // A file, not a pipe: a daemon would hold a pipe open. Both outputs are appended, and read at the
        // end.
        let log = tempfile::tempfile()?;
        let group = Group::new();
        let memory = memory.map(|bound| MemoryGroup::new(group.as_ref(), bound.limit)).transpose()?;
        let began = Instant::now();
        let spawn = || {
            let _kept = KeptOn::new(cpus);
            let setup = ChildSetup {
                input: Some(File::open("/dev/null")?.into()),
                output: Some(log.try_clone()?.into()),
                errors: Some(log.try_clone()?.into()),
                folder: Some(folder),
                leads_group: true,
            };
            ProgramStart { file: &command.file, argv: &command.argv, variables: environment }.spawn(&setup)
        };
        let spawn = || match &memory {
            Some(memory) => memory.within(spawn)?,
            None => spawn(),
        };
        let (child, group) = match group.map(|group| (group.within(spawn), group)) {
            Some((Ok(child), group)) => (child?, Some(group)),
            _ => (spawn()?, None),
        };
        let tree = Arc::new(Mutex::new(Tree::new(child.id(), group, others)));
        Ok(Self { child, memory, status: None, tree, began, log, is_on_libc: *is_on_libc })
    }

    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        locked(&self.tree)
    }

    pub(crate) fn shared_tree(&self) -> SharedTree {
        Arc::clone(&self.tree)
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// The exit status, if the server has ended: its first process failed, or none of its processes runs. If
    /// the first process exits with 0 and others still run, the server is a daemon.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.status.is_none() {
            self.tree().refresh(); // read the CPU time while the process is a zombie
            self.status = self.child.try_wait().ok().flatten();
        }
        let status = self.status?;
        (!status.success() || self.tree().is_empty()).then(|| exit_text(status))
    }

    /// Number of its processes that have loaded the library, and number of all.
    pub(crate) fn loaded(&self, library: &Path) -> (usize, usize) {
        let pids = self.tree().pids();
        let with = pids.iter().filter(|&&pid| imas_linux::process::maps(pid, library).unwrap_or(false));
        (with.count(), pids.len())
    }

    /// The heaps of glibc's arenas in each process, with what they hold; empty under another allocator.
    pub(crate) fn heaps(&self) -> Vec<ArenaHeaps> {
        let pids = if self.is_on_libc { self.tree().pids() } else { Vec::new() };
        pids.into_iter().filter_map(heaps_of).collect()
    }

    /// Adds what its group counted to the run. Returns the failure that it is where the kernel has killed one of its
    /// processes, although the server may have gone on with others.
    pub(crate) fn record_memory(&self, run: &mut ServerRun) -> Option<Failure> {
        let memory = self.memory.as_ref()?;
        memory.record(run);
        let what =
            |kills| format!("the kernel killed {kills} of its processes: the limit of memory was reached");
        Some(memory.kills()).filter(|kills| *kills > 0).map(|kills| Failure::new(Stage::Died, what(kills)))
    }

    /// Whether the kernel has killed one of its processes at a limit of memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.kills() > 0)
    }

    /// Name of a file in its processes that looks for functions of jemalloc: it does otherwise where it finds them. Jemalloc's
    /// own library is none.
    pub(crate) fn looks_for_jemalloc(&self) -> Option<String> {
        let processes = self.tree().pids().into_iter().filter_map(running::one);
        let files: BTreeSet<PathBuf> =
            processes.flat_map(|one| one.mapped().map(Path::to_owned).collect::<Vec<_>>()).collect();
        let names = files.iter().filter_map(|file| Some((file, file.file_name()?.to_str()?)));
        let mut others =
            names.filter(|(_, name)| !name.starts_with(JEMALLOC) && !name.starts_with("libimas"));
        others.find(|(file, _)| looks_for_jemalloc(file)).map(|(_, name)| name.to_owned())
    }

    /// Runtime of the process that holds most of the memory; None where it has none.
    pub(crate) fn runtime(&self) -> Option<RunningRuntime> {
        let pids = self.tree().pids();
        let largest = pids.into_iter().max_by_key(|&pid| sampler::resident_bytes(pid))?;
        RunningRuntime::of(&running::one(largest)?)
    }

    /// Libraries that serve malloc in its processes, each once.
    pub(crate) fn malloc(&self) -> Vec<String> {
        let pids = self.tree().pids();
        let all: BTreeSet<String> = pids.into_iter().filter_map(server_of_malloc).collect();
        all.into_iter().collect()
    }

    /// Sends the signal and waits until no process of the server runs. A crash meanwhile is a failure. What is left a while
    /// after the first process gets the signal too: a start script that waits for the server hands no signal on.
    pub(crate) fn stop(
        &mut self,
        signal: Signal,
        run: &mut ServerRun,
    ) -> Result<Option<Failure>, ServiceError> {
        if let Some(how) = self.ended() {
            return Ok(Some(Failure::new(Stage::Idle, format!("it ended by itself: {how}"))));
        }
        let began = Instant::now();
        // When what is left is asked.
        let mut ask_at = Some(began);
        if self.status.is_none() {
            send(self.child.id(), signal);
            ask_at = None;
        }
        while began.elapsed() < STOP_TIMEOUT {
            if self.status.is_none() {
                self.status = self.child.try_wait()?;
                ask_at = self.status.is_some().then(|| Instant::now() + ORPHANS_END);
            }
            let left = self.tree().tops();
            if self.status.is_some() && left.is_empty() {
                break;
            }
            if ask_at.take_if(|at| Instant::now() >= *at).is_some() {
                left.into_iter().for_each(|pid| send(pid, signal));
            }
            std::thread::sleep(CHECK_EVERY);
        }
        if self.end()? {
            run.notes.push(format!("it did not end within {} s and was killed", STOP_TIMEOUT.as_secs()));
            return Ok(None);
        }
        let crashed = self.status.and_then(|status| status.signal()).filter(|&raw| is_crash(raw));
        Ok(crashed.map(|raw| {
            Failure::new(Stage::Stop, format!("it crashed when it was asked to end: {}", signal_name(raw)))
        }))
    }

    /// Kills the remaining processes. Returns whether there were any.
    fn end(&mut self) -> Result<bool, ServiceError> {
        let left = self.tree().pids();
        left.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
        if self.status.is_none() {
            self.status = Some(self.child.wait()?);
        }
        Ok(!left.is_empty())
    }

    /// Adds the signal and the server's last lines to the failure.
    pub(crate) fn explained(&mut self, failure: Failure) -> Failure {
        let text = tail(&mut self.log, SERVER_TEXT).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let server = lines[lines.len().saturating_sub(SERVER_LINES)..].join("\n");
        let what = match last_line(&server) {
            Some(last) if failure.stage.is_of_the_server() => {
                format!("{}; its last line: {last}", failure.what)
            }
            _ => failure.what.clone(),
        };
        let signal = self.status.and_then(|status| status.signal()).filter(|&raw| is_crash(raw));
        Failure { what, signal, server, ..failure }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end(); // the run may have ended at any point
    }
}

fn is_crash(signal: i32) -> bool {
    u32::try_from(signal).is_ok_and(is_crash_signal)
}

fn send(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal); // the process may have ended in the meantime
    }
}

/// The tree, also after a thread has panicked with it.
pub(crate) fn locked(tree: &SharedTree) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The heaps of a process; None when it has ended.
pub(crate) fn heaps_of(pid: u32) -> Option<ArenaHeaps> {
    let heaps = arena_heaps(pid)?;
    let read = process_trim::heaps_of(pid).ok().zip(ResidentMemory::of(pid));
    let held = read.map(|(figures, resident)| held(&heaps, &figures, &resident));
    Some(ArenaHeaps { held, ..heaps })
}

/// A look counts a page that several processes have since a fork in each of them, so its figures are reduced by the
/// share of the heaps that this process bears.
fn held(heaps: &ArenaHeaps, figures: &HeapFigures, resident: &ResidentMemory) -> HeldMemory {
    let whole = (resident.heap + resident.arenas).max(1) as f64;
    let share = (heaps.all_heap_bytes() as f64 / whole).min(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of bytes"
    )]
    let part = |bytes: u64| (bytes as f64 * share) as u64;
    let bytes = &figures.bytes;
    HeldMemory {
        live: part(bytes.live),
        cached: part(bytes.cached),
        free_pages: part(bytes.returnable.saturating_add(bytes.top_resident)),
        stacks: resident.stacks,
        is_estimate: figures.is_estimate(),
    }
}

/// Name of what serves malloc in a process; None when it has ended or its files do not
/// answer, and where our hook is before it.
fn server_of_malloc(pid: u32) -> Option<String> {
    let running = running::one(pid)?;
    let choice = Choice::of(&running);
    if matches!(choice.by, Chooser::Guard | Chooser::Trial | Chooser::Unknown) {
        return None;
    }
    let name = |file: &std::path::Path| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let has_libc = running.files().c_library().is_some();
    let named = choice.file.as_deref().and_then(name);
    Some(named.unwrap_or_else(|| if has_libc { C_LIBRARY } else { STATIC }.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use imas_linux::heap::figures::HeapBytes;

    /// Two processes that share all pages since a fork bear half of them each.
    #[test]
    fn what_is_shared_since_a_fork_counts_in_parts() {
        let heaps = ArenaHeaps { main_bytes: 30, heap_bytes: vec![20], ..ArenaHeaps::default() };
        let bytes =
            HeapBytes { live: 60, cached: 10, returnable: 16, top_resident: 4, ..HeapBytes::default() };
        let figures = HeapFigures { held: 100, read: 90, bytes, ..HeapFigures::default() };
        let resident = ResidentMemory { heap: 60, arenas: 40, stacks: 7, ..ResidentMemory::default() };
        let found = held(&heaps, &figures, &resident);
        let wanted = HeldMemory { live: 30, cached: 5, free_pages: 10, stacks: 7, is_estimate: true };
        assert_eq!(found, wanted);
    }

    #[test]
    fn this_process_is_served_by_the_c_library() {
        assert_eq!(server_of_malloc(std::process::id()).as_deref(), Some(C_LIBRARY));
        assert_eq!(server_of_malloc(u32::MAX), None);
    }
}
