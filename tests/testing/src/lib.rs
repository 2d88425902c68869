// SPDX-License-Identifier: Apache-2.0
//! Shared by the Rust tests of several crates.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Prints that this test, or a part of it, cannot run here, and why. It ends a test: `return skipped("no
/// network")`.
///
/// Cargo's harness has no result of that kind and hides what passed tests print. So the line goes past the
/// harness, and `tests/all` counts it.
pub fn skipped(why: &str) {
    let thread = std::thread::current(); // the harness names it after the test
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Copies an executable that the test starts afterwards, with its mode.
///
/// A child process copies. If this process wrote the file, a child that another test forks at that moment
/// would hold it open for writing until its exec, and the start would fail with "Text file busy".
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--preserve=mode", "--"]).args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} cannot be copied", from.display());
}

/// Compiled form of a text in C: a file with that name in the folder, made by `cc` with these flags.
///
/// # Panics
/// If it does not compile.
pub fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let output = folder.join(name);
    let input = output.with_extension("c");
    let written = std::fs::write(&input, source);
    let mut compiler = Command::new("cc");
    compiler.arg("-o").args([&output, &input]).args(flags);
    assert!(written.is_ok() && compiler.status().is_ok_and(|status| status.success()), "{compiler:?}");
    output
}

/// A deadline. No result of a test depends on it. On an emulated machine it is IMAS_TEST_SLOWNESS times as long.
pub fn deadline(seconds: u64) -> Duration {
    let slowness = std::env::var("IMAS_TEST_SLOWNESS").ok().and_then(|times| times.parse::<u32>().ok());
    Duration::from_secs(seconds) * slowness.unwrap_or(1)
}

/// Waits until a child runs its program: for a moment after `spawn` it may still be a copy of this process.
///
/// # Panics
/// If that takes too long.
pub fn wait_for_exec(child: &Child) {
    let file = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.id()));
    let own = std::fs::read_link("/proc/self/exe").ok();
    let runs = || {
        let has_words = || std::fs::read(file("cmdline")).is_ok_and(|words| !words.is_empty());
        std::fs::read_link(file("exe")).ok() != own && has_words()
    };
    let (begin, limit) = (Instant::now(), deadline(180));
    while !runs() {
        assert!(begin.elapsed() < limit, "{} has not begun", child.id());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that is ended with the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control group, with the name of a service as systemd would make it; removed at the end.
#[derive(Debug)]
pub struct Group(pub PathBuf);

impl Group {
    /// None where none can be made.
    pub fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.filter(|words| words.get(2) == Some(&"cgroup2")).find_map(|words| {
            let folder = Path::new(words[1]).join(name);
            std::fs::create_dir(&folder).ok().map(|()| Self(folder))
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment after the last process.
        let (begin, limit) = (Instant::now(), deadline(180));
        while std::fs::remove_dir(&self.0).is_err() && self.0.exists() {
            if begin.elapsed() > limit {
                assert!(std::thread::panicking(), "{} is not empty", self.0.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
