// SPDX-License-Identifier: Apache-2.0
//! The record of one watched unit: figures before the change, figures after it, and the outcome. Then how its figures are
//! read: its state from systemd, its failures from the journal, memory and CPU time from its control group and the processes
//! in it. What ends because an operator stops or restarts the unit is no failure, whatever its exit status: Java ends with
//! 143 then.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::format::span;
use imas_cli::message::Hinted;
use imas_core::stats::median;
use imas_engine::config::Config;
use imas_linux::host::now_unix_s;
use imas_linux::sampler;
use imas_linux::work_counter::WorkCounter;
use nix::time::{ClockId, clock_gettime};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::apply::unit::{Unit, systemctl};

/// A folder of root, apart from imasd's: root's watcher acts on the files in it.
pub(super) const FOLDER: &str = "/var/lib/imas-watch";

/// One watched unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchRecord {
    pub(crate) unit: String,
    pub(crate) candidate: String,
    pub(crate) begun_unix_s: f64,
    pub(crate) watch_s: f64,
    /// The drop-in before the change; empty: none.
    pub(crate) drop_in_before: String,
    /// The drop-in under watch.
    pub(crate) drop_in_applied: String,
    pub(crate) work: Option<String>,
    pub(crate) before: Before,
    pub(crate) after: After,
    /// The change is being taken back.
    pub(crate) going_back: Option<GoingBack>,
    /// None while the unit is watched.
    pub(crate) outcome: Option<Outcome>,
}

/// The decision to take the change back. It is stored before anything is done, so that another process of the
/// watcher can go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoingBack {
    pub(crate) outcome: Outcome,
    /// The life of the unit that was judged.
    pub(crate) life: String,
}

/// Figures of the unit before the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// Age of the unit, seconds.
    pub(crate) age_s: f64,
    /// Resident anonymous memory, bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// The highest memory so far, as shown by the processes that still live.
    pub(crate) highest_bytes: Option<u64>,
    /// CPU seconds since the unit's start.
    pub(crate) cpu_s: Option<f64>,
    /// Number that the work command printed.
    pub(crate) work: Option<f64>,
    /// Failures and kills for lack of memory within `observed_s`.
    pub(crate) failures: u32,
    pub(crate) observed_s: f64,
    /// Time that the unit's start took, seconds.
    pub(crate) start_s: f64,
}

/// Figures of the unit after the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct After {
    /// Whether the unit was restarted under the candidate.
    pub(crate) is_restarted: bool,
    /// The life of the unit before that restart, and the time of the look that saw it. Failures are counted from
    /// that time on, but not the failures of this life.
    pub(crate) replaced_life: String,
    pub(crate) since_unix_s: f64,
    /// The present life of the unit.
    pub(crate) life: String,
    /// Kills for lack of memory in its control group at the last look.
    pub(crate) kills_of_group: u32,
    pub(crate) failures: u32,
    pub(crate) oom_kills: u32,
    /// One point for each window, in order.
    pub(crate) points: Vec<MemoryPoint>,
    /// CPU seconds of the present life, and the age of the unit.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) age_s: f64,
    /// Output of the work command, first and last, each with the CPU seconds at that time.
    pub(crate) work_first: Option<[f64; 2]>,
    pub(crate) work_last: Option<[f64; 2]>,
    /// The result of the unit if it is in the state `failed`.
    pub(crate) down: Option<String>,
    /// The process in which the candidate does not serve although it holds the most memory, and in how many windows in a
    /// row that was seen.
    pub(crate) unserved: Option<String>,
    pub(crate) unserved_windows: u32,
    /// Time for which the present life has been starting, seconds.
    pub(crate) starting_s: f64,
}

/// Memory within one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryPoint {
    /// Age of the unit at the end of the window.
    pub(crate) age_s: f64,
    /// Median of the window, bytes.
    pub(crate) bytes: u64,
    /// Lowest value within the window, bytes.
    pub(crate) least_bytes: u64,
}

/// The outcome of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The unit stays under the candidate.
    pub(crate) kept: bool,
    pub(crate) at_unix_s: f64,
    /// The reason as a sentence.
    pub(crate) why: String,
}

pub(super) fn file(unit: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{unit}.json"))
}

impl WatchRecord {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// The record of a unit.
    pub(crate) fn of(unit: &str) -> Option<Self> {
        Self::read(&file(unit)).ok()
    }

    pub(super) fn write(&self) -> Result<()> {
        imas_engine::drop_in::write(&file(&self.unit), &serde_json::to_string(self)?)
    }

    /// One line for `imas status`.
    pub(crate) fn state(&self, now_unix_s: f64) -> String {
        let left = self.begun_unix_s + self.watch_s - now_unix_s;
        match &self.outcome {
            Some(outcome) => outcome.why.clone(),
            None if left > 0.0 => format!("watched for another {}", span(left)),
            None => "its watcher does not run: systemctl status 'imas-watch-*'".to_owned(),
        }
    }
}

/// Possible mount points of the control group hierarchy that systemd uses.
const MOUNTS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
/// Number of looks at the memory before the change.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// The present properties of a unit.
#[derive(Debug, Default)]
pub(super) struct UnitState {
    properties: HashMap<String, String>,
}

impl UnitState {
    pub(super) fn now(unit: &str) -> Result<Self> {
        const WANTED: &str = "ActiveState,SubState,Result,NRestarts,ControlGroup,InvocationID,Job,\
            ActiveEnterTimestampMonotonic,ActiveExitTimestampMonotonic,InactiveExitTimestampMonotonic,\
            ExecMainExitTimestampMonotonic";
        Ok(Self::of(&systemctl(&["show", "--property", WANTED, "--", unit])?))
    }

    /// State of the unit from what `systemctl show` prints.
    pub(super) fn of(shown: &str) -> Self {
        let pairs = shown.lines().filter_map(|line| line.split_once('='));
        Self { properties: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect() }
    }

    /// A point of time on the monotonic clock, microseconds; 0: it never came.
    fn at_us(&self, event: &str) -> f64 {
        self.get(&format!("{event}TimestampMonotonic")).parse().unwrap_or(0.0)
    }

    fn get(&self, name: &str) -> &str {
        self.properties.get(name).map_or("", String::as_str)
    }

    /// Name of one life of the unit: it differs after each start.
    pub(super) fn life(&self) -> &str {
        self.get("InvocationID")
    }

    pub(super) fn is_running(&self) -> bool {
        self.get("ActiveState") == "active" && self.get("SubState") == "running"
    }

    pub(super) fn is_inactive(&self) -> bool {
        self.get("ActiveState") == "inactive"
    }

    pub(super) fn has_failed(&self) -> bool {
        self.get("ActiveState") == "failed"
    }

    /// Whether the unit does not run, and systemd does not restart it by itself.
    pub(super) fn is_over(&self) -> bool {
        self.is_inactive() || self.has_failed()
    }

    /// systemd is about to start or stop it.
    pub(super) fn has_job(&self) -> bool {
        !matches!(self.get("Job"), "" | "0")
    }

    /// Whether the unit is about to start; the pause before an automatic restart is no start.
    pub(super) fn is_starting(&self) -> bool {
        self.get("ActiveState") == "activating" && !self.get("SubState").starts_with("auto-restart")
    }

    /// How long the start of the present life took, seconds.
    fn start_s(&self) -> f64 {
        ((self.at_us("ActiveEnter") - self.at_us("InactiveExit")) / 1e6).max(0.0)
    }

    /// The result of a unit in the state `failed`, if it was not stopped: systemd does not restart it.
    pub(super) fn down(&self) -> Option<String> {
        (self.has_failed() && !self.was_stopped()).then(|| self.get("Result").to_owned())
    }

    /// A unit that is stopped leaves the state `active` before its main process ends. One that fails leaves
    /// it afterwards.
    fn was_stopped(&self) -> bool {
        let left_us = self.at_us("ActiveExit");
        let is_of_this_life = left_us > 0.0 && left_us >= self.at_us("InactiveExit");
        let result = self.get("Result");
        is_of_this_life
            && self.at_us("ExecMainExit") > left_us
            && ["exit-code", "signal", "core-dump", "timeout"].contains(&result)
    }

    pub(super) fn restarts(&self) -> u32 {
        self.get("NRestarts").parse().unwrap_or(0)
    }

    /// Time since the unit became active, seconds.
    pub(super) fn age_s(&self) -> f64 {
        let since_us = self.at_us("ActiveEnter");
        if self.is_running() { (clock_s(ClockId::CLOCK_MONOTONIC) - since_us / 1e6).max(0.0) } else { 0.0 }
    }

    pub(super) fn group(&self) -> Option<Group> {
        let below = Path::new(self.get("ControlGroup").trim_start_matches('/'));
        let found = || MOUNTS.iter().map(|mount| Path::new(mount).join(below));
        (!below.as_os_str().is_empty()).then(found)?.find(|folder| folder.is_dir()).map(Group)
    }
}

fn clock_s(clock: ClockId) -> f64 {
    clock_gettime(clock).map_or(0.0, |now| Duration::from(now).as_secs_f64())
}

/// The control group of a unit.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    fn pids(&self) -> Vec<u32> {
        let mut folders = vec![self.0.clone()];
        let mut pids = Vec::new();
        while let Some(folder) = folders.pop() {
            let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        pids
    }

    /// Resident anonymous memory of its processes, bytes. None if that is 0.
    pub(super) fn memory(&self) -> Option<u64> {
        let bytes: u64 = self.pids().into_iter().filter_map(sampler::resident_bytes).sum();
        (bytes > 0).then_some(bytes)
    }

    /// Sum of the peaks of its living processes, bytes. The kernel keeps one for each process.
    fn highest(&self) -> Option<u64> {
        let bytes: u64 = self.pids().into_iter().filter_map(highest_of).sum();
        (bytes > 0).then_some(bytes)
    }

    /// CPU seconds of all processes that were ever in the group.
    pub(super) fn cpu_s(&self) -> Option<f64> {
        Some(self.number("cpu.stat", "usage_usec ")? / 1e6)
    }

    /// Processes that the kernel killed for lack of memory.
    pub(super) fn oom_kills(&self) -> u32 {
        self.number("memory.events", "oom_kill ")
            .map_or(0, |count| u32::try_from(whole(count)).unwrap_or(u32::MAX))
    }

    fn number(&self, file: &str, key: &str) -> Option<f64> {
        let text = std::fs::read_to_string(self.0.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }
}

fn highest_of(pid: u32) -> Option<u64> {
    imas_linux::mapping_text::ask_living(pid, |task| {
        let status = Process::new(i32::try_from(task).ok()?).ok()?.status().ok()?;
        let of_files = status.rssfile.unwrap_or(0) + status.rssshmem.unwrap_or(0);
        Some(status.vmhwm?.saturating_sub(of_files) * 1024)
    })
}

/// The command from the settings that prints how much work the unit has done.
pub(crate) fn work_command(config: &Config, unit: &Unit) -> Option<String> {
    let path = unit.program().map(|program| program.path.to_string_lossy().into_owned());
    config.work(path.as_deref().unwrap_or_default(), &imas_linux::index::detail_of_unit(&unit.name))
}

/// The number that this command prints.
pub(super) fn work_done(command: &str) -> Option<f64> {
    WorkCounter { command: command.to_owned(), pid: None, user: None }.read().ok()
}

/// Figures of the unit before the change.
///
/// # Errors
/// When the unit does not run, or systemd does not answer.
pub(super) fn before(unit: &str, watch_s: f64, work: Option<&str>) -> Result<Before> {
    let state = UnitState::now(unit)?;
    let group = state.group().filter(|_| state.is_running()).ok_or_else(|| {
        Hinted::error(
            format!("{unit}: it does not run, so there is nothing to compare with"),
            format!("systemctl start {unit}; or leave --watch out"),
        )
    })?;
    let looks: Vec<f64> = (0..LOOKS)
        .filter_map(|at| {
            std::thread::sleep(if at == 0 { Duration::ZERO } else { BETWEEN_LOOKS });
            group.memory().map(|bytes| bytes as f64)
        })
        .collect();
    let observed_s = watch_s.min(clock_s(ClockId::CLOCK_BOOTTIME));
    let failures =
        failures(unit, now_unix_s() - observed_s, "").unwrap_or_else(|| state.restarts()) + group.oom_kills();
    Ok(Before {
        age_s: state.age_s(),
        memory_bytes: median(&looks).map(whole),
        highest_bytes: group.highest(),
        cpu_s: group.cpu_s(),
        work: work.and_then(work_done),
        start_s: state.start_s(),
        failures,
        // If there was no failure, it is unknown whether the unit ran before this life. So only this life
        // counts.
        observed_s: if failures == 0 { state.age_s() } else { observed_s },
    })
}

/// Bytes and counts without their fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "neither negative nor above 2^53"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}

/// "Failed with result ..." (`SD_MESSAGE_UNIT_FAILURE_RESULT`), which exists for every unit.
const FAILED: &str = "d9b373ed55a64feb8242e02dbe79a49c";
/// "Stopping ..." (`SD_MESSAGE_UNIT_STOPPING`): a job stops the unit. A crash has no such message.
const STOPPING: &str = "de5b426a63be47a7b6ac3eaac82e2f6f";

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "MESSAGE_ID", default)]
    message_id: String,
    #[serde(rename = "INVOCATION_ID", default)]
    life: String,
}

/// Failures of the unit since that time, without failures of the life that the change replaced. None without a
/// journal.
pub(super) fn failures(unit: &str, since_unix_s: f64, replaced: &str) -> Option<u32> {
    Some(count(&read(unit, since_unix_s)?, replaced))
}

/// Whether a job stopped this life of the unit.
pub(super) fn was_stopped(unit: &str, since_unix_s: f64, life: &str) -> bool {
    let text = read(unit, since_unix_s).unwrap_or_default();
    entries(&text).any(|entry| entry.message_id == STOPPING && entry.life == life)
}

fn read(unit: &str, since_unix_s: f64) -> Option<String> {
    let output = Command::new("journalctl")
        .args(["--quiet", "--no-pager", "--output=json", "--output-fields=MESSAGE_ID,INVOCATION_ID"])
        .args(["--since", &format!("@{since_unix_s:.6}"), &format!("UNIT={unit}")])
        .args([format!("MESSAGE_ID={FAILED}"), format!("MESSAGE_ID={STOPPING}")])
        .stdin(Stdio::null())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn entries(text: &str) -> impl Iterator<Item = Entry> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn count(text: &str, replaced: &str) -> u32 {
    let mut stopped = HashSet::from([replaced.to_owned()]);
    let mut failures = 0;
    for entry in entries(text) {
        // systemd of an older version names no life: then the next failure is the stop's.
        if entry.message_id == STOPPING {
            stopped.insert(entry.life);
        } else if entry.life.is_empty() {
            failures += u32::from(!stopped.remove(""));
        } else {
            failures += u32::from(!stopped.contains(&entry.life));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit in the state `failed` that began to start at 1 s.
    fn failed(result: &str, left_s: u64, ended_s: u64) -> Option<String> {
        UnitState::of(&format!(
            "ActiveState=failed\nResult={result}\nInactiveExitTimestampMonotonic=1000000\n\
             ActiveExitTimestampMonotonic={left_s}000000\nExecMainExitTimestampMonotonic={ended_s}000000\n"
        ))
        .down()
    }

    #[test]
    fn a_stop_by_an_operator_is_no_failure() {
        assert_eq!(failed("exit-code", 5, 6), None, "exit status 143 at SIGTERM");
        assert_eq!(failed("timeout", 5, 95), None, "a stop that timed out");
        assert_eq!(failed("signal", 6, 5).as_deref(), Some("signal"), "a crash");
        assert_eq!(failed("watchdog", 5, 6).as_deref(), Some("watchdog"), "systemd killed it");
        assert_eq!(failed("exit-code", 0, 6).as_deref(), Some("exit-code"), "it was never active");
        let earlier = UnitState::of(
            "ActiveState=failed\nResult=exit-code\nInactiveExitTimestampMonotonic=7\n\
             ActiveExitTimestampMonotonic=5\nExecMainExitTimestampMonotonic=9\n",
        );
        assert_eq!(earlier.down().as_deref(), Some("exit-code"), "an earlier life was active, this was not");
    }

    #[test]
    fn the_pause_before_a_restart_is_no_start() {
        assert!(UnitState::of("ActiveState=activating\nSubState=start").is_starting());
        assert!(!UnitState::of("ActiveState=activating\nSubState=auto-restart").is_starting());
        assert!(UnitState::of("Job=12").has_job() && !UnitState::of("Job=0").has_job());
    }

    fn line(id: &str, life: &str) -> String {
        format!("{{\"MESSAGE_ID\":\"{id}\",\"INVOCATION_ID\":\"{life}\",\"__CURSOR\":\"s=1\"}}\n")
    }

    #[test]
    fn the_end_of_what_was_stopped_is_no_failure() {
        assert_eq!(count(&line(FAILED, "a"), "x"), 1);
        assert_eq!(count(&line(FAILED, "a"), "a"), 0, "the change replaced it");
        assert_eq!(count(&(line(STOPPING, "b") + &line(FAILED, "b")), "a"), 0, "an operator restarted it");
        assert_eq!(count(&(line(FAILED, "b") + &line(STOPPING, "b")), "a"), 1, "it failed before");
        assert_eq!(count(&(line(STOPPING, "b") + &line(FAILED, "c")), "a"), 1, "another life failed");
        assert_eq!(count("", "a"), 0);
    }

    #[test]
    fn a_journal_that_names_no_life_pairs_each_stop_with_one_failure() {
        let bare = |id: &str| format!("{{\"MESSAGE_ID\":\"{id}\"}}\n");
        assert_eq!(count(&(bare(STOPPING) + &bare(FAILED) + &bare(FAILED)), "a"), 1);
    }
}
