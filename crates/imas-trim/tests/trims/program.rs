// SPDX-License-Identifier: Apache-2.0
//! Programs in C that know nothing of IMAS, print where a trim finds what it needs, and say what they have seen.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use imas_trim::{Done, LeftAlone, TrimSite, TrimTime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// Offset of `next` in an arena of glibc 2.27 to 2.42.
pub(crate) const NEXT: u64 = 0x870;
pub(crate) const BOUNDS: TrimTime = TrimTime { find: Duration::from_secs(60), end: Duration::from_secs(60) };

/// Compiles a program of the folder of tests.
pub(crate) fn compiled(folder: &Path, name: &str) -> PathBuf {
    compiled_with(folder, &format!("tests/{name}.c"), &[]).unwrap()
}

/// Compiles a program whose path begins in the folder of the crate; None where it cannot be compiled here.
pub(crate) fn compiled_with(folder: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = folder.join(source.file_stem().unwrap());
    let mut compiler = Command::new("cc");
    compiler.args(["-O0", "-pthread", "-o"]).arg(&program).arg(source).args(flags);
    compiler.status().unwrap().success().then_some(program)
}

/// Whether processes may be traced here.
pub(crate) fn may_trace() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(Command::new(compiled(folder.path(), "waits")).arg("read"));
    let may = program.trim() != Err(LeftAlone::NotAllowed);
    program.end();
    may
}

/// Words of an answer that say how a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: i64,
    pub(crate) code: i32,
}

/// A wait as the program has seen it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// Calls of malloc_trim during it.
    pub(crate) trims: u32,
}

/// The first bytes of code of a process.
pub(crate) fn code_at(pid: u32, address: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, address).unwrap();
    bytes
}

static STARTED: AtomicU32 = AtomicU32::new(0);

/// The process of `waits` that was started with these words. Its bell has them as well, and a later number.
fn running(sign: &str) -> u32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words[0].ends_with(b"/waits") && words.contains(&sign.as_bytes())
    };
    numbers.filter(is_it).min().expect("the program runs")
}

#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    answers: BufReader<ChildStdout>,
    pub(crate) site: TrimSite,
    /// Number of the process, which has its own one in a namespace.
    pub(crate) pid: u32,
    thread: i32,
    call: String,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::read(command, |child, thread| (child.id(), thread))
    }

    /// Starts the program by another one, in a namespace where it has a number of its own.
    pub(crate) fn start_within(command: &mut Command) -> Self {
        // No other process has these words.
        let sign = format!("test-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        Self::read(command.args(["0", "", &sign]), |_, _| {
            let pid = running(&sign);
            (pid, pid.try_into().unwrap())
        })
    }

    fn read(command: &mut Command, numbers: impl FnOnce(&Child, i32) -> (u32, i32)) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [trim, sigreturn, arena, thread, call] = words[..] else { panic!("{command:?}: {line}") };
        let (pid, thread) = numbers(&child, thread.parse().unwrap());
        let address = |word: &str| u64::from_str_radix(&word[2..], 16).unwrap();
        let code = |word: &str| (address(word), code_at(pid, address(word)));
        let (malloc_trim, sigreturn) = (code(trim), code(sigreturn));
        let site = TrimSite { malloc_trim, sigreturn, first_arena: address(arena), next: NEXT };
        let call = call.to_owned();
        Self { child, answers, site, pid, thread, call }
    }

    pub(crate) fn trim(&self) -> Result<Done, LeftAlone> {
        let done = imas_trim::trim(self.pid, &self.site, BOUNDS);
        assert!(!self.is_traced(), "{done:?}");
        done
    }

    pub(crate) fn is_traced(&self) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/task/{}/status", self.pid, self.thread)).unwrap();
        !status.contains("TracerPid:\t0\n")
    }

    /// Waits until the thread waits in its call.
    pub(crate) fn waits(&self) {
        let file = format!("/proc/{}/task/{}/syscall", self.pid, self.thread);
        let begun = Instant::now();
        while std::fs::read_to_string(&file).unwrap().split(' ').next() != Some(&self.call) {
            assert!(begun.elapsed() < BOUNDS.find, "{self:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the process, and lets it go on.
    pub(crate) fn stop_and_go_on(&self) {
        let pid = Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let begun = Instant::now();
        while !std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap().contains(") T ") {
            assert!(begun.elapsed() < BOUNDS.find, "{self:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_process(pid, Signal::CONT).unwrap();
    }

    /// Asks the bell of the program for something.
    pub(crate) fn ask(&mut self, letter: u8) {
        self.child.stdin.as_mut().unwrap().write_all(&[letter]).unwrap();
    }

    /// Whether a wait is over that was not read, or is within this number of seconds.
    pub(crate) fn has_seen(&self, seconds: i64) -> bool {
        let mut input = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        let longest = Timespec { tv_sec: seconds, tv_nsec: 0 };
        !self.answers.buffer().is_empty() || poll(&mut input, Some(&longest)).unwrap() > 0
    }

    /// The next wait that is over.
    pub(crate) fn seen(&mut self) -> Seen {
        assert!(self.has_seen(60), "its wait does not end: {self:?}");
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let words: Vec<i64> = line.split_whitespace().map(|word| word.parse().expect(&line)).collect();
        let [result, code, took, trims] = words[..] else { panic!("{line}") };
        Seen {
            outcome: Outcome { result, code: code.try_into().unwrap() },
            took: Duration::from_micros(took.try_into().unwrap()),
            trims: trims.try_into().unwrap(),
        }
    }

    /// Ends the program, whose memory must be as it was. Returns what it has said.
    pub(crate) fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.answers.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && said.ends_with("as before\n"), "{status}: {said}");
        said
    }
}
