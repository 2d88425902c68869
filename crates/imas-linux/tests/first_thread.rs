// SPDX-License-Identifier: Apache-2.0
//! A process that goes on without its first thread is seen as one that has it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use imas_linux::resident::{self, Footprint, ResidentMemory};
use imas_linux::sampler::{self, Sampler};
use imas_linux::serving::RealCandidates;
use imas_linux::serving::chooser::Choice;
use imas_linux::{foreign_process, process, process_trim, running};

/// Its second thread takes 60 MB in small blocks and waits; its first one ends where the test says so.
const SOURCE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *work(void *nothing) {
    char **kept = malloc(200000 * sizeof *kept);
    for (int i = 0; i < 200000; i++) memset(kept[i] = malloc(300), 1, 300);
    for (int i = 0; i < 200000; i += 2) free(kept[i]);
    puts("x"); fflush(stdout);
    for (;;) pause();
    return nothing;
}
int main(int count, char **words) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    if (count > 1 && !strcmp(words[1], "ends")) pthread_exit(0);
    pthread_join(thread, 0);
}
"#;

struct Program {
    child: Child,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Program {
    fn started(first_thread: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        imas_testing::compiled(folder.path(), "program", SOURCE, &["-O1", "-pthread"]);
        let file = folder.path().canonicalize().unwrap().join("program");
        let mut command = Command::new(&file);
        let mut child = command.arg(first_thread).env("OWN", "1").stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let program = Self { child, file, _folder: folder };
        let has_ended = |pid| process::stat(pid).is_some_and(|stat| stat.state == 'Z');
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while first_thread == "ends" && !has_ended(program.child.id()) {
            assert!(std::time::Instant::now() < deadline, "its first thread does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Figures of each look at the memory, in MB.
fn figures(pid: u32) -> Vec<(&'static str, Option<u64>)> {
    let sampler = Sampler::of(pid);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let sampled = sampler.stop();
    let heaps = process_trim::heaps_of(pid).ok();
    let in_mb = |(name, bytes): (&'static str, Option<u64>)| (name, bytes.map(|bytes| bytes / 1_000_000));
    [
        ("resident", process::resident_bytes(pid)),
        ("anonymous", sampler::resident_bytes(pid)),
        ("anonymous of another user's", foreign_process::resident_bytes(pid)),
        ("peak", Some(sampled.peak_bytes)),
        ("mean", Some(sampled.mean_bytes)),
        ("footprint", Footprint::of(pid).map(|of| of.resident)),
        ("heap", Footprint::of(pid).map(|of| of.heap)),
        ("kinds", ResidentMemory::of(pid).map(|of| of.total())),
        ("arenas", resident::arena_heaps(pid).map(|of| of.heap_bytes.iter().sum())),
        ("live blocks", heaps.as_ref().map(|of| of.bytes.live)),
        ("free blocks", heaps.as_ref().map(|of| of.bytes.free)),
    ]
    .map(in_mb)
    .to_vec()
}

#[test]
fn its_memory_is_seen() {
    let [plain, without] = ["stays", "ends"].map(Program::started);
    let (expected, found) = (figures(plain.child.id()), figures(without.child.id()));
    for ((name, expected), (_, found)) in expected.into_iter().zip(found) {
        let (expected, found) = (expected.unwrap(), found.unwrap_or(0));
        assert!(expected >= 20 && found.abs_diff(expected) <= 2, "{name}: {found} MB for {expected}");
    }
}

#[test]
fn its_files_and_words_are_seen() {
    for first_thread in ["stays", "ends"] {
        let program = Program::started(first_thread);
        let pid = program.child.id();
        assert_eq!(process::arguments(pid).unwrap().len(), 2, "{first_thread}");
        assert!(process::environment(pid).unwrap().contains(&"OWN=1".into()), "{first_thread}");
        assert!(process::maps(pid, &program.file).unwrap(), "{first_thread}");
        let (file, mapped) = process::mapped_files(pid).unwrap();
        assert!(file == program.file && mapped.c_library().is_some(), "{first_thread}: {file:?}");
        let running = running::one(pid).unwrap();
        assert_eq!(running.program.path, program.file, "{first_thread}");
        assert_eq!(running.allocator(&RealCandidates::default()), "glibc", "{first_thread}");
        assert_eq!(Choice::of(&running).file, None, "{first_thread}");
        assert!(running::all().iter().any(|one| one.pid == pid), "{first_thread}");
        assert!(!running::is_copy_of_its_parent(pid), "{first_thread}");
        let executable = foreign_process::executable(pid).unwrap();
        assert_eq!(executable.bytes, std::fs::metadata(&program.file).unwrap().len(), "{first_thread}");
    }
}

/// A process without any memory has none, and no figure of 0.
#[test]
fn a_process_that_has_ended_has_no_figures() {
    let mut child = Command::new("true").spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while process::stat(child.id()).is_some_and(|stat| stat.state != 'Z') {
        assert!(std::time::Instant::now() < deadline, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id();
    assert_eq!((process::resident_bytes(pid), sampler::resident_bytes(pid)), (None, None));
    assert_eq!((ResidentMemory::of(pid), Footprint::of(pid)), (None, None));
    child.wait().unwrap();
}
