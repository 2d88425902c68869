// SPDX-License-Identifier: Apache-2.0
//! Facts about a process from the kernel, never from its page.
//!
//! The look at a process, made by a helper (`imas_linux::foreign_process`): the working directory and the files that a
//! process names may lie on a file system that never answers.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use imas_core::sample::Usage;
use imas_linux::c_bytes::fnv64;
use imas_linux::index::{
    Detail, Executable, detail_of_unit, template_of_unit, unit_of_cgroup, unit_of_detail,
};
use imas_linux::interpreter_target::{self, Interpreter, InterpreterTarget};
use imas_linux::mapping_text;
use imas_linux::process::stat;
use procfs::process::Process;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// `PF_KTHREAD` of linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A process's identity: the id alone is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Id of the process.
    pub(crate) pid: u32,
    /// Time when the process started, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

/// Age of a process and the CPU time that it has used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Life {
    pub(crate) identity: Identity,
    /// User and system CPU, seconds.
    pub(crate) cpu_s: f64,
    /// Seconds since the process's start.
    pub(crate) age_s: f64,
}

/// Workers are searched for down to this generation below the process that systemd started.
const GENERATIONS: usize = 8;

/// Facts about a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessInfo {
    pub(crate) identity: Identity,
    /// Effective uid.
    pub(crate) uid: u32,
    /// Path of its executable, as the kernel names it.
    #[serde(with = "path_bytes")]
    pub(crate) path: PathBuf,
    /// The file itself.
    pub(crate) executable: Executable,
    /// Detail of what the process is given to run, as the hook looks it up.
    pub(crate) detail: Detail,
    /// Detail of the program as text, for people and for the store.
    pub(crate) detail_text: String,
    /// Number of the process's threads now.
    pub(crate) threads: u32,
    /// The process has a pid namespace of its own: what runs there has its own files and accounts.
    pub(crate) in_container: bool,
    /// The systemd service it belongs to, of an instance its template, as the hook reads it; for an
    /// interpreter, which is identified by its script, none.
    unit: Option<String>,
}

impl ProcessInfo {
    /// Whether the hook may find the entry of that detail for this process: what it is given to run, else
    /// its service, else the executable itself.
    pub(crate) fn leads_to(&self, detail: &Detail) -> bool {
        let of_unit =
            self.unit.is_some() && matches!(self.detail, Detail::Unit(_) | Detail::Name(_) | Detail::None);
        match detail {
            Detail::Unit(name) => of_unit && self.unit.as_ref() == Some(name),
            // The hook sees the path that was executed. Here is only the name that the process gives itself.
            Detail::Name(_) => of_unit || matches!(self.detail, Detail::Name(_) | Detail::None),
            Detail::None => of_unit || self.detail == Detail::None,
            _ => self.detail == *detail,
        }
    }
}

/// Life of a process; `None` for one that has ended, is a zombie or belongs to the kernel.
pub(crate) fn life(pid: u32) -> Option<Life> {
    let stat = stat(pid)?;
    if matches!(stat.state, 'Z' | 'X') || stat.flags & KERNEL_THREAD != 0 {
        return None;
    }
    let ticks_s = procfs::ticks_per_second() as f64;
    let now_s = imas_linux::index::boot_time_ns() as f64 / 1e9;
    Some(Life {
        identity: Identity { pid, start_ticks: stat.starttime },
        cpu_s: (stat.utime + stat.stime) as f64 / ticks_s,
        age_s: (now_s - stat.starttime as f64 / ticks_s).max(0.0),
    })
}

/// Resources that the kernel has accounted to the process until now.
pub(crate) fn usage(identity: Identity) -> Option<Usage> {
    let process = Process::new(i32::try_from(identity.pid).ok()?).ok()?;
    let status = process.status().ok()?;
    let most = mapping_text::ask_living(identity.pid, |task| {
        Process::new(i32::try_from(task).ok()?).ok()?.status().ok()?.vmhwm
    });
    let stat = process.stat().ok().filter(|stat| stat.starttime == identity.start_ticks)?;
    let ticks_s = procfs::ticks_per_second() as f64;
    Some(Usage {
        user_s: stat.utime as f64 / ticks_s,
        system_s: stat.stime as f64 / ticks_s,
        minor_faults: stat.minflt,
        major_faults: stat.majflt,
        max_rss_bytes: most.unwrap_or(0) * 1024,
        voluntary_switches: status.voluntary_ctxt_switches.unwrap_or(0),
        involuntary_switches: status.nonvoluntary_ctxt_switches.unwrap_or(0),
    })
}

/// Whether the process of that identity has not ended.
pub(crate) fn is_running(identity: Identity) -> bool {
    imas_linux::process::is_running(identity.pid, identity.start_ticks)
}

/// Looks at a process from this very one, which may have to wait for a file system for ever: imasd asks a helper
/// (`process_question`). `None` when it is gone, is another by now, or may not be looked at.
pub(crate) fn look(identity: Identity) -> Option<ProcessInfo> {
    let folder = PathBuf::from(format!("/proc/{}", mapping_text::living_thread(identity.pid)));
    let about = std::fs::metadata(folder.join("exe")).ok()?;
    let path = std::fs::read_link(folder.join("exe")).ok()?;
    let (first, given) = target(identity.pid, &path)?;
    let cwd = folder.join("cwd");
    let executable = Executable::from(&about);
    let unit = if Interpreter::of(&path).is_none() { unit(&folder) } else { None };
    let (detail, detail_text) = match &unit {
        Some(unit) if is_its_program(identity.pid, executable) => {
            (Detail::Unit(unit.clone()), detail_of_unit(unit))
        }
        _ if given == InterpreterTarget::Nothing => name_of_start(&path, &first),
        _ => (Detail::of(&given, &cwd), detail_text(&given, &cwd)),
    };
    let uid = std::fs::metadata(&folder).ok()?.uid();
    let in_container = pid_namespace(&folder)? != own_pid_namespace()?;
    let (detail, detail_text) = kept(detail, detail_text);
    let threads = u32::try_from(stat(identity.pid)?.num_threads).unwrap_or(1);
    let seen =
        ProcessInfo { identity, uid, path, executable, detail, detail_text, threads, in_container, unit };
    // All of it was read of one process and of one image only if that still runs.
    (self::executable(identity) == Some(executable)).then_some(seen)
}

/// The first word of the command line, and the script or module that the process runs. Without any arguments
/// it is in its exec or ending. Then its target is unknown, as where the command line of an interpreter is
/// too long to be read. No other program has a target.
fn target(pid: u32, path: &Path) -> Option<(OsString, InterpreterTarget)> {
    match imas_linux::process::arguments(pid) {
        Ok(arguments) => {
            let (first, given) = arguments.split_first()?;
            Some((first.clone(), InterpreterTarget::to(path, given)))
        }
        Err(error) if error.kind() == ErrorKind::FileTooLarge && Interpreter::of(path).is_none() => {
            Some((OsString::new(), InterpreterTarget::Nothing))
        }
        Err(_) => None,
    }
}

/// The name by which the program was started, where it makes another program of its file.
fn name_of_start(path: &Path, first_argument: &OsStr) -> (Detail, String) {
    let text = interpreter_target::detail_of_foreign(path, first_argument);
    (detail_of_text(&text), text)
}

fn pid_namespace(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder.join("ns/pid")).ok().map(|about| about.ino())
}

fn own_pid_namespace() -> Option<u64> {
    static OWN: OnceLock<Option<u64>> = OnceLock::new();
    *OWN.get_or_init(|| pid_namespace(Path::new("/proc/self")))
}

fn unit(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("cgroup")).ok()?;
    unit_of_cgroup(&text).map(|unit| template_of_unit(unit).into_owned())
}

/// Whether systemd has started the process as a service's program, or another process of that program has.
/// A program that a service calls (a compiler that a build server runs, a job of cron) is the same program as
/// elsewhere.
fn is_its_program(pid: u32, executable: Executable) -> bool {
    let mut pid = pid;
    for _ in 0..GENERATIONS {
        let parent = parent_of(pid);
        if parent <= 1 {
            return parent == 1;
        }
        let theirs = std::fs::metadata(format!("/proc/{}/exe", mapping_text::living_thread(parent))).ok();
        if theirs.is_none() && parent_of(pid) != parent {
            // It has ended meanwhile, as the parent of a daemon does.
            continue;
        }
        if theirs.is_none_or(|theirs| Executable::from(&theirs) != executable) {
            return false;
        }
        pid = parent;
    }
    false
}

/// 0 when the process is gone.
fn parent_of(pid: u32) -> u32 {
    stat(pid).and_then(|stat| u32::try_from(stat.ppid).ok()).unwrap_or(0)
}

/// The executable that the process runs now; `None` when it is gone.
pub(crate) fn executable(identity: Identity) -> Option<Executable> {
    let executable = imas_linux::foreign_process::executable(identity.pid).ok()?;
    is_running(identity).then_some(executable)
}

/// Whether the process, by its environment, belongs to the tree of that run folder.
pub(crate) fn reads_index_below(identity: Identity, run_dir: &Path) -> bool {
    let wanted = [imas_abi::env::RUN.as_bytes(), b"=", run_dir.as_os_str().as_bytes()].concat();
    let environment = imas_linux::process::environment(identity.pid).unwrap_or_default();
    environment.iter().any(|variable| variable.as_bytes() == wanted)
}

/// A descriptor that becomes readable when the process ends, and the proof that it is that process.
pub(crate) fn hold(identity: Identity) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Read after opening: had the id passed to another process before, its start would differ.
    is_running(identity).then_some(held)
}

/// Text of what a process is given to run, as [`InterpreterTarget::detail`], with files named from the
/// process's own working directory.
fn detail_text(given: &InterpreterTarget, cwd: &Path) -> String {
    let whole = |word: &OsStr| {
        let file = std::fs::canonicalize(cwd.join(word)).ok().filter(|path| path.is_file());
        file.map_or_else(|| word.to_string_lossy().into_owned(), |path| path.to_string_lossy().into_owned())
    };
    match given {
        InterpreterTarget::Nothing => String::new(),
        InterpreterTarget::Code(option) => option.to_string_lossy().into_owned(),
        InterpreterTarget::Named(option, name) => format!("{} {}", option.to_string_lossy(), whole(name)),
        InterpreterTarget::Word(word) => whole(word),
    }
}

/// Detail that the index needs of a text in the store: the other way of [`ProcessInfo::detail_text`].
pub(crate) fn detail_of_text(text: &str) -> Detail {
    if let Some(key) = key_of_kept(text) {
        return Detail::LongText(key);
    }
    if let Some(unit) = unit_of_detail(text) {
        return Detail::Unit(unit.to_owned());
    }
    if let Some(name) = interpreter_target::name_of_detail(text) {
        return Detail::Name(name.to_owned());
    }
    let given = match text.split_once(' ') {
        _ if text.is_empty() => InterpreterTarget::Nothing,
        Some((option, name)) if option.starts_with('-') => {
            InterpreterTarget::Named(OsString::from(option), OsString::from(name))
        }
        None if text.starts_with('-') => InterpreterTarget::Code(OsString::from(text)),
        _ => InterpreterTarget::Word(OsStr::from_bytes(text.as_bytes()).to_owned()),
    };
    Detail::of(&given, Path::new("/"))
}

// What an interpreter is given may be as long as a command line: 128 KiB a word. It is kept up to a length;
// of more, the beginning for people, and hash and length, by which the hook finds the program.

/// Kept as it is up to this length in bytes; what is shortened is longer, so that neither is taken for the
/// other.
const LONGEST: usize = 1024;

/// Between the beginning and the rest of a shortened text.
const CUT: &str = "... [";
/// Text between length and hash.
const BYTES: &str = " bytes, fnv64 ";

/// Detail and its text as they are kept.
pub(super) fn kept(detail: Detail, text: String) -> (Detail, String) {
    let detail = match detail {
        Detail::Text(whole) if whole.len() > LONGEST => Detail::LongText([fnv64(&whole), whole.len() as u64]),
        other => other,
    };
    let key = match detail {
        Detail::LongText(key) => key,
        _ => [fnv64(text.as_bytes()), text.len() as u64],
    };
    let text = if text.len() > LONGEST { shortened(&text, key) } else { text };
    (detail, text)
}

fn shortened(text: &str, [hash, bytes]: [u64; 2]) -> String {
    // At the end of a character, and not below the limit.
    let end = (LONGEST..).find(|at| text.is_char_boundary(*at)).unwrap_or(LONGEST);
    format!("{}{CUT}{bytes}{BYTES}{hash:016x}]", text.get(..end).unwrap_or_default())
}

/// Hash and length of the text that was shortened to this one; `None` for what is no shortened text.
fn key_of_kept(text: &str) -> Option<[u64; 2]> {
    let text = text.strip_suffix(']').filter(|_| text.len() > LONGEST)?;
    let (_, rest) = text.rsplit_once(CUT)?;
    let (bytes, hash) = rest.split_once(BYTES)?;
    Some([u64::from_str_radix(hash, 16).ok()?, bytes.parse().ok()?])
}

/// Looks at a process. `None` when it is gone, is another by now, or may not be looked at.
pub(super) fn look_by_helper(identity: Identity) -> Option<ProcessInfo> {
    let answer = imas_linux::foreign_process::ask(identity.pid, answer_question).ok()?;
    serde_json::from_slice(&answer).ok().filter(|seen: &ProcessInfo| seen.identity == identity)
}

/// The helper's side of [`look_by_helper`].
pub(super) fn answer_question(pid: u32) -> Result<Vec<u8>> {
    let life = life(pid).ok_or(ErrorKind::NotFound)?;
    let seen = look(life.identity).ok_or_else(gone)?;
    Ok(serde_json::to_vec(&seen)?)
}

/// An error with a number, by which it comes through the socket.
fn gone() -> Error {
    rustix::io::Errno::SRCH.into()
}

/// A path as bytes, for serde: it need not be text.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(PathBuf::from(OsString::from_vec(Vec::deserialize(deserializer)?)))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_info_describes_the_process() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.sh"), "read x\n").unwrap();
        let mut child = Command::new("/bin/sh")
            .arg("s.sh")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let life = life(child.id()).unwrap();
        let held = hold(life.identity);
        imas_testing::wait_for_exec(&child);
        // During its exec it has no memory to speak of yet.
        let seen = (0..6000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let usage = usage(life.identity).filter(|usage| usage.max_rss_bytes > 0);
            look(life.identity).zip(usage)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let (seen_process, _) = seen.unwrap();
        assert!(held.is_some() && life.age_s >= 0.0);
        assert_eq!(seen_process.path, std::fs::canonicalize("/bin/sh").unwrap());
        let script = std::fs::canonicalize(folder.path().join("s.sh")).unwrap();
        assert_eq!(seen_process.detail_text, script.to_string_lossy());
        assert_eq!(
            seen_process.detail,
            detail_of_text(&seen_process.detail_text),
            "the store's text names the same file"
        );
        assert!(look(life.identity).is_none() && hold(life.identity).is_none());
    }

    #[test]
    fn a_process_is_known_by_the_link_by_which_it_was_started() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("waits-for-input"), folder.path().join("server"));
        imas_testing::copy_program(std::path::Path::new("/bin/cat"), &file);
        std::os::unix::fs::symlink("waits-for-input", &link).unwrap();
        let details = [&link, &file].map(|started| {
            let mut child =
                Command::new(started).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let identity = life(child.id()).unwrap().identity;
            let seen = (0..6000).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                look(identity).filter(|seen| seen.path == file)
            });
            child.kill().unwrap();
            child.wait().unwrap();
            seen.unwrap()
        });
        assert_eq!(details[0].detail, Detail::Name("server".to_owned()));
        assert_eq!(details[0].detail_text, "as server");
        assert_eq!((&details[1].detail, details[1].detail_text.as_str()), (&Detail::None, ""));
        // A process may call itself otherwise than it was started; one of the file's name is another program.
        assert!(
            details[0].leads_to(&Detail::Name("sentinel".to_owned())) && !details[0].leads_to(&Detail::None)
        );
    }

    /// A page is made before the exec that places the process: imasd looks at processes during one
    /// as a rule, not as an exception. What it reads must not be torn between two images, or between a life
    /// and its end.
    #[test]
    fn a_process_during_an_exec_is_read_consistently_or_not_at_all() {
        const EXECS: u32 = 2000;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a-name-that-is-longer-than-one-small-read-of-the-command-line.sh");
        std::fs::write(&script, "[ $1 -eq 0 ] || exec /bin/sh \"$0\" $(($1 - 1))\n").unwrap();
        let mut child = Command::new("/bin/sh").arg(&script).arg(EXECS.to_string()).spawn().unwrap();
        let identity = life(child.id()).unwrap().identity;
        let mut seen = 0;
        while child.try_wait().unwrap().is_none() {
            let Some(seen_process) = look(identity) else { continue };
            if Interpreter::of(&seen_process.path).is_some() {
                assert_eq!(
                    seen_process.detail_text,
                    std::fs::canonicalize(&script).unwrap().to_string_lossy()
                );
                seen += 1;
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn another_process_of_the_same_id_is_not_taken_for_it() {
        let me = life(std::process::id()).unwrap().identity;
        let other = Identity { start_ticks: me.start_ticks + 1, ..me };
        assert!(look(me).is_some() && look(other).is_none() && hold(other).is_none());
    }

    #[test]
    fn the_hook_may_go_from_a_service_to_its_entry_or_to_the_executables_own() {
        let me = life(std::process::id()).unwrap().identity;
        let seen = look(me).unwrap();
        let unit = |name: &str| Detail::Unit(name.to_owned());
        let service =
            ProcessInfo { detail: unit("a.service"), unit: Some("a.service".to_owned()), ..seen.clone() };
        assert!(service.leads_to(&unit("a.service")) && service.leads_to(&Detail::None));
        assert!(!service.leads_to(&unit("b.service")) && !service.leads_to(&Detail::Text(b"-c".to_vec())));
        let called = ProcessInfo { detail: Detail::None, ..service.clone() };
        assert!(called.leads_to(&unit("a.service")) && called.leads_to(&Detail::None));
        let script = ProcessInfo { detail: Detail::Text(b"-c".to_vec()), unit: None, ..seen };
        assert!(script.leads_to(&Detail::Text(b"-c".to_vec())));
        assert!(!script.leads_to(&Detail::None) && !script.leads_to(&unit("a.service")));
    }

    #[test]
    fn texts_of_the_store_become_details_again() {
        assert_eq!(detail_of_text(""), Detail::None);
        assert_eq!(detail_of_text("unit a@1.service"), Detail::Unit("a@1.service".to_owned()));
        assert_eq!(detail_of_text("as redis-server"), Detail::Name("redis-server".to_owned()));
        assert_eq!(detail_of_text("-c"), Detail::Text(b"-c".to_vec()));
        assert_eq!(detail_of_text("-m http.server"), Detail::Text(b"-m http.server".to_vec()));
        assert_eq!(detail_of_text("org.example.Main"), Detail::Text(b"org.example.Main".to_vec()));
    }

    fn of(text: &str) -> (Detail, String) {
        kept(Detail::Text(text.as_bytes().to_vec()), text.to_owned())
    }

    #[test]
    fn a_text_up_to_the_limit_is_kept_as_it_is() {
        for text in ["", "-m http.server", &"x".repeat(LONGEST)] {
            assert_eq!(of(text), (Detail::Text(text.as_bytes().to_vec()), text.to_owned()));
            assert_eq!(key_of_kept(text), None);
        }
    }

    #[test]
    fn a_longer_one_is_found_by_hash_and_length() {
        for long in ["x".repeat(LONGEST + 1), "é".repeat(60_000), format!("x{}", "é".repeat(LONGEST))] {
            let (detail, text) = of(&long);
            assert!(text.len() > LONGEST && text.len() < LONGEST + 100, "{}", text.len());
            assert_eq!(
                detail.key(),
                Detail::Text(long.clone().into_bytes()).key(),
                "as the hook looks it up"
            );
            assert_eq!(key_of_kept(&text).map(Detail::LongText), Some(detail));
        }
        let (one, other) = (of(&format!("{}a", "x".repeat(9999))), of(&format!("{}b", "x".repeat(9999))));
        assert_ne!(one, other);
        assert_ne!(one.1, other.1);
    }

    #[test]
    fn bytes_that_are_no_text_are_hashed_as_they_are() {
        let bytes = vec![0xff; 2000];
        let (detail, text) = kept(Detail::Text(bytes.clone()), String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(detail.key(), Detail::Text(bytes).key());
        assert_eq!(key_of_kept(&text).map(Detail::LongText), Some(detail));
    }
}
