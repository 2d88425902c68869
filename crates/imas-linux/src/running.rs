// SPDX-License-Identifier: Apache-2.0
//! Running processes: the program that each runs, its files and its environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use procfs::process::Process;

use crate::activity::MOST_THREADS;
use crate::foreign_process::{self, Finding};
use crate::index::{ServiceUnit, group_of_cgroup};
use crate::interpreter_target::{self, InterpreterTarget};
use crate::mapped_files::{self, MappedFiles};
use crate::mapping_text;
use crate::program::Program;
use crate::sampler::family;
use crate::variables::Variables;

/// Digits of a container's id, and fewest of them that are taken for one.
const ID: usize = 64;
const LEAST_OF_ID: usize = 12;

/// A process that may be looked into.
#[derive(Debug, Clone)]
pub struct Running {
    /// Id of the process.
    pub pid: u32,
    /// The program that it runs.
    pub program: Program,
    /// The service it belongs to, of the system or of a user.
    pub unit: Option<ServiceUnit>,
    /// The control group in which systemd keeps it.
    pub(crate) control_group: String,
    /// Files that are mapped into the process.
    pub(crate) mapped: MappedFiles,
    /// The environment it was started with, `NAME=VALUE` each.
    pub(crate) environment: Vec<OsString>,
}

/// Every process that this user may look into, but kernel threads.
#[must_use]
pub fn all() -> Vec<Running> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| of(&process)).collect()
}

/// One process; `None` when it is gone or may not be looked into.
#[must_use]
pub fn one(pid: u32) -> Option<Running> {
    of(&Process::new(i32::try_from(pid).ok()?).ok()?)
}

/// The program that the process runs; `None` when it is gone or may not be looked into.
#[must_use]
pub fn program_of(pid: u32) -> Option<Program> {
    let text = foreign_process::find_out(pid, Finding::Program, program_text).ok()?;
    let end = text.iter().position(|byte| *byte == 0)?;
    let path = PathBuf::from(OsStr::from_bytes(&text[..end]));
    Some(Program { path, detail: String::from_utf8(text[end + 1..].to_vec()).ok()? })
}

/// Whether the process does not let itself be looked at: its memory or a file that it names does not answer, or its owner's
/// processes have taken too much time.
#[must_use]
pub fn is_silent(pid: u32) -> bool {
    let program = foreign_process::find_out(pid, Finding::Program, program_text);
    [program, foreign_process::find_out(pid, Finding::MappedFiles, mapped_files::text_of)]
        .into_iter()
        .any(|read| read.is_err_and(|error| error.kind() == ErrorKind::TimedOut))
}

/// The program that the process runs, as [`program_of`] reads it: its path, a zero, its detail. The files that its
/// arguments name are looked at, in this very process.
pub(crate) fn program_text(pid: u32) -> Result<Vec<u8>> {
    let Program { path, detail } = program(pid).ok_or(rustix::io::Errno::SRCH)?;
    Ok([path.as_os_str().as_bytes(), &[0], detail.as_bytes()].concat())
}

fn of(process: &Process) -> Option<Running> {
    let pid = u32::try_from(process.pid()).ok()?;
    let program = program_of(pid)?;
    let mapped = MappedFiles::of(pid).ok()?;
    let environment = crate::process::environment(pid).unwrap_or_default();
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let control_group = group_of_cgroup(&groups).unwrap_or_default().to_owned();
    let unit = ServiceUnit::of_cgroup(&groups);
    let running = Running { pid, program, unit, control_group, mapped, environment };
    // All of it was read of one program only if that still runs.
    (crate::process::executable_path(pid).ok()? == running.program.path).then_some(running)
}

/// Whether the process is a copy of its parent that never executed anything itself: it has the parent's
/// allocator, and cannot get another one. The kernel puts the stack of each exec somewhere else, so a copy is
/// known by its place.
#[must_use]
pub fn is_copy_of_its_parent(pid: u32) -> bool {
    let stat = |pid: i32| {
        let task = mapping_text::living_thread(u32::try_from(pid).ok()?);
        Process::new(i32::try_from(task).ok()?).ok()?.stat().ok()
    };
    let Some(own) = i32::try_from(pid).ok().and_then(stat) else { return false };
    let Some(parent) = stat(own.ppid) else { return false };
    let place = |stat: &procfs::process::Stat| (stat.startstack, stat.arg_start, stat.startcode);
    own.startstack != 0 && place(&own) == place(&parent)
}

/// A process and its descendants that were forked without exec, the process first: all have one allocator. None where
/// they have too many threads to be looked at ([`crate::activity::MOST_THREADS`]).
#[must_use]
pub fn copies(pid: u32) -> Option<Vec<u32>> {
    family(pid, is_copy_of_its_parent, MOST_THREADS)
}

fn program(pid: u32) -> Option<Program> {
    let path = crate::process::executable_path(pid).ok()?;
    let folder = std::fs::read_link(format!("/proc/{}/cwd", mapping_text::living_thread(pid))).ok();
    let words = crate::process::arguments(pid).ok()?;
    // Without any it is in its exec or ending: its target is unknown.
    let given = words.get(1..)?.iter();
    // A script is often named from where the program was started.
    let arguments: Vec<_> = given
        .map(|word| match &folder {
            Some(folder) if Path::new(word).is_relative() && folder.join(word).is_file() => {
                folder.join(word).into_os_string()
            }
            _ => word.clone(),
        })
        .collect();
    let given = InterpreterTarget::to(&path, &arguments).detail();
    let named = || {
        words.first().map_or_else(String::new, |first| interpreter_target::detail_of_running(&path, first))
    };
    Some(Program { detail: if given.is_empty() { named() } else { given }, path })
}

impl Running {
    /// The name of the system's service it belongs to.
    #[must_use]
    pub fn system_unit(&self) -> Option<&str> {
        self.unit.as_ref()?.system_name()
    }

    /// Whether it is in that control group, or in one below.
    #[must_use]
    pub fn is_in_group(&self, group: &str) -> bool {
        self.control_group.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether the name of its control group has this id of a container, or an id that begins so. Whoever owns a group
    /// names it: a name is no proof of anything.
    #[must_use]
    pub fn is_of_container(&self, id: &str) -> bool {
        let is_id = id.len() >= LEAST_OF_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let words = || self.control_group.split(|one: char| !one.is_ascii_hexdigit());
        is_id && words().any(|word| word.len() == ID && word.starts_with(id))
    }

    /// Files that are mapped into the process.
    pub fn mapped(&self) -> impl Iterator<Item = &Path> {
        self.mapped.iter()
    }

    /// Files that are mapped into the process, with what became of them.
    #[must_use]
    pub fn files(&self) -> &MappedFiles {
        &self.mapped
    }

    /// The variables of the environment it was started with, whose names are wanted.
    #[must_use]
    pub fn variables(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let pairs = self.environment.iter().filter_map(|pair| pair.to_str()?.split_once('='));
        let wanted = pairs.filter(|(name, _)| is_wanted(name));
        wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// All variables of the environment it was started with.
    pub(crate) fn all_variables(&self) -> Variables {
        let mut variables = Variables::new();
        for pair in &self.environment {
            let bytes = pair.as_bytes();
            let Some(end) = bytes.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (OsStr::from_bytes(&bytes[..end]), OsStr::from_bytes(&bytes[end + 1..]));
            variables.push(name.to_owned(), value.to_owned());
        }
        variables
    }

    /// Whether the library is mapped: from its own place, as it was there before an upgrade, or from beside the guard,
    /// where a bundle has it.
    pub(crate) fn maps(&self, library: &Path) -> bool {
        let beside = || Some(self.mapped.folder_of_guard()?.join(library.file_name()?));
        self.mapped.contains(library)
            || self.mapped.has_earlier(library)
            || beside().is_some_and(|file| self.mapped.contains(&file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_its_processes_and_those_below() {
        let mut running = one(std::process::id()).unwrap();
        "/system.slice/cron.service/a".clone_into(&mut running.control_group);
        let groups = [
            "/system.slice/cron.service",
            "/system.slice/cron.service/a",
            "/system.slice/cron.serv",
            "/b.service",
        ];
        assert_eq!(groups.map(|group| running.is_in_group(group)), [true, true, false, false]);
    }

    /// A worker that only forks, and one that executes the same file.
    #[test]
    fn a_copy_is_known_from_an_exec() {
        let code = "import os, subprocess, sys\nr, w = os.pipe()\n\
                    other = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'])\nown = os.fork()\n\
                    if own == 0: os.close(w); os.read(r, 1); os._exit(0)\nprint(own, other.pid, flush=True); sys.stdin.read(); os.close(w); os.wait()";
        let mut child = std::process::Command::new("python3")
            .args(["-c", code])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut answers = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut answers, &mut line).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        // The other one is known as soon as its exec is over.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while is_copy_of_its_parent(pids[1]) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let found = [pids[0], pids[1], u32::MAX].map(is_copy_of_its_parent);
        let family = copies(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, [true, false, false]);
        assert_eq!(family, Some(vec![child.id(), pids[0]]), "what executes another image is no copy");
    }

    #[test]
    fn a_process_during_an_exec_is_read_consistently_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("again.sh");
        std::fs::write(&script, "[ $1 -eq 0 ] || exec /bin/sh \"$0\" $(($1 - 1))\n").unwrap();
        let mut child = std::process::Command::new("/bin/sh").arg(&script).arg("2000").spawn().unwrap();
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let mut seen = 0;
        while child.try_wait().unwrap().is_none() {
            let Some(program) = program_of(child.id()).filter(|program| program.path == shell) else {
                continue;
            };
            assert_eq!(program.detail, script.to_string_lossy());
            seen += 1;
        }
        assert!(seen > 0);
    }

    #[test]
    fn this_process_is_found() {
        let me = std::process::id();
        let program = program_of(me).unwrap();
        assert_eq!(program.path, std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap());
        let found = all().into_iter().find(|running| running.pid == me).unwrap();
        assert_eq!(found.program, program);
        assert!(found.maps(&program.path));
    }
}
