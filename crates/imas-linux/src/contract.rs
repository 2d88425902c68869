// SPDX-License-Identifier: Apache-2.0
//! Whether a library keeps malloc's contract on this very machine: some programs of the conformance kit, run under it.
//!
//! For libraries that we did not build: what a user added, what the distribution brought.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::environment::{Injection, Libraries, Variables};

/// The programs, quick ones first; each ends within a second on an idle machine.
const PROGRAMS: [&str; 6] = ["sizes", "realloc", "aligned", "tuning", "forks", "threads"];

/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the programs in `folder` under the injection.
///
/// # Errors
/// The first thing, for people, that is not as glibc has it.
pub fn check(injection: &Injection<'_>, libraries: &Libraries, folder: &Path) -> Result<(), String> {
    let variables = injection.variables(&Variables::new(), libraries).map_err(|error| error.to_string())?;
    PROGRAMS.iter().try_for_each(|name| run(&folder.join(name), name, &variables, PATIENCE))
}

fn run(program: &Path, name: &str, variables: &Variables, patience: Duration) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("short").env_clear().envs(variables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let unable = |error: std::io::Error| format!("{} cannot be run: {error}", program.display());
    let mut child = command.spawn().map_err(unable)?;
    // A few dozen short lines: they fit into the pipe, so that nobody waits for us to read them.
    let status = wait(&mut child, patience).map_err(unable)?;
    let said = child.wait_with_output().map_err(unable)?.stdout;
    match (status, first_failure(&String::from_utf8_lossy(&said))) {
        (_, Some(failure)) => Err(format!("{name}: {failure}")),
        (None, None) => Err(format!("{name}: still running after {} s", patience.as_secs())),
        (Some(status), None) if status.success() => Ok(()),
        (Some(status), None) => Err(format!("{name}: ended with {status}")),
    }
}

/// `None` when it had to be ended.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // With what it forked: a child that hangs would keep its end of the pipe open, and us reading.
    match i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        Some(group) => kill_process_group(group, Signal::KILL)?,
        None => child.kill()?,
    }
    Ok(None)
}

/// The first line `FACT<tab>fail<tab>DETAIL`, as `FACT (DETAIL)`.
fn first_failure(output: &str) -> Option<String> {
    let mut failures = output.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        let (fact, outcome, detail) = (fields.next()?, fields.next()?, fields.next()?);
        (outcome == "fail").then(|| format!("{fact} ({detail})"))
    });
    failures.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told() {
        let output = "aligned-16\tpass\t\nrealloc-0-frees\tfail\trealloc(p, 0) is 0x1\nlast\tfail\tx\n";
        assert_eq!(first_failure(output).unwrap(), "realloc-0-frees (realloc(p, 0) is 0x1)");
        assert_eq!(first_failure("aligned-16\tpass\t\n"), None);
    }

    #[test]
    fn a_program_that_is_missing_or_fails_says_so() {
        let missing = run(Path::new("/no/such/program"), "sizes", &Variables::new(), PATIENCE).unwrap_err();
        assert!(missing.contains("/no/such/program"), "{missing}");
        let failing = run(Path::new("/bin/false"), "sizes", &Variables::new(), PATIENCE).unwrap_err();
        assert!(failing.contains("sizes: ended with exit status: 1"), "{failing}");
        assert_eq!(run(Path::new("/bin/true"), "sizes", &Variables::new(), PATIENCE), Ok(()));
    }

    #[test]
    fn a_program_whose_child_hangs_is_ended_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (written, hanging) = (folder.path().join("written"), folder.path().join("forks"));
        std::fs::write(&written, "#!/bin/sh\nsleep 1000 &\nwait\n").unwrap();
        // What we had open for writing could not be executed as long as the child of another test has it open as well.
        let made = Command::new("install").args(["-m", "755"]).arg(&written).arg(&hanging).status();
        assert!(made.unwrap().success());
        let path = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let said = run(&hanging, "forks", &path, Duration::from_millis(300)).unwrap_err();
        assert!(said.contains("still running"), "{said}");
    }
}
