// SPDX-License-Identifier: Apache-2.0
//! The life of a started server in one run: until it is ready, cycles of load, the pause.

use std::process::Child;
use std::time::{Duration, Instant};

use imas_core::pace::Pace;
use imas_linux::environment::Variables;
use imas_linux::pace::Meter;

use crate::service::definition::Service;
use crate::service::error::ServiceError;
use crate::service::limits::ServiceLimits;
use crate::service::line::{LineEnd, ShellLine};
use crate::service::load;
use crate::service::ready::Ready;
use crate::service::server::{Server, locked};
use crate::service::work::Work;
use imas_core::server_run::figure::Figure;
use imas_core::server_run::{CycleFigures, Failure, PhaseFigures, ServerRun, Stage};

/// Time between two tests for readiness.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Time between two checks that the server still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the load cost.
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
        let meter = Meter::start(None);
        let cpu_before = self.server.tree().cpu();
        for _ in 0..self.service.cycles {
            let cycle = self.cycle(&mut run.notes)?;
            run.cycles.push(cycle);
        }
        let cpu_after = self.server.tree().cpu();
        let cpu_s = (cpu_after.0 - cpu_before.0, cpu_after.1 - cpu_before.1);
        let cost = LoadCost { cpu_s, pace: meter.stop() };
        run.heaps = self.server.heaps();
        if self.service.idle > 0.0 {
            self.pause()?;
            let look = self.server.tree().look();
            run.record(Figure::lower("memory_idle", look.bytes as f64, "B"));
            run.heaps_idle = self.server.heaps();
        }
        Ok(cost)
    }

    fn wait_until_ready(&mut self, ready: &Ready) -> Result<(), Interrupted> {
        let limit = Duration::from_secs_f64(self.service.ready_timeout);
        loop {
            let is_ready = match ready {
                Ready::Command(line) => self.shell(line, limit)?.is_ok,
                other => other.answers(),
            };
            if let Some(how) = self.server.ended() {
                return Err(Failure::new(Stage::Ready, format!("it ended before it was ready: {how}")).into());
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
            cycle.phases.push(self.phase(line, notes)?);
        }
        cycle.wall_s = began.elapsed().as_secs_f64();
        let mut tree = self.server.tree();
        let after = tree.cpu();
        cycle.cpu_s = after.0 + after.1 - user - system;
        cycle.end_bytes = tree.look().bytes;
        Ok(cycle)
    }

    fn phase(&mut self, line: &str, notes: &mut Vec<String>) -> Result<PhaseFigures, Interrupted> {
        let metrics = self.work.metrics();
        let _ = std::fs::remove_file(&metrics); // remove the file of the line before
        let logs = load::logs_before(line, self.work.path(), self.variables);
        let end = self.shell(line, Duration::from_secs_f64(self.service.load_timeout))?;
        if let Some(how) = self.server.ended() {
            return Err(Failure::new(Stage::Died, format!("it ended under load: {how}")).into());
        }
        self.check_time()?;
        if !end.is_ok {
            let what = format!("the load failed ({}): {}", end.how, end.last_line());
            if !(self.limits.ignores_load_failure && end.failed_by_itself) {
                return Err(Failure::new(Stage::Load, what).into());
            }
            if !notes.contains(&what) {
                notes.push(what);
            }
        }
        Ok(PhaseFigures { wall_s: end.wall_s, figures: load::figures_of(line, &end.output, &metrics, logs) })
    }

    /// Runs a line of load. It is ended when the server has ended. Its processes do not count as the
    /// server's.
    fn shell(&mut self, line: &str, timeout: Duration) -> Result<LineEnd, Interrupted> {
        let tree = self.server.shared_tree();
        let spawn = |start: &mut dyn FnMut() -> std::io::Result<Child>| {
            let mut tree = locked(&tree);
            let child = start()?;
            tree.leave_out(child.id());
            Ok(child)
        };
        let mut looked = Instant::now();
        let limit = self.limits.timeout;
        let (folder, variables) = (self.work.path(), self.variables);
        let line = ShellLine { line, folder, variables, timeout, cpus: self.load_cpus };
        let server = &mut *self.server;
        let end = line.run(spawn, || {
            if looked.elapsed() < LOOK_EVERY {
                return None;
            }
            looked = Instant::now();
            let overdue = limit.filter(|&limit| server.began().elapsed() > limit).map(too_long);
            overdue.or_else(|| server.ended().map(|how| format!("the server ended: {how}")))
        });
        end.map_err(|error| Interrupted::Error(error.into()))
    }

    fn pause(&mut self) -> Result<(), Interrupted> {
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < self.service.idle {
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
