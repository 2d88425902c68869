// SPDX-License-Identifier: Apache-2.0
//! Trial pages, honest and hostile, and what is made of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod common;
mod trees;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use imas_abi::{Page, Page as Raw};
use imas_core::sample::{Ended, MemoryFigures, PageKind, Usage};
use imas_linux::ingest::{
    ExpectedPage, PageError, ParsedPage, ReadError, State, TextProblem, parse, read_page_at, read_page_file,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use tempfile::TempDir;

use common::{bytes, changed, flight, put, trial};

fn refused(change: impl FnOnce(&mut Page)) -> PageError {
    parse(&changed(change)).unwrap_err()
}

fn accepted(change: impl FnOnce(&mut Page)) -> imas_linux::ingest::ParsedPage {
    parse(&changed(change)).unwrap()
}

#[test]
fn an_honest_trial_gives_its_sample() {
    let page = parse(&bytes(&trial())).unwrap();
    assert_eq!((page.pid, page.uid, page.process_start_ticks), (4321, 1000, 987_654));
    assert_eq!((page.program.as_str(), page.detail.as_str()), ("/usr/bin/python3.11", "/srv/app.py"));
    assert_eq!((page.build_id.as_str(), page.state), ("a1b2c3", State::Trial));
    let sample = page.to_sample();
    assert_eq!((sample.trial_id.as_str(), sample.candidate.as_str()), ("t-1", "jemalloc"));
    assert_eq!((sample.served.as_str(), sample.kind), ("jemalloc", PageKind::Trial));
    assert_eq!((sample.made_unix_s, sample.wall_s), (1_700_000_000.5, 1.0));
    assert_eq!(sample.ended, Ended::Clean { status: None });
    assert_eq!((sample.threads, sample.forks, sample.processes), (2, 1, 1));
    assert_eq!((sample.bytes_requested, sample.refused, sample.rounding_bytes), (40_000, 3, 8_000));
    // (100 - 20) ticks at 2 GHz are 40 ns, (60 - 20) are 20 ns; two classes were never called: 60 / 4.
    assert_eq!((sample.malloc.calls, sample.malloc.sampled, sample.malloc.mean_ns), (1000, 15, 40.0));
    assert_eq!((sample.free.calls, sample.free.mean_ns), (990, 20.0));
    assert_eq!(sample.ns_per_op(), Some(15.0));
    assert_eq!((sample.malloc.histogram_ticks[6], sample.size_histogram[5]), (960, 960));
    let memory = MemoryFigures {
        snapshots: 4,
        heap_mean: 10_000,
        heap_peak: 15_000,
        live_mean: 7_500,
        live_peak: 12_000,
        resident_mean: 8_000,
        resident_peak: 13_000,
        resident_over_time: 9 * 1024,
        split: None,
    };
    assert_eq!(sample.memory, memory);
    assert_eq!((sample.frag_virtual(), sample.frag_resident()), (Some(0.25), Some(0.0625)));
    let usage = Usage {
        user_s: 0.8,
        system_s: 0.1,
        minor_faults: 321,
        major_faults: 2,
        max_rss_bytes: 14_000_000,
        voluntary_switches: 7,
        involuntary_switches: 8,
    };
    assert_eq!(sample.usage, Some(usage));
}

#[test]
fn a_flight_page_reports_only_the_exit() {
    let mut page = flight();
    (page.header.fatal_signal, page.header.fatal_code) = (6, FAULT);
    let sample = parse(&bytes(&page)).unwrap().to_sample();
    assert_eq!((sample.kind, sample.ended), (PageKind::Flight, Ended::Signal { signal: 6 }));
    assert_eq!((sample.malloc.calls, sample.ns_per_op()), (0, None));
}

#[test]
fn sizes_must_agree() {
    assert_eq!(parse(&[]), Err(PageError::Size(0)));
    let whole = bytes(&trial());
    assert_eq!(parse(&whole[..16383]), Err(PageError::Size(16383)));
    assert_eq!(parse(&[&whole[..], b"x"].concat()), Err(PageError::Size(16385)));
    assert_eq!(parse(&whole[..4096]), Err(PageError::SizeField { header: 16384, file: 4096 }));
    assert_eq!(refused(|p| p.header.page_bytes = 4096), PageError::SizeField { header: 4096, file: 16384 });
    let flight_kind_on_a_trial = [bytes(&flight()), vec![0; 12288]].concat();
    assert_eq!(parse(&flight_kind_on_a_trial), Err(PageError::SizeField { header: 4096, file: 16384 }));
}

#[test]
fn the_header_is_checked_first() {
    assert!(matches!(parse(&[0; 16384]), Err(PageError::Magic(0))));
    assert_eq!(refused(|p| p.header.version = 2), PageError::Version(2));
    assert_eq!(refused(|p| p.header.kind = 3), PageError::Range { field: "kind", value: 3 });
    assert_eq!(refused(|p| p.header.armed = 0), PageError::NotArmed);
    assert_eq!(refused(|p| p.header.armed = 2), PageError::Range { field: "armed", value: 2 });
}

#[test]
fn fields_out_of_range_are_named() {
    let field = |change: fn(&mut Page)| match refused(change) {
        PageError::Range { field, .. } | PageError::Text { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(|p| p.header.state = 5), "state");
    assert_eq!(field(|p| p.header.pass_reason = 16), "pass_reason");
    assert_eq!(field(|p| p.header.clean_exit = 2), "clean_exit");
    assert_eq!(field(|p| p.header.fatal_signal = 15), "fatal_signal");
    assert_eq!(field(|p| p.header.made_unix_ns = u64::MAX), "made_unix_ns");
    assert_eq!(field(|p| p.header.ns_last = u64::MAX), "ns_last");
    assert_eq!(field(|p| p.header.empty_pair_ticks_256 = u64::MAX), "empty_pair_ticks_256");
    assert_eq!(field(|p| p.header.snapshots = u64::MAX), "snapshots");
    assert_eq!(field(|p| p.header.heap_bytes_peak = u64::MAX), "heap_bytes_peak");
    assert_eq!(field(|p| p.header.user_us = u64::MAX), "user_us");
    assert_eq!(field(|p| p.header.max_rss_bytes = u64::MAX), "max_rss_bytes");
    assert_eq!(field(|p| p.slot[9].calls[3] = u64::MAX), "calls[free]");
    assert_eq!(field(|p| p.slot[9].bytes_requested = 1 << 63), "bytes_requested");
    assert_eq!(field(|p| p.sampled.op[0].sampled = u64::MAX), "sampled");
    assert_eq!(field(|p| p.sampled.live_dropped = u64::MAX), "live_dropped");
    assert_eq!(field(|p| put(&mut p.header.candidate, "a b")), "candidate");
    assert_eq!(field(|p| put(&mut p.header.trial_id, "")), "trial_id");
    assert_eq!(field(|p| put(&mut p.header.program, "python3")), "program");
    assert_eq!(field(|p| p.header.detail.fill(b'a')), "detail");
    assert_eq!(field(|p| put(&mut p.header.served, "\x1b[2J")), "served");
    assert_eq!(field(|p| put(&mut p.header.build_id, "xyz")), "build_id");
    assert_eq!(field(|p| p.header.boot_id.fill(b'a')), "boot_id");
}

#[test]
fn contradictions_are_refused() {
    let why = |change: fn(&mut Page)| matches!(refused(change), PageError::Contradiction(_));
    assert!(why(|p| p.sampled.op[1].sampled = 1000), "no realloc was called");
    assert!(why(|p| p.sampled.op[0].ticks = u64::MAX), "a mean call of years");
}

#[test]
fn names_of_programs_may_have_any_characters() {
    let page = accepted(|p| {
        put(&mut p.header.program, "/opt/a\nb");
        put(&mut p.header.detail, "/opt/c\td.py");
    });
    assert_eq!((page.program.as_str(), page.detail.as_str()), ("/opt/a\nb", "/opt/c\td.py"));
}

#[test]
fn messages_say_what_and_where() {
    let error = PageError::Text { field: "served", problem: TextProblem::Control };
    assert_eq!(error.to_string(), "trial page field served holds a control character");
    assert_eq!(PageError::Version(2).to_string(), "trial page has version 2; this imas reads version 1");
}

/// An `si_code` of the kernel's own.
const FAULT: u32 = 1;

#[test]
fn a_signal_that_another_process_sent_is_not_the_programs() {
    let ended = |code| accepted(|p| (p.header.fatal_signal, p.header.fatal_code) = (6, code)).ended;
    assert_eq!(ended(0), Ended::Killed { signal: 6 }, "a watchdog");
    for own in [-6_i32, 1, 128] {
        assert_eq!(
            ended(own.cast_unsigned()),
            Ended::Signal { signal: 6 },
            "{own}: abort, a fault, the kernel"
        );
    }
}

#[test]
fn ends_of_a_process() {
    let end = |state, clean, status, signal| {
        accepted(|p| {
            (p.header.state, p.header.clean_exit) = (state, clean);
            (p.header.exit_status, p.header.fatal_signal) = (status, signal);
            p.header.fatal_code = FAULT;
        })
        .ended
    };
    assert_eq!(end(0, 0, 0, 0), Ended::NeverEntered);
    assert_eq!(end(1, 0, 0, 0), Ended::Unknown);
    assert_eq!(end(3, 0, 0, 0), Ended::Unknown, "kill -9");
    assert_eq!(end(3, 1, -1, 0), Ended::Clean { status: None });
    assert_eq!(end(3, 1, 3, 0), Ended::Clean { status: Some(3) });
    assert_eq!(end(3, 1, 256 + 7, 0), Ended::Clean { status: Some(7) });
    assert_eq!(end(3, 1, -2, 0), Ended::Clean { status: Some(254) });
    assert_eq!(end(3, 0, 0, 11), Ended::Signal { signal: 11 });
    assert_eq!(end(3, 1, 0, 6), Ended::Signal { signal: 6 }, "died after our exit handler");
    assert_eq!(end(0, 0, 0, 4), Ended::Signal { signal: 4 });
}

#[test]
fn the_reason_for_leaving_a_process_alone_is_read() {
    let word =
        |state, reason| accepted(|p| (p.header.state, p.header.pass_reason) = (state, reason)).pass_reason;
    assert_eq!(word(3, 0), None);
    assert_eq!(word(4, 0), Some("unstated"));
    let words: Vec<_> = (1..16).map(|reason| word(4, reason).unwrap()).collect();
    let expected = [
        "disabled",
        "own-malloc",
        "seccomp",
        "rlimit-as",
        "ld-audit",
        "valgrind",
        "sanitizer",
        "no-allocator",
        "page",
        "not-the-program",
        "pid1",
        "allocator-interface",
        "wrapped-function",
        "too-early",
        "own-filter",
    ];
    assert_eq!(words, expected);
    assert_eq!(word(1, 2), Some("own-malloc"), "killed between the two stores");
}

#[test]
fn a_trial_that_ended_in_a_call_of_ours_was_ended_by_a_filter() {
    let reason = |kernel: Option<u32>, signal: u32, code: u32, own_calls: u64| {
        let page = accepted(|p| {
            (p.header.clean_exit, p.header.fatal_signal, p.header.fatal_code) = (0, signal, code);
            p.header.own_calls = own_calls;
        });
        page.of_ended(kernel).to_sample().pass_reason
    };
    let filter = Some("own-filter".to_owned());
    assert_eq!(reason(None, 0, 0, 1), filter);
    assert_eq!(reason(None, 0, 0, 0), None, "killed");
    assert_eq!(reason(Some(9), 0, 0, 1), None, "killed by somebody meanwhile");
    assert_eq!(reason(Some(31), 0, 0, 0), filter, "in a call of the candidate's");
    assert_eq!(reason(None, 31, 1, 0), filter, "the kernel asked its handler");
    assert_eq!(reason(Some(31), 31, u32::MAX, 0), None, "the program sent it to itself");
    assert_eq!(reason(None, 11, 1, 1), None);
}

#[test]
fn a_process_killed_before_its_second_snapshot_is_kept() {
    let page = accepted(|p| {
        (p.header.ticks_last, p.header.ns_last, p.header.clean_exit) = (0, 0, 0);
        (p.header.user_us, p.header.system_us, p.header.max_rss_bytes) = (0, 0, 0);
        (p.header.minor_faults, p.header.major_faults) = (0, 0);
        (p.header.voluntary_switches, p.header.involuntary_switches) = (0, 0);
    });
    let sample = page.to_sample();
    assert_eq!((sample.malloc.calls, sample.malloc.sampled, sample.ns_per_op()), (1000, 0, None));
    assert_eq!((sample.wall_s, sample.usage), (0.0, None));
}

#[test]
fn a_time_in_the_future_becomes_the_present() {
    let page = accepted(|_| ());
    assert_eq!(page.clone().not_after(1e9).made_unix_s, 1e9);
    assert_eq!(page.not_after(2e9).made_unix_s, 1_700_000_000.5);
}

const NOW_S: f64 = 1_800_000_000.0;

struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A page of the user who runs the test, at `page`.
    fn page(&self, change: impl FnOnce(&mut Raw)) -> PathBuf {
        let bytes = changed(|p| {
            p.header.uid = geteuid().as_raw();
            change(p);
        });
        fs::write(self.path("page"), bytes).unwrap();
        self.path("page")
    }

    /// Reads by path and by directory, and checks that both say the same.
    fn read(&self, name: &str) -> Result<ParsedPage, ReadError> {
        let expected = ExpectedPage { uid: geteuid().as_raw(), now_unix_s: NOW_S };
        let by_path = read_page_file(&self.path(name), &expected);
        let by_dir = read_page_at(File::open(self.dir.path()).unwrap(), OsStr::new(name), &expected);
        assert_eq!(format!("{by_path:?}"), format!("{by_dir:?}"));
        by_path
    }
}

#[test]
fn an_honest_file_is_read() {
    let folder = Folder::new();
    folder.page(|_| ());
    assert_eq!(folder.read("page").unwrap().pid, 4321);
}

#[test]
fn a_page_dated_in_the_future_gets_the_present_time() {
    let folder = Folder::new();
    folder.page(|p| p.header.made_unix_ns = 1_900_000_000_000_000_000);
    assert_eq!(folder.read("page").unwrap().made_unix_s, NOW_S);
}

#[test]
fn links_are_refused() {
    let folder = Folder::new();
    let page = folder.page(|_| ());
    symlink(&page, folder.path("link")).unwrap();
    let error = folder.read("link").unwrap_err();
    let eloop = rustix::io::Errno::LOOP.raw_os_error();
    assert!(matches!(&error, ReadError::Io(e) if e.raw_os_error() == Some(eloop)), "{error}");
    fs::hard_link(&page, folder.path("hard")).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Links(2))));
}

#[test]
fn only_regular_files_are_read_and_a_pipe_does_not_block() {
    let folder = Folder::new();
    mknodat(CWD, folder.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(matches!(folder.read("pipe"), Err(ReadError::NotRegular)));
    fs::create_dir(folder.path("dir")).unwrap();
    assert!(matches!(folder.read("dir"), Err(ReadError::NotRegular)));
    assert!(matches!(folder.read("none"), Err(ReadError::Io(_))));
}

#[test]
fn a_file_of_another_size_is_not_even_read() {
    let folder = Folder::new();
    let page = folder.page(|_| ());
    File::options().write(true).open(&page).unwrap().set_len(16_383).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Page(PageError::Size(16_383)))));
    File::options().write(true).open(&page).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Page(PageError::Size(_)))));
}

#[test]
fn the_owner_must_be_the_expected_one() {
    let folder = Folder::new();
    let page = folder.page(|p| p.header.uid = 77);
    assert!(matches!(folder.read("page"), Err(ReadError::Owner { found: 77, .. })));
    let stranger = ExpectedPage { uid: geteuid().as_raw() + 1, now_unix_s: NOW_S };
    let found = geteuid().as_raw();
    assert!(matches!(read_page_file(&page, &stranger), Err(ReadError::Owner { found: f, .. }) if f == found));
}

#[test]
fn a_name_is_not_a_path() {
    let folder = Folder::new();
    folder.page(|_| ());
    let expected = ExpectedPage { uid: geteuid().as_raw(), now_unix_s: NOW_S };
    let dir = File::open(folder.dir.path()).unwrap();
    assert!(matches!(read_page_at(&dir, OsStr::new("./page"), &expected), Err(ReadError::Name)));
}

#[test]
fn an_error_names_what_failed_and_why() {
    let error = ReadError::Owner { found: 5, expected: 1000 };
    assert_eq!(error.to_string(), "trial page belongs to uid 5, not to uid 1000");
}
