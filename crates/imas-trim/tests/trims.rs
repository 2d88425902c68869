// SPDX-License-Identifier: Apache-2.0
//! A program that knows nothing of IMAS is trimmed in each kind of wait, many times, and notices nothing.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a panic is how a test fails")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use imas_trim::{Bounds, Refusal, Site};

/// Offset of `next` in an arena of glibc 2.27 to 2.42.
const NEXT: u64 = 0x870;
const BOUNDS: Bounds = Bounds { find: Duration::from_secs(60), end: Duration::from_secs(60) };

struct Holder {
    child: Child,
    answers: BufReader<ChildStdout>,
    site: Site,
}

impl Holder {
    fn start(folder: &std::path::Path, how: &str) -> Self {
        let program = folder.join("holder");
        if !program.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/holder.c");
            assert!(
                Command::new("cc").args(["-O0", "-o"]).arg(&program).arg(source).status().unwrap().success()
            );
        }
        let mut command = Command::new(&program);
        let mut child = command.arg(how).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let addresses: Vec<u64> =
            line.split_whitespace().map(|word| u64::from_str_radix(&word[2..], 16).unwrap()).collect();
        let memory = std::fs::File::open(format!("/proc/{}/mem", child.id())).unwrap();
        let code = |address: u64| {
            let mut bytes = [0; 16];
            memory.read_exact_at(&mut bytes, address).unwrap();
            (address, bytes)
        };
        let site = Site {
            malloc_trim: code(addresses[0]),
            sigreturn: code(addresses[1]),
            first_arena: addresses[2],
            next: NEXT,
        };
        Self { child, answers, site }
    }

    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.answers.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

#[test]
fn a_program_gives_back_in_each_kind_of_wait_and_notices_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (how, times) in [("read", 300), ("poll", 300), ("epoll", 300), ("poll-limit", 3), ("sleep", 3)] {
        let holder = Holder::start(folder.path(), how);
        let trim = || imas_trim::trim(holder.child.id(), &holder.site, BOUNDS);
        let first = match trim() {
            Err(Refusal::NotAllowed) => return eprintln!("SKIPPED: no right to trace"),
            done => done.unwrap(),
        };
        let (before, after) = first.resident.unwrap();
        assert!(before - after > 40 << 20, "{how}: {first:?}");
        assert!(first.trim_ms.is_some() && first.arenas == 1, "{how}: {first:?}");
        for _ in 1..times {
            trim().unwrap();
        }
        assert_eq!(holder.end(), "as before\n", "{how}");
    }
}

#[test]
fn a_process_whose_code_is_another_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(folder.path(), "read");
    holder.site.malloc_trim.1 = [0; 16];
    let refused = imas_trim::trim(holder.child.id(), &holder.site, BOUNDS).unwrap_err();
    if refused == Refusal::NotAllowed {
        return eprintln!("SKIPPED: no right to trace");
    }
    assert_eq!(refused, Refusal::OtherProgram);
    assert_eq!(holder.end(), "as before\n");
}
