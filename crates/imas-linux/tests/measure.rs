// SPDX-License-Identifier: Apache-2.0
//! Runs of whole trees. A process of its own: measuring reaps and ends every child of the process that
//! measures.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use imas_linux::environment::Variables;
use imas_linux::measure::{RunOutcome, RunRequest};
use imas_linux::standstill::Most;

// Runs are distinguished by what the process reaped, so no two at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn sh(script: &str, input: Option<&Path>, timeout: f64) -> RunOutcome {
    sh_still(script, input, timeout, None)
}

fn sh_still(script: &str, input: Option<&Path>, timeout: f64, still: Option<Duration>) -> RunOutcome {
    sh_within(script, input, timeout, still, None)
}

/// Measures a run of a shell script that may take at most `most`.
fn sh_within(
    script: &str,
    input: Option<&Path>,
    timeout: f64,
    still: Option<Duration>,
    most: Option<Most>,
) -> RunOutcome {
    sh_in(None, script, input, timeout, still, most)
}

/// Measures a run of a shell script in a folder.
fn sh_in(
    folder: Option<&Path>,
    script: &str,
    input: Option<&Path>,
    timeout: f64,
    still: Option<Duration>,
    most: Option<Most>,
) -> RunOutcome {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let argv: Vec<OsString> = ["sh", "-c", script].iter().map(OsString::from).collect();
    let variables = Variables::inherited();
    RunRequest {
        file: Path::new("/bin/sh"),
        argv: &argv,
        variables: &variables,
        input,
        folder,
        show_output: false,
        timeout: Duration::from_secs_f64(timeout),
        still,
        most,
        cpu: None,
        prefault_bytes: 0,
    }
    .measure()
    .unwrap()
}

#[test]
fn exit_codes_signals_and_errors_are_recorded() {
    assert_eq!(sh("exit 7", None, 90.0).exit, 7);
    let killed = sh("kill -SEGV $$", None, 90.0);
    assert_eq!((killed.exit, killed.signal), (139, Some(11)));
    assert_eq!(sh("echo no >&2", None, 90.0).stderr_tail, "no\n");
}

#[test]
fn outputs_are_distinguished() {
    assert_eq!(sh("echo a", None, 90.0).output_hash, sh("printf 'a\\n'", None, 90.0).output_hash);
    assert_ne!(sh("echo a", None, 90.0).output_hash, sh("echo b", None, 90.0).output_hash);
}

#[test]
fn the_cpu_of_children_and_orphans_counts() {
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let child = sh(&format!("({busy})"), None, 300.0);
    assert!(child.user_s > 0.02, "{child:?}");
    // The first process ends when the other has done its work, and never waits for it.
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let wait = format!("until [ -e '{0}' ]; do sleep 0.01; done", done.display());
    let orphan = sh(&format!("({busy}; : > '{}') & {wait}", done.display()), None, 300.0);
    assert!(orphan.user_s > 0.02, "{orphan:?}");
}

#[test]
fn a_process_left_running_is_ended() {
    // Had it been waited for, none would have been left.
    let outcome = sh("sleep 1000 & exit 0", None, 2000.0);
    assert_eq!(outcome.left_running, 1);
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let outcome = sh("exec sleep 1000", None, 0.2);
    assert!(outcome.timed_out);
    assert_eq!(outcome.signal, Some(9));
}

#[test]
fn an_idle_run_is_ended() {
    let outcome = sh_still("exec sleep 1000", None, 900.0, Some(Duration::from_secs(1)));
    assert_eq!((outcome.hung, outcome.timed_out, outcome.signal), (true, false, Some(9)));
    // A child that works keeps it going, though it works little, and a run that is over is over.
    let works = "(for turn in 1 2 3 4 5 6 7 8 9; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.6; done); exit 5";
    let outcome = sh_still(works, None, 900.0, Some(Duration::from_secs(4)));
    assert_eq!((outcome.hung, outcome.exit), (false, 5), "{outcome:?}");
}

#[test]
fn a_run_that_takes_too_much_is_ended() {
    let still = Some(Duration::from_secs(900));
    let within =
        |script: &str, cpu_s, bytes| sh_within(script, None, 900.0, still, Some(Most { cpu_s, bytes }));
    let works = within("timeout 300 sh -c 'while :; do :; done'", 0.5, 1e12);
    assert_eq!((works.excess, works.hung, works.timed_out, works.signal), (true, false, false, Some(9)));
    assert!(works.user_s < 60.0, "{works:?}");
    let holds = within("exec python3 -c 'import time; a = bytearray(300 << 20); time.sleep(1000)'", 1e6, 2e8);
    assert_eq!((holds.excess, holds.signal), (true, Some(9)));
    let outcome = within("exit 5", 100.0, 1e12);
    assert_eq!((outcome.excess, outcome.exit), (false, 5), "{outcome:?}");
}

#[test]
fn input_comes_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    std::fs::write(&file, "5\n").unwrap();
    assert_eq!(sh("read n; exit $n", Some(&file), 90.0).exit, 5);
}

#[test]
fn the_program_begins_in_its_folder_and_this_process_stays_in_its_own() {
    let (own, folder) = (std::env::current_dir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("mark"), "").unwrap();
    assert_eq!(sh_in(Some(folder.path()), "test -e mark", None, 90.0, None, None).exit, 0);
    assert_eq!(std::env::current_dir().unwrap(), own);
}
