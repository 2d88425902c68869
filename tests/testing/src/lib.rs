// SPDX-License-Identifier: Apache-2.0
//! Shared by the Rust tests of several crates.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_core::sample::{Ended, MemoryFigures, OpFigures, Sample, Usage};

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

/// Starts a program that prints a letter when it is ready, and waits for that letter. The program ends when its standard
/// input is closed.
///
/// # Panics
/// If it cannot be started, or ends without a letter.
#[must_use]
pub fn start_piped(command: &mut Command) -> Child {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let ready = child.stdout.as_mut().map(|stdout| stdout.read_exact(&mut [0]));
    assert!(ready.is_some_and(|read| read.is_ok()), "{command:?} has ended");
    child
}

/// Lets such a program end, and waits for it.
///
/// # Panics
/// If it cannot be waited for.
pub fn end_piped(mut child: Child) {
    drop(child.stdin.take());
    let ended = child.wait();
    assert!(ended.is_ok(), "{ended:?}");
}

/// Checks that each file of a folder of tests is a module of its `main.rs`, or one of the `others`: else it would not be
/// run.
///
/// # Panics
/// If one is not.
pub fn every_file_is_a_module(folder: &str, main: &str, others: &[&str]) {
    let files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
    assert!(!files.is_empty(), "{folder} cannot be read");
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let module = name.trim_end_matches(".rs");
        let is_known = module == "main" || others.contains(&module);
        assert!(is_known || main.contains(&format!("\nmod {module};\n")), "{name} is no module");
    }
}

/// A valid trial with that number of resident bytes, and `cost` CPU seconds for a million operations.
#[must_use]
pub fn trial(candidate: &str, build_id: &str, number: usize, resident: u64, cost: f64) -> TrialRecord {
    let memory = MemoryFigures {
        snapshots: 9,
        heap_mean: resident,
        heap_peak: resident,
        live_mean: resident / 2,
        live_peak: resident / 2,
        resident_mean: resident,
        resident_peak: resident,
        resident_over_time: resident,
        split: None,
    };
    let calls = OpFigures { calls: 500_000, sampled: 1000, mean_ns: 50.0 * cost, ..OpFigures::default() };
    let library = |name: &str| format!("lib{name}.so");
    let served = if candidate == "system" || candidate.starts_with("glibc") {
        "libc.so.6".to_owned()
    } else {
        library(candidate)
    };
    TrialRecord {
        sample: Sample {
            trial_id: format!("{candidate}-{number}"),
            candidate: candidate.to_owned(),
            made_unix_s: 1_700_000_000.0 + number as f64,
            ended: Ended::Clean { status: Some(0) },
            served,
            malloc: calls.clone(),
            free: calls,
            memory,
            usage: Some(Usage { user_s: cost, system_s: 0.0, ..Usage::default() }),
            wall_s: 2.0,
            ..Sample::default()
        },
        build_id: build_id.to_owned(),
        allocator_version: String::new(),
        retest_s: Some(0.0),
    }
}
