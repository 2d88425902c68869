// SPDX-License-Identifier: Apache-2.0
//! Heaps of other processes as they are read, compared with what glibc says of itself in them and with what
//! `malloc_trim(0)` then returned.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod hostile;
mod made_cases;
mod made_memory;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use imas_linux::heap::figures::HeapFigures;
use imas_linux::process_trim;
use imas_testing::deadline;

/// Bytes that a figure may be off, if that is more than a twentieth.
const MOST_OFF: u64 = 1 << 20;

fn assert_near(what: &str, found: u64, expected: u64) {
    let off = found.abs_diff(expected);
    assert!(off <= MOST_OFF.max(expected / 20), "{what}: {found}, expected {expected}, off by {off}");
}

/// Figures of one look. None if its time was over before it read anything, as on a busy machine.
fn look(pid: u32) -> Option<HeapFigures> {
    match process_trim::heaps_of(pid) {
        Err(refused) if refused.0 == "reading them took too long" => None,
        found => Some(found.unwrap()),
    }
}

/// A look that has read all; after a deadline the last one. On a busy machine its time may be over before.
fn looked_at(pid: u32) -> HeapFigures {
    let (begun, limit) = (Instant::now(), deadline(60));
    loop {
        let found = look(pid);
        if found.as_ref().is_some_and(|found| !found.is_estimate()) || begun.elapsed() > limit {
            return found.unwrap();
        }
    }
}

/// Compares with mallinfo2, then with what a trim returns.
fn compare(mut subject: Subject) {
    let found = looked_at(subject.pid());
    let [free, live, held] = subject.says();
    assert!(!found.is_estimate(), "{found:?}");
    assert_near("free", found.bytes.all_free(), free);
    assert_near("live", found.bytes.live + found.bytes.cached, live);
    assert_near("held", found.held, held);
    let [before, after] = subject.trims().map(|kib| kib << 10);
    assert_near("returnable", found.bytes.returnable, before - after);
    let again = looked_at(subject.pid());
    assert!(again.bytes.returnable < MOST_OFF, "all was returned: {again:?}");
}

#[test]
fn one_thread() {
    compare(Subject::of_c(&["0", "120000"]));
}

#[test]
fn many_threads() {
    compare(Subject::of_c(&["12", "15000"]));
}

#[test]
fn arenas_of_several_heaps() {
    let subject = Subject::of_c(&["2", "120000"]);
    let found = looked_at(subject.pid());
    assert!(found.largest.iter().any(|arena| arena.heaps > 1), "{found:#?}");
}

#[test]
fn an_interpreter_with_threads() {
    compare(Subject::of_python());
}

/// The program breaks the first arena into parts that only its lists connect.
#[test]
fn a_first_arena_in_several_parts() {
    compare(Subject::of_c(&["0", "60000", "moves"]));
}

/// A trim in a process whose memory a child shares saves nothing.
#[test]
fn pages_that_a_fork_shares_are_counted_apart() {
    let mut subject = Subject::of_c(&["0", "60000"]);
    let before = looked_at(subject.pid()).bytes;
    let child = subject.forks();
    for pid in [subject.pid(), child] {
        let after = looked_at(pid).bytes;
        assert_near("shared", after.shared, before.returnable);
        assert!(after.returnable < MOST_OFF && before.shared == 0, "{before:?} {after:?}");
    }
}

/// Looks at heaps that change give figures that fit together. On a busy machine a look may end early and marks its
/// figures as an estimate. The test makes thirty looks, and then more until one has read everything.
#[test]
fn a_heap_that_changes_is_read() {
    let mut subject = Subject::of_c(&["4", "40000"]);
    subject.works();
    let (begun, limit) = (Instant::now(), deadline(180));
    let (mut looks, mut whole) = (0, 0);
    while looks < 30 || whole == 0 {
        assert!(begun.elapsed() < limit || looks < 30, "no look of {looks} has read all");
        looks += 1;
        let Some(found) = look(subject.pid()) else { continue };
        whole += u32::from(!found.is_estimate());
        let bytes = &found.bytes;
        let sum = bytes.live + bytes.cached + bytes.all_free();
        // A small part that is read may be the records of an arena for the most part.
        if found.read * 2 > found.held {
            assert_near("sum", sum + found.unread, found.held);
        }
        assert!(bytes.returnable <= bytes.all_free(), "{found:?}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("static");
    let source = folder.path().join("static.c");
    std::fs::write(&source, "#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts(\"ready\"); fflush(stdout); pause(); }").unwrap();
    let mut compiler = std::process::Command::new("cc");
    let built = compiler.args(["-static", "-o"]).arg(&program).arg(&source).status().unwrap();
    if built.success() {
        let subject = Subject::started(&mut std::process::Command::new(&program));
        let refused = process_trim::heaps_of(subject.pid()).unwrap_err();
        assert!(refused.0.contains("linked statically"), "{refused}");
    } else {
        imas_testing::skipped("this machine has no static C library");
    }
    assert_eq!(process_trim::heaps_of(u32::MAX).unwrap_err().0, "it has ended");
}

/// Threads that keep blocks of malloc, and a thread that answers as tests/programs/heaps.c does.
const PYTHON: &str = r"
import ctypes, random, sys, threading
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in 'arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost'.split()]
libc.mallinfo2.restype = Info
kept, ready = [], threading.Barrier(7)
def work(seed):
    numbers = random.Random(seed)
    mine = [bytes(numbers.randrange(600, 6000)) for _ in range(8000)]
    kept.append([block for at, block in enumerate(mine) if at % 9 == 0 or at < 2000])
    del mine
    ready.wait(); ready.wait()
for seed in range(6):
    threading.Thread(target=work, args=(seed,), daemon=True).start()
ready.wait()
def anonymous():
    return [int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('RssAnon')][0]
print('ready', flush=True)
for line in sys.stdin:
    if line.startswith('s'):
        info = libc.mallinfo2()
        print(info.fordblks, info.uordblks, info.arena, flush=True)
    else:
        before = anonymous(); libc.malloc_trim(0); print(before, anonymous(), flush=True)
";

static PROGRAM: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/heaps.c");
    let program = folder.path().join("heaps");
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(status.success());
    (folder, program)
});

struct Subject {
    child: Child,
    input: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Subject {
    /// tests/programs/heaps.c with these arguments.
    fn of_c(words: &[&str]) -> Self {
        Self::started(Command::new(&PROGRAM.1).args(words))
    }

    fn of_python() -> Self {
        Self::started(Command::new("/usr/bin/python3").args(["-c", PYTHON]))
    }

    fn started(command: &mut Command) -> Self {
        for name in ["LD_PRELOAD", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"] {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut subject = Self { child, input, answers: BufReader::new(output) };
        assert_eq!(subject.answer(), "ready");
        subject
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Free, live and held bytes, by mallinfo2.
    fn says(&mut self) -> [u64; 3] {
        self.numbers("s")
    }

    /// Trims. Resident anonymous KiB before and after.
    fn trims(&mut self) -> [u64; 2] {
        self.numbers("t")
    }

    /// Its threads allocate from now on.
    fn works(&mut self) {
        assert_eq!(self.asked("w"), "works");
    }

    /// Forks a child that only waits. Its pid.
    fn forks(&mut self) -> u32 {
        self.asked("f").parse().unwrap()
    }

    fn numbers<const N: usize>(&mut self, question: &str) -> [u64; N] {
        let answer = self.asked(question);
        let numbers: Vec<u64> = answer.split(' ').map(|word| word.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    fn asked(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
