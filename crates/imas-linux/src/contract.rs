// SPDX-License-Identifier: Apache-2.0
//! Whether a library keeps malloc's contract on this very machine: some programs of the conformance kit, run
//! under it.
//!
//! For libraries that we did not build: what a user added, what the distribution brought.
//!
//! Consequences for a program when a fact of the conformance kit does not hold.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::environment::{Injection, Libraries, Variables};
use crate::standstill::Stillness;

/// The programs, quick ones first; each ends within a second on an idle machine.
const PROGRAMS: [&str; 7] = ["sizes", "realloc", "aligned", "tuning", "forks", "newborns", "threads"];

/// A program hangs when it has used this CPU time, or when it has used none for the same time. Time by the
/// clock would blame the library on a busy machine.
const CONTRACT_TIMEOUT: Duration = Duration::from_secs(60);

/// A fact in words, for people who have to judge whether their programs rely on it; the name alone where no
/// words are known.
#[must_use]
pub fn in_words(fact: &str) -> String {
    words(fact).map_or_else(|| fact.to_owned(), |words| format!("{fact}: {words}"))
}

/// Beginning of the detail of a program that hangs.
const HANGS: &str = "still running";

/// A fact that does not hold.
#[derive(Debug, Clone, PartialEq)]
struct Broken {
    program: &'static str,
    fact: String,
    detail: String,
}

/// Runs the programs in `folder` under the injection. What its candidate accepts may fail.
///
/// # Errors
/// Everything, for people, that is not as glibc has it, and how to accept it.
pub fn check(injection: &Injection<'_>, libraries: &Libraries, folder: &Path) -> Result<(), String> {
    let variables = injection.variables(&Variables::new(), libraries).map_err(|error| error.to_string())?;
    let mut broken = vec![];
    for name in PROGRAMS {
        broken.extend(run(&folder.join(name), name, &variables, CONTRACT_TIMEOUT)?);
        if broken.last().is_some_and(|last| last.detail.starts_with(HANGS)) {
            break; // the others may hang as long
        }
    }
    broken.retain(|one| !injection.candidate.accept.contains(&one.fact));
    if broken.is_empty() { Ok(()) } else { Err(report(&broken)) }
}

fn report(broken: &[Broken]) -> String {
    let words = broken.iter().map(|one| format!("{}: {} ({})", one.program, in_words(&one.fact), one.detail));
    let mut names: Vec<_> = broken.iter().map(|one| format!("{:?}", one.fact)).collect();
    names.dedup();
    let words = words.collect::<Vec<_>>().join("; ");
    format!("{words}; to use it all the same, put accept = [{}] into its entry", names.join(", "))
}

/// Breaches of the contract by the library: facts that do not hold, and that the program ends at all. An
/// error where it cannot be run.
fn run(
    program: &Path,
    name: &'static str,
    variables: &Variables,
    limit: Duration,
) -> Result<Vec<Broken>, String> {
    let mut command = Command::new(program);
    command.arg("short").env_clear().envs(variables.iter());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let unable = |error: std::io::Error| format!("{} cannot be run: {error}", program.display());
    let mut child = command.spawn().map_err(unable)?;
    // A few dozen short lines fit into the pipe, so the child never waits for a reader.
    let status = wait(&mut child, limit).map_err(unable)?;
    let output = child.wait_with_output().map_err(unable)?.stdout;
    let mut broken = failures(name, &String::from_utf8_lossy(&output));
    let how = match status {
        None => Some(format!("{HANGS}, and has used no CPU time, or all of {} s", limit.as_secs())),
        // A program ends with 1 when a fact does not hold.
        Some(status) if status.success() || (status.code() == Some(1) && !broken.is_empty()) => None,
        Some(status) => Some(format!("ended with {status}")),
    };
    broken.extend(how.map(|detail| Broken { program: name, fact: format!("{name}-ends"), detail }));
    Ok(broken)
}

/// `None` when it had to be ended.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let mut stillness = Stillness::new(child.id(), limit);
    let mut looked = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if looked.elapsed() >= stillness.gap() {
            if stillness.is_reached() || stillness.cpu_s() > limit.as_secs_f64() {
                break;
            }
            looked = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // With what it forked: a child that hangs would keep its end of the pipe open, and us reading.
    match i32::try_from(child.id()) {
        Ok(group) => killpg(Pid::from_raw(group), Signal::SIGKILL)?,
        Err(_) => child.kill()?,
    }
    Ok(None)
}

/// The lines `FACT<tab>fail<tab>DETAIL` of a program's output.
fn failures(program: &'static str, output: &str) -> Vec<Broken> {
    let failure = |line: &str| {
        let mut fields = line.split('\t');
        let (fact, outcome, detail) = (fields.next()?, fields.next()?, fields.next()?);
        (outcome == "fail").then(|| Broken { program, fact: fact.to_owned(), detail: detail.to_owned() })
    };
    output.lines().filter_map(failure).collect()
}

/// Each fact of the programs that are run on the user's machine, in their order, and its words after a tab.
const WORDS: &str = include_str!("contract/words.tsv");

/// The words for the fact; None for one that the quick part of the kit does not have.
fn words(fact: &str) -> Option<&'static str> {
    let mut words = WORDS.lines().filter_map(|line| line.split_once('\t'));
    words.find(|(name, _)| *name == fact).map(|(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_words() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
        for program in PROGRAMS {
            let source = std::fs::read_to_string(folder.join(format!("{program}.c"))).unwrap();
            let facts = source.split("fact(\"").skip(1).filter_map(|rest| rest.split('"').next());
            for fact in facts {
                assert!(words(fact).is_some(), "{program}: {fact}");
            }
        }
    }

    #[test]
    fn every_failure_is_reported_in_words_with_a_way_round() {
        let output = "aligned-16\tpass\t\nrealloc-0-frees\tfail\trealloc(p, 0) is 0x1\nlast\tfail\tx\n";
        let broken = failures("realloc", output);
        assert_eq!(
            broken.iter().map(|one| one.fact.as_str()).collect::<Vec<_>>(),
            ["realloc-0-frees", "last"]
        );
        let report = report(&broken);
        assert!(report.starts_with("realloc: realloc-0-frees: realloc(p, 0) does not free"), "{report}");
        assert!(report.contains("accept = [\"realloc-0-frees\", \"last\"]"), "{report}");
        assert!(failures("sizes", "aligned-16\tpass\t\n").is_empty());
    }

    #[test]
    fn a_missing_or_failing_program_is_reported() {
        let missing =
            run(Path::new("/no/such/program"), "sizes", &Variables::new(), CONTRACT_TIMEOUT).unwrap_err();
        assert!(missing.contains("/no/such/program"), "{missing}");
        let failing = run(Path::new("/bin/false"), "sizes", &Variables::new(), CONTRACT_TIMEOUT).unwrap();
        let failing = report(&failing);
        assert!(
            failing.starts_with("sizes: sizes-ends: ") && failing.contains("(ended with exit status: 1)"),
            "{failing}"
        );
        assert_eq!(run(Path::new("/bin/true"), "sizes", &Variables::new(), CONTRACT_TIMEOUT), Ok(vec![]));
    }

    #[test]
    fn a_program_whose_child_hangs_is_ended_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (written, hanging) = (folder.path().join("written"), folder.path().join("forks"));
        std::fs::write(&written, "#!/bin/sh\nsleep 1000 &\nwait\n").unwrap();
        // What we had open for writing could not be executed as long as the child of another test has it open
        // as well.
        let made = Command::new("install").args(["-m", "755"]).arg(&written).arg(&hanging).status();
        assert!(made.unwrap().success());
        let path = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let broken = run(&hanging, "forks", &path, Duration::from_millis(300)).unwrap();
        assert!(report(&broken).contains("still running"), "{broken:?}");
    }

    fn wait_for(script: &str, limit: Duration) -> Option<ExitStatus> {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).process_group(0).spawn().unwrap();
        let status = wait(&mut child, limit).unwrap();
        child.wait().unwrap();
        status
    }

    #[test]
    fn a_program_that_loops_is_ended() {
        assert_eq!(wait_for("while :; do :; done", Duration::from_millis(300)), None);
    }

    #[test]
    fn a_program_that_gets_little_of_the_cpu_is_not_ended() {
        // It works a little and sleeps longer than it works: five seconds by the clock, far less by its CPU time.
        let slow = "for turn in 1 2 3 4 5 6 7 8; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.6; done";
        assert!(wait_for(slow, Duration::from_secs(4)).is_some_and(|status| status.success()));
    }
}
