// SPDX-License-Identifier: Apache-2.0
//! The life of a started server in one run: until it is ready, cycles of load, the pause; and the trims from outside
//! while it runs, by the rules of `imas trim`: the look first, then the call.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use imas_core::pace::Pace;
use imas_core::server_run::{CycleFigures, DayFigures, Failure, Figure, PhaseFigures, ServerRun, Stage};
use imas_linux::environment::Variables;
use imas_linux::pace::Meter;
use imas_linux::process_trim::{self, FromOutside};
use imas_linux::sampler::Watcher;

use crate::service::adapter;
use crate::service::definition::{DayKind, Service, ServiceError, ServiceLimits};
use crate::service::line::{LineEnd, ShellLine, Work};
use crate::service::ready::Ready;
use crate::service::recorder::SharedTree;
use crate::service::server::{Server, locked};

/// Time between two tests for readiness.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Time between two checks that the server still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Cost of the load.
#[derive(Debug, Default)]
pub(crate) struct LoadCost {
    /// CPU seconds of the server in user mode and in the kernel.
    pub(crate) cpu_s: (f64, f64),
    /// Speed of the CPUs meanwhile.
    pub(crate) pace: Option<Pace>,
}

/// The reason why a run was ended early.
pub(crate) enum Interrupted {
    Failed(Failure),
    Error(ServiceError),
}

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A server and what is done with it.
pub(crate) struct ServerLife<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) service: &'a Service,
    pub(crate) limits: &'a ServiceLimits,
    pub(crate) work: &'a Work,
    /// The variables of the load.
    pub(crate) variables: &'a Variables,
    /// The CPUs of the load; empty: all that are allowed.
    pub(crate) load_cpus: &'a [usize],
    /// Purpose of the life.
    pub(crate) purpose: Purpose,
    /// Whether the server is trimmed from outside, from its readiness to the end of the pause.
    pub(crate) is_trimmed: bool,
    /// Most seconds of a line of load, where a limit of memory may make it slow.
    pub(crate) longest_line_s: Option<f64>,
}

/// Purpose of the life of a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Purpose {
    /// A run that is compared; with the rate of the open loop, requests per second.
    Measure(Option<f64>),
    /// The most requests per second of the open loop, without any other load.
    FindRate,
    /// The runtime of the process that holds most of the memory, without any load.
    FindRuntime,
}

impl Purpose {
    /// The rate of the open loop.
    pub(crate) fn rate(self) -> Option<f64> {
        match self {
            Self::Measure(rate) => rate,
            Self::FindRate | Self::FindRuntime => None,
        }
    }
}

impl ServerLife<'_> {
    /// Leads the server from its start to the end of the pause.
    pub(crate) fn lead(&mut self, ready: &Ready, run: &mut ServerRun) -> Result<LoadCost, Interrupted> {
        self.wait_until_ready(ready)?;
        let ready_s = self.server.began().elapsed().as_secs_f64();
        run.record(Figure::lower("ready", ready_s, "s"));
        self.server.tree().adopt_no_more();
        let look = self.server.tree().look();
        run.record(Figure::lower("memory_ready", look.bytes as f64, "B"));
        let rate = match self.purpose {
            Purpose::Measure(rate) => rate,
            Purpose::FindRate => {
                self.open_loop(0.0, run)?;
                return Ok(LoadCost::default());
            }
            Purpose::FindRuntime => return Ok(LoadCost::default()),
        };
        let tree = self.server.shared_tree();
        let trimmer = self.is_trimmed.then(|| Trimmer::start(&tree));
        let meter = Meter::start(None);
        let cpu_before = self.server.tree().cpu();
        let ticks_before = self.server.tree().ticks_s();
        for _ in 0..self.service.cycles {
            let cycle = self.cycle(&mut run.notes)?;
            run.cycles.push(cycle);
        }
        let cpu_after = self.server.tree().cpu();
        let cpu_s = (cpu_after.0 - cpu_before.0, cpu_after.1 - cpu_before.1);
        let by_ticks = self.server.tree().ticks_s() - ticks_before;
        run.record(Figure::lower("cpu_ticks", by_ticks / f64::from(self.service.cycles), "s"));
        let cost = LoadCost { cpu_s, pace: meter.stop() };
        run.heaps = self.server.heaps();
        if self.service.idle > 0.0 {
            self.rest(Instant::now(), self.service.idle)?;
            let look = self.server.tree().look();
            run.record(Figure::lower("memory_idle", look.bytes as f64, "B"));
            run.heaps_idle = self.server.heaps();
        }
        if let Some(rate) = rate {
            self.open_loop(rate, run)?;
        }
        self.day(run)?;
        run.notes.extend(trimmer.and_then(Trimmer::stop));
        Ok(cost)
    }

    fn wait_until_ready(&mut self, ready: &Ready) -> Result<(), Interrupted> {
        let limit = Duration::from_secs_f64(self.service.ready_timeout);
        loop {
            let is_ready = match ready {
                Ready::Command(line) => self.shell(line, self.variables, limit)?.is_ok,
                other => other.answers(),
            };
            if let Some(how) = self.server.ended() {
                return Err(Failure::new(Stage::Ready, format!("it ended before it was ready: {how}")).into());
            }
            if self.server.is_short_of_memory() {
                return Err(Failure::new(
                    Stage::Ready,
                    "it reached the limit of memory before it was ready".into(),
                )
                .into());
            }
            if is_ready {
                return Ok(());
            }
            self.check_time()?;
            if self.server.began().elapsed() > limit {
                let what = format!("it was not ready after {:.0} s", limit.as_secs_f64());
                return Err(Failure::new(Stage::Ready, what).into());
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// An error when the run has taken longer than it may.
    fn check_time(&self) -> Result<(), Interrupted> {
        match self.limits.timeout {
            Some(limit) if self.server.began().elapsed() > limit => {
                Err(Failure::new(Stage::Timeout, too_long(limit)).into())
            }
            _ => Ok(()),
        }
    }

    fn cycle(&mut self, notes: &mut Vec<String>) -> Result<CycleFigures, Interrupted> {
        let began = Instant::now();
        let (user, system) = self.server.tree().cpu();
        let mut cycle = CycleFigures::default();
        let service = self.service;
        for line in &service.load {
            cycle.phases.push(self.phase(line, self.variables, notes)?);
        }
        cycle.wall_s = began.elapsed().as_secs_f64();
        let mut tree = self.server.tree();
        let after = tree.cpu();
        cycle.cpu_s = after.0 + after.1 - user - system;
        cycle.end_bytes = tree.look().bytes;
        Ok(cycle)
    }

    fn phase(
        &mut self,
        line: &str,
        variables: &Variables,
        notes: &mut Vec<String>,
    ) -> Result<PhaseFigures, Interrupted> {
        let metrics = self.work.metrics();
        let _ = std::fs::remove_file(&metrics); // remove the file of the line before
        let logs = adapter::logs_before(line, self.service.folder_or(self.work.path()), variables);
        let most = self.longest_line_s.unwrap_or(f64::INFINITY).min(self.service.load_timeout);
        let end = self.shell(line, variables, Duration::from_secs_f64(most))?;
        self.accept(line, &end, notes)?;
        Ok(PhaseFigures {
            wall_s: end.wall_s,
            figures: adapter::figures_of(line, &end.output, &metrics, logs),
        })
    }

    /// The open loop at this rate; 0: as fast as it can. Its figures get names of their own.
    fn open_loop(&mut self, rate: f64, run: &mut ServerRun) -> Result<(), Interrupted> {
        let Some(line) = self.service.open.as_deref() else { return Ok(()) };
        let mut variables = self.variables.clone();
        variables.insert("RATE".into(), format!("{rate:.3}").into());
        for figure in self.phase(line, &variables, &mut run.notes)?.figures {
            run.record(Figure { name: format!("open_{}", figure.name), ..figure });
        }
        Ok(())
    }

    /// A day, part by part. A part whose load takes longer than it may is longer, and a note says so.
    fn day(&mut self, run: &mut ServerRun) -> Result<(), Interrupted> {
        let service = self.service;
        for part in &service.day {
            let began = Instant::now();
            let began_s = began.duration_since(self.server.began()).as_secs_f64();
            let (user, system) = self.server.tree().cpu();
            for number in 0..part.cycles {
                if part.part == DayKind::Busy {
                    self.rest(began, part.seconds * f64::from(number) / f64::from(part.cycles))?;
                }
                self.cycle(&mut run.notes)?;
            }
            self.rest(began, part.seconds)?;
            let after = self.server.tree().cpu();
            let (name, wall_s) = (part.part.name().to_owned(), began.elapsed().as_secs_f64());
            if wall_s > part.seconds * 1.02 {
                run.notes.push(format!("the day: {name} took {wall_s:.0} s and not {:.0} s", part.seconds));
            }
            let cpu_s = after.0 + after.1 - user - system;
            run.day.push(DayFigures { part: name, began_s, wall_s, cpu_s });
        }
        Ok(())
    }

    /// Whether the line, and the server under it, ended well.
    fn accept(&mut self, line: &str, end: &LineEnd, notes: &mut Vec<String>) -> Result<(), Interrupted> {
        if let Some(how) = self.server.ended() {
            return Err(Failure::new(Stage::Died, format!("it ended under load: {how}")).into());
        }
        self.check_time()?;
        let what = if end.is_ok {
            let Some(requests) = adapter::too_many_failed(line, end) else { return Ok(()) };
            format!("the load failed: {requests}")
        } else {
            format!("the load failed ({}): {}", end.how, end.last_line())
        };
        if !(self.limits.ignores_load_failure && (end.is_ok || end.failed_by_itself)) {
            return Err(Failure::new(Stage::Load, what).into());
        }
        if !notes.contains(&what) {
            notes.push(what);
        }
        Ok(())
    }

    /// Runs a line of load. It is ended when the server has ended. Its processes do not count as the
    /// server's.
    fn shell(
        &mut self,
        line: &str,
        variables: &Variables,
        timeout: Duration,
    ) -> Result<LineEnd, Interrupted> {
        let tree = self.server.shared_tree();
        let spawn = |start: &mut dyn FnMut() -> std::io::Result<Child>| {
            let mut tree = locked(&tree);
            let child = start()?;
            tree.leave_out(child.id());
            Ok(child)
        };
        let mut looked = Instant::now();
        let limit = self.limits.timeout;
        let folder = self.service.folder_or(self.work.path());
        let line = ShellLine { line, folder, variables, timeout, cpus: self.load_cpus };
        let server = &mut *self.server;
        let end = line.run(spawn, || {
            if looked.elapsed() < LOOK_EVERY {
                return None;
            }
            looked = Instant::now();
            if server.is_short_of_memory() {
                return Some("the limit of memory was reached".to_owned());
            }
            let overdue = limit.filter(|&limit| server.began().elapsed() > limit).map(too_long);
            overdue.or_else(|| server.ended().map(|how| format!("the server ended: {how}")))
        });
        end.map_err(|error| Interrupted::Error(error.into()))
    }

    /// Leaves the server without load until `seconds` after `began`.
    fn rest(&mut self, began: Instant, seconds: f64) -> Result<(), Interrupted> {
        while began.elapsed().as_secs_f64() < seconds {
            if let Some(how) = self.server.ended() {
                return Err(Failure::new(Stage::Idle, format!("it ended in the pause: {how}")).into());
            }
            self.check_time()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

fn too_long(limit: Duration) -> String {
    format!("the run took longer than {} s", limit.as_secs_f64())
}

/// Time between two rounds of trims. A run lasts a minute or less.
const EVERY: Duration = Duration::from_secs(2);
/// Bytes that a look must promise before a process is trimmed. The services of the laboratory are small.
const AT_LEAST: u64 = 1 << 20;

/// Trims of the processes of one server.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TrimsMade {
    /// Looks that promised too little.
    too_little: u32,
    /// Longest time that a thread stood still, ms, of each trim.
    stood_ms: Vec<f64>,
    /// Resident bytes that went.
    returned: u64,
    /// Reasons why a process was left alone, with their numbers.
    left_alone: BTreeMap<String, u32>,
}

/// A thread that trims at intervals until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Trimmer(Watcher<TrimsMade>);

impl Trimmer {
    pub(crate) fn start(tree: &SharedTree) -> Self {
        let tree = SharedTree::clone(tree);
        Self(Watcher::start(move |stop| {
            let mut made = TrimsMade::default();
            while !stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                let pids = locked(&tree).pids();
                pids.into_iter().take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|pid| made.trim(pid));
            }
            made
        }))
    }

    /// Ends the trims. Returns them in words, as a note of the run.
    pub(crate) fn stop(self) -> Option<String> {
        self.0.stop().map(|made| made.in_words())
    }
}

impl TrimsMade {
    fn trim(&mut self, pid: u32) {
        match process_trim::heaps_of(pid) {
            Ok(figures) if figures.bytes.returnable < AT_LEAST => self.too_little += 1,
            Ok(_) => match process_trim::from_outside(pid) {
                Ok(FromOutside::Done(done)) => {
                    let (before, after) = done.resident.unwrap_or_default();
                    self.returned += before.saturating_sub(after);
                    self.stood_ms.push(done.stood_ms);
                }
                Ok(FromOutside::LeftAlone(reason)) => self.leave(reason.to_string()),
                Ok(FromOutside::NotReadable(reason)) => self.leave(reason.to_string()),
                Err(error) => self.leave(error.to_string()),
            },
            Err(reason) => self.leave(reason.to_string()),
        }
    }

    fn leave(&mut self, reason: String) {
        *self.left_alone.entry(reason).or_default() += 1;
    }

    fn in_words(&self) -> String {
        let longest = self.stood_ms.iter().copied().fold(0.0, f64::max);
        let mut words = format!(
            "{} trims from outside: {} MiB back, a thread stood {longest:.1} ms at most; {} looks promised less than 1 MiB",
            self.stood_ms.len(),
            self.returned >> 20,
            self.too_little
        );
        for (reason, count) in &self.left_alone {
            words += &format!("; left alone {count} times: {reason}");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_are_told_in_words() {
        let mut made = TrimsMade { stood_ms: vec![0.2, 1.25], returned: 5 << 20, ..TrimsMade::default() };
        made.too_little = 3;
        made.leave("it has ended".to_owned());
        let words = "2 trims from outside: 5 MiB back, a thread stood 1.2 ms at most; 3 looks promised less than 1 \
                     MiB; left alone 1 times: it has ended";
        assert_eq!(made.in_words(), words);
    }
}
