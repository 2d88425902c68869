// SPDX-License-Identifier: Apache-2.0
//! A signal in the middle of a run. Alone in its process: the signal is real.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_runs::executor::{Execution, Executor, RunLimits, record};
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, Runner, SessionEnd};
use imas_runs::schedule::Step;
use imas_runs::subject::{Subject, Timeout};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Log, names, output, rounds, rules, runs_of};

/// An executor whose third run asks this process to end, as a terminal or a service manager does. That run
/// waits for a process that would go on.
struct Interrupts {
    signal: Signal,
    runs: u32,
    child: Option<u32>,
}

impl Executor for Interrupts {
    fn execute(&mut self, _step: &Step, _limits: &RunLimits) -> Result<Execution> {
        self.runs += 1;
        if self.runs == 3 {
            // Its child is ours once the shell is gone.
            let mut child = Command::new("sh").args(["-c", "sleep 600 & sleep 600"]).spawn()?;
            self.child = Some(child.id());
            kill(Pid::this(), self.signal)?;
            wait(&mut child)?;
        }
        let outcome = output(1);
        Ok(Execution { record: record(&outcome, None), outcome, ..Execution::default() })
    }
}

fn wait(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "the child goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A shell starts its background jobs with SIGINT ignored, nohup its command with SIGHUP.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as i32 - 1)) != 0
}

#[test]
fn a_signal_ends_the_run_and_earlier_runs_are_kept() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        if is_ignored(signal) {
            println!(
                "SKIPPED: a_signal_ends_the_run_and_earlier_runs_are_kept: {signal} is ignored here, as by nohup"
            );
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let interruption = Interruption::watch().unwrap();
        let subject = Subject::new("p", Timeout::ByFirstRun);
        let mut runner = Runner::new(names(), vec![subject], rules(Elimination::Never), &interruption);
        runner.journal = Some(Journal::open(&path).unwrap());
        let mut executor = Interrupts { signal, runs: 0, child: None };
        let mut log = Log::default();
        let ended = runner.run(rounds(5), &mut executor, &mut log).unwrap();
        assert_eq!(ended, SessionEnd::Interrupted(signal as i32));
        assert_eq!((executor.runs, log.runs.len()), (3, 2), "the run that was cut short is not kept");
        assert_eq!(runs_of(&path), log.runs);
    }
}
