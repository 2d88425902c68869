// SPDX-License-Identifier: Apache-2.0
//! A process that says what its own malloc holds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

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

pub(crate) struct Subject {
    child: Child,
    input: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Subject {
    /// tests/programs/heaps.c with these arguments.
    pub(crate) fn of_c(words: &[&str]) -> Self {
        Self::started(Command::new(&PROGRAM.1).args(words))
    }

    pub(crate) fn of_python() -> Self {
        Self::started(Command::new("/usr/bin/python3").args(["-c", PYTHON]))
    }

    pub(crate) fn started(command: &mut Command) -> Self {
        for name in ["LD_PRELOAD", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"] {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut subject = Self { child, input, answers: BufReader::new(output) };
        assert_eq!(subject.answer(), "ready");
        subject
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Free, live and held bytes, by mallinfo2.
    pub(crate) fn says(&mut self) -> [u64; 3] {
        self.numbers("s")
    }

    /// Trims. Resident anonymous KiB before and after.
    pub(crate) fn trims(&mut self) -> [u64; 2] {
        self.numbers("t")
    }

    /// Its threads allocate from now on.
    pub(crate) fn works(&mut self) {
        assert_eq!(self.asked("w"), "works");
    }

    /// Forks a child that only waits. Its pid.
    pub(crate) fn forks(&mut self) -> u32 {
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
