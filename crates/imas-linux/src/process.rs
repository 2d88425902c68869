// SPDX-License-Identifier: Apache-2.0
//! Single questions about processes, answered from /proc, and the probe that shows whether a library loads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use procfs::process::{Process, Stat};
use procfs::{ProcError, ProcResult};

use crate::environment::{Injection, Libraries, Variables};
use crate::foreign_process::{self, ForeignFile};
use crate::mapped_files::MappedFiles;
use crate::mapping_text;

/// State of a process as the kernel counts it; None when it is gone.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    open(pid).ok()?.stat().ok()
}

/// Start time of a process in clock ticks since boot: with the pid, its identity.
///
/// # Errors
/// When there is no such process.
pub fn start_ticks(pid: u32) -> ProcResult<u64> {
    Ok(open(pid)?.stat()?.starttime)
}

/// Uid of a process; None when it is gone.
#[must_use]
pub fn owner(pid: u32) -> Option<u32> {
    open(pid).ok()?.uid().ok()
}

/// Number of threads of a process; None when it is gone.
#[must_use]
pub fn threads(pid: u32) -> Option<u64> {
    u64::try_from(stat(pid)?.num_threads).ok()
}

/// `PROC_PID_INIT_INO` of linux/proc_ns.h.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether processes have the same numbers for this process as for the kernel.
#[must_use]
pub fn is_in_first_pid_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|about| about.ino() == FIRST_PID_NAMESPACE)
}

/// Identity of this boot.
///
/// # Errors
/// When /proc cannot be read.
pub fn boot_id() -> ProcResult<String> {
    procfs::sys::kernel::random::boot_id()
}

/// Returns the resident bytes of a process, with files; `None` where it has none, as one that has ended.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let pages = mapping_text::ask_living(pid, |task| Some(stat(task)?.rss).filter(|pages| *pages > 0));
    Some(pages? * procfs::page_size())
}

/// Returns the resident bytes of a process that are in no file and no shared memory; `None` where it has none.
#[must_use]
pub fn anonymous_bytes(pid: u32) -> Option<u64> {
    let kib = |task| open(task).ok()?.status().ok()?.rssanon.filter(|kib| *kib > 0);
    Some(mapping_text::ask_living(pid, kib)? << 10)
}

/// Returns the file that the process executes.
///
/// # Errors
/// When there is no such process, or it is not ours to look at.
pub fn executable_path(pid: u32) -> ProcResult<PathBuf> {
    let of_first = open(pid)?.exe();
    // Where the first thread has ended, it has none.
    if matches!(of_first, Err(ProcError::NotFound(_))) {
        open(mapping_text::living_thread(pid))?.exe()
    } else {
        of_first
    }
}

/// Whether the process of that id and start still runs (a zombie does not).
#[must_use]
pub fn is_running(pid: u32, start_ticks: u64) -> bool {
    let stat = open(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == start_ticks && !has_ended(&stat))
}

/// A first thread that has ended while others go on is shown as a zombie too.
fn has_ended(stat: &Stat) -> bool {
    stat.state == 'X' || (stat.state == 'Z' && stat.num_threads <= 1)
}

/// Whether the process has that file mapped.
///
/// # Errors
/// When its maps cannot be read.
pub fn maps(pid: u32, file: &Path) -> ProcResult<bool> {
    // The kernel names what is mapped by its real path: /run where /var/run was asked for.
    let real = std::fs::canonicalize(file);
    Ok(MappedFiles::of(pid)?.contains(real.as_deref().unwrap_or(file)))
}

/// The processes there are now.
///
/// # Errors
/// When /proc cannot be read.
pub fn pids() -> ProcResult<Vec<u32>> {
    let processes = procfs::process::all_processes()?.filter_map(Result::ok);
    Ok(processes.filter_map(|process| u32::try_from(process.pid).ok()).collect())
}

/// Returns what the process executes, and the files it has mapped.
///
/// # Errors
/// When there is no such process, or it is not ours to look at.
pub fn mapped_files(pid: u32) -> ProcResult<(PathBuf, MappedFiles)> {
    let files = MappedFiles::of(pid)?;
    Ok((executable_path(pid)?, files))
}

/// The words of the command line, the program's own name first; none for a zombie, for a kernel thread and
/// during an exec.
///
/// # Errors
/// When there is no such process. `FileTooLarge` when there are more than a mebibyte or 32,768 words of them.
/// `TimedOut` when the process does not let itself be looked at.
pub fn arguments(pid: u32) -> std::io::Result<Vec<OsString>> {
    words(pid, ForeignFile::CommandLine)
}

/// The environment the process was started with, `NAME=VALUE` each; none where there are no [`arguments`].
///
/// # Errors
/// When there is no such process, it is not ours to look at, or (Linux 6.16 on) it has ended. `FileTooLarge` as for
/// [`arguments`].
pub fn environment(pid: u32) -> std::io::Result<Vec<OsString>> {
    words(pid, ForeignFile::Environment)
}

/// Whether a process was started with the folder in its environment, or has a file in it mapped. Those that may not
/// be looked at count as strangers.
#[must_use]
pub fn is_in_use(folder: &Path) -> bool {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name = folder.file_name().unwrap_or(folder.as_os_str()).as_bytes();
    let names_it = |variable: &OsString| variable.as_bytes().windows(name.len()).any(|part| part == name);
    let has_it = |path: &Path| path.parent().is_some_and(|parent| parent == folder);
    let uses = |pid: &u32| {
        environment(*pid).is_ok_and(|variables| variables.iter().any(names_it))
            || mapped_files(*pid).is_ok_and(|(_, files)| files.iter().any(has_it))
    };
    !name.is_empty() && pids().unwrap_or_default().iter().any(uses)
}

/// Most words: each costs more than its bytes.
const MOST_WORDS: usize = 1 << 15;

fn words(pid: u32, file: ForeignFile) -> std::io::Result<Vec<OsString>> {
    let bytes = foreign_process::read(pid, file)?;
    let whole = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if whole.iter().filter(|byte| **byte == 0).count() >= MOST_WORDS {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    // One empty word is not none.
    let words = whole.split(|byte| *byte == 0).filter(|_| !bytes.is_empty());
    Ok(words.map(|word| OsString::from_vec(word.to_vec())).collect())
}

fn open(pid: u32) -> ProcResult<Process> {
    Process::new(i32::try_from(pid).map_err(|_| procfs::ProcError::NotFound(None))?)
}

/// Hidden first argument with which the command starts itself to see whether a library loads; see [`probe`].
pub const PROBE_ARGUMENT: &str = "__probe";

/// Starts this very command with the injection and sees whether the library is really mapped there.
///
/// The loader answers a library it cannot use in several ways (a message and no preload, exit 127, a signal):
/// only a clean exit that printed nothing on standard error and that saw the library mapped will do.
///
/// # Errors
/// The reason, for people, why it does not load.
pub fn probe(injection: &Injection<'_>, libraries: &Libraries, library: &Path) -> Result<(), String> {
    let variables = injection.variables(&Variables::new(), libraries).map_err(|error| error.to_string())?;
    let library = std::fs::canonicalize(library).map_err(|error| error.to_string())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(PROBE_ARGUMENT).arg(library).env_clear().envs(variables.iter()).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.lines().next().unwrap_or_default();
    match (output.status.success(), message.is_empty()) {
        (true, true) => Ok(()),
        (false, true) => Err(format!("a program started under it ended with {}", output.status)),
        (_, false) => Err(format!("the loader says: {message}")),
    }
}

/// Whether the library is mapped into this process, which [`probe`] started.
#[must_use]
pub fn probe_answer(library: &Path) -> bool {
    maps(std::process::id(), library).unwrap_or(false)
}

/// Name of a signal, as in `kill -l` with SIG in front; the number for one without a name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_is_itself() {
        let me = std::process::id();
        let start = start_ticks(me).unwrap();
        assert!(is_running(me, start) && !is_running(me, start + 1));
        assert_eq!(boot_id().unwrap().len(), 36);
    }

    #[test]
    fn a_folder_is_in_use_while_a_process_has_it_in_its_environment() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_in_use(folder.path()));
        let file = folder.path().join("record.control");
        let mut child = Command::new("sleep").env("SOME_FILE", &file).arg("60").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !is_in_use(folder.path()) {
            assert!(std::time::Instant::now() < deadline, "it is not seen");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_in_use(folder.path()));
    }

    #[test]
    fn arguments_and_environment_are_read_whole_however_long() {
        let long = "x".repeat(100_000);
        let mut command = Command::new("sleep");
        let mut child = command.env_clear().env("LONG", &long).args(["60"].repeat(5000)).spawn().unwrap();
        let pid = child.id();
        let read = (0..6000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Some((arguments(pid).unwrap(), environment(pid).unwrap_or_default()))
                // Both are missing before its exec is done.
                .filter(|(words, set)| words.first().is_some_and(|word| word == "sleep") && !set.is_empty())
        });
        child.kill().unwrap();
        // A zombie, which it is as soon as it has been on a CPU once more, has neither any more.
        let none_of_a_zombie = (0..6000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            arguments(pid).unwrap().is_empty() && environment(pid).unwrap_or_default().is_empty()
        });
        child.wait().unwrap();
        assert!(arguments(pid).is_err() && environment(pid).is_err());
        let (words, variables) = read.unwrap();
        assert_eq!(words.len(), 5001);
        assert_eq!(variables, [OsString::from(format!("LONG={long}"))]);
        assert!(none_of_a_zombie);
    }

    /// A process may put its command line over as much memory as it likes: here by more words, or more bytes, than
    /// the kernel would have given to it.
    #[test]
    fn an_endless_command_line_is_unknown() {
        const FORGED: &str = include_str!("../../../tests/programs/forged_command_line.py");
        for (fill, bytes) in [("", 64_u64 << 10), ("x", 2 << 20), ("", 4 << 30)] {
            let mut child = Command::new("python3")
                .args(["-c", FORGED, fill, &bytes.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 7];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            let read = arguments(child.id()).map(|words| words.len());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(&line, b"forged\n");
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::FileTooLarge, "{fill:?} {bytes}");
        }
    }

    #[test]
    fn an_empty_name_is_a_word() {
        use std::os::unix::process::CommandExt as _;
        let mut child = Command::new("cat").arg0("").stdin(Stdio::piped()).spawn().unwrap();
        let words = (0..6000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Some(arguments(child.id()).unwrap()).filter(|words| !words.is_empty())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(words.unwrap(), [""]);
    }

    #[test]
    fn mapped_files_are_listed() {
        let exe = std::env::current_exe().unwrap();
        assert!(maps(std::process::id(), &exe).unwrap());
        assert!(probe_answer(&exe) && !probe_answer(Path::new("/no/such.so")));
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(exe.parent().unwrap(), &link).unwrap();
        assert!(maps(std::process::id(), &link.join(exe.file_name().unwrap())).unwrap(), "by another path");
    }

    /// A program may end its first thread and go on in another: it has not ended then, and what it has mapped
    /// it has still mapped.
    #[test]
    fn a_process_whose_first_thread_has_ended_runs_on() {
        let code = "import ctypes, os, threading, time\n\
            threading.Thread(target=time.sleep, args=(600,)).start()\n\
            ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)";
        let mut child = Command::new("python3").args(["-c", code]).spawn().unwrap();
        let (pid, start) = (child.id(), start_ticks(child.id()).unwrap());
        let is_zombie = || open(pid).unwrap().stat().unwrap().state == 'Z';
        let seen = (0..6000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_zombie()
        });
        let runs = is_running(pid, start);
        let tasks = open(pid).unwrap().tasks().unwrap().flatten();
        let mut exes = tasks.filter_map(|task| std::fs::read_link(format!("/proc/{}/exe", task.tid)).ok());
        let exe = exes.next();
        let mapped = exe.as_ref().map(|exe| maps(pid, exe));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen && runs, "{seen} {runs}");
        assert!(mapped.unwrap().unwrap(), "{exe:?}");
        assert!(!is_running(pid, start));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(64), "signal 64");
    }
}
