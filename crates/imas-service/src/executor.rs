// SPDX-License-Identifier: Apache-2.0
//! One call is one run of one candidate: start, ready, cycles of load, pause, stop.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use imas_core::sample::is_crash_signal;
use imas_linux::arenas::ArenaHeaps;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::clock::now_unix_s;
use imas_linux::environment::{Injection, Libraries, Mode, Reach, Variables};
use imas_linux::measure::{adopt_orphans, end_descendants};
use imas_linux::pace::Meter;
use imas_linux::process::signal_name;
use imas_linux::program::Command;
use imas_linux::{conditions, sampler};
use imas_runs::interruption::Interruption;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cpus::{CpuShare, KeptOn};
use crate::definition::Service;
use crate::error::ServiceError;
use crate::figure::Figure;
use crate::group::Group;
use crate::limits::ServiceLimits;
use crate::line::{LineEnd, ShellLine, last_line, tail};
use crate::load;
use crate::ready::Ready;
use crate::recorder::{Recorder, Recording, SharedTree};
use crate::run::{CycleFigures, Failure, PhaseFigures, ServiceRun, Stage};
use crate::tree::Tree;
use crate::variables::expand;
use crate::work::{NAMES, Work};

/// Time between two tests for readiness.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Time between two checks that the server still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit for the server to end. Then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for lines that prepare or clean up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(900);
/// Number of the server's last lines that are kept with a failure.
const SERVER_LINES: usize = 6;
const SERVER_TEXT: u64 = 4096;

/// Makes runs of one service, one at a time. This process adopts the orphans of the processes that it starts.
#[derive(Debug)]
pub struct ServiceExecutor {
    service: Service,
    words: Vec<String>,
    libraries: Libraries,
    inherited: Variables,
    setup: Option<Work>,
    cpus: CpuShare,
    limits: ServiceLimits,
}

impl ServiceExecutor {
    /// Checks the definition and runs its set-up. `inherited` has the variables that server and load inherit.
    ///
    /// # Errors
    /// When the definition is wrong, the command is not found or the set-up fails.
    pub fn new(service: Service, libraries: Libraries, inherited: Variables) -> Result<Self, ServiceError> {
        let words = service.words().map_err(ServiceError::Definition)?;
        Self::with_words(service, words, libraries, inherited, ServiceLimits::default())
    }

    /// The same with the command line already split into words, and with limits of each run.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_words(
        service: Service,
        words: Vec<String>,
        libraries: Libraries,
        inherited: Variables,
        limits: ServiceLimits,
    ) -> Result<Self, ServiceError> {
        service.check().map_err(ServiceError::Definition)?;
        adopt_orphans()?;
        let setup = service.setup.as_ref().map(|_| Work::new("imas-setup-")).transpose()?;
        let cpus = if limits.one_cpu { CpuShare::one_for_the_server() } else { CpuShare::now() };
        let executor = Self { service, words, libraries, inherited, setup, cpus, limits };
        if let (Some(line), Some(work)) = (&executor.service.setup, &executor.setup) {
            let variables = executor.plain(work)?;
            let end = executor.line(line, work.path(), &variables, SETUP_TIMEOUT).run_plain()?;
            end_descendants()?;
            if !end.is_ok {
                return Err(ServiceError::Setup { how: end.how.clone(), last: end.last_line().to_owned() });
            }
        }
        Ok(executor)
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The division of the CPUs.
    #[must_use]
    pub fn cpus(&self) -> &CpuShare {
        &self.cpus
    }

    /// The command that starts the server. Its program is checked before any run.
    ///
    /// # Errors
    /// When the program is not found.
    pub fn command(&self) -> Result<Command, ServiceError> {
        let work = Work::new("imas-service-")?;
        self.command_in(&self.plain(&work)?)
    }

    /// Makes one run and ends all of its processes. If the server fails, the record has the failure.
    ///
    /// # Errors
    /// When the run cannot be made at all, or a signal asked this program to end.
    pub fn run(
        &self,
        candidate: &CatalogueCandidate,
        round: u32,
        interruption: &Interruption,
    ) -> Result<ServiceRun, ServiceError> {
        let began = Instant::now();
        let mut run = ServiceRun {
            service: self.service.name.clone(),
            candidate: candidate.name.clone(),
            round,
            at_s: now_unix_s(),
            cpus: self.cpus.clone(),
            by_clock: load::is_by_clock(&self.service.load),
            load1: conditions::load1(),
            ..ServiceRun::default()
        };
        let work = Work::new("imas-service-")?;
        let variables = self.plain(&work)?;
        let made = self.in_folder(candidate, &work, &variables, &mut run);
        if let Some(signal) = interruption.signal() {
            // The clean-up would be killed half-way.
            end_descendants()?;
            return Err(ServiceError::Interrupted(signal));
        }
        if let Some(cleanup) = &self.service.cleanup {
            let end = self.line(cleanup, work.path(), &variables, SETUP_TIMEOUT).run_plain()?;
            if !end.is_ok {
                run.notes.push(format!("the clean-up failed ({}): {}", end.how, end.last_line()));
            }
        }
        end_descendants()?;
        run.took_s = began.elapsed().as_secs_f64();
        made.map(|()| run)
    }

    fn plain(&self, work: &Work) -> Result<Variables, ServiceError> {
        let mut variables = work.variables(&self.inherited, self.setup.as_ref().map(Work::path))?;
        variables.extend(self.service.folder.iter().map(|folder| ("SERVICE_DIR".into(), folder.into())));
        for (name, value) in &self.service.environment {
            let value = expand(value, &variables, &NAMES);
            variables.insert(name.into(), value.into());
        }
        Ok(variables)
    }

    fn command_in(&self, variables: &Variables) -> Result<Command, ServiceError> {
        let words: Vec<OsString> =
            self.words.iter().map(|word| expand(word, variables, &NAMES).into()).collect();
        let path = variables.get(std::ffi::OsStr::new("PATH"));
        Ok(Command::resolve(&words, path.map(OsString::as_os_str))?)
    }

    fn line<'a>(
        &'a self,
        line: &'a str,
        folder: &'a Path,
        variables: &'a Variables,
        timeout: Duration,
    ) -> ShellLine<'a> {
        ShellLine { line, folder, variables, timeout, cpus: &self.cpus.load }
    }

    fn in_folder(
        &self,
        candidate: &CatalogueCandidate,
        work: &Work,
        variables: &Variables,
        run: &mut ServiceRun,
    ) -> Result<(), ServiceError> {
        if let Some(prepare) = &self.service.prepare {
            let end = self.line(prepare, work.path(), variables, SETUP_TIMEOUT).run_plain()?;
            if !end.is_ok {
                run.failure =
                    Some(failure(Stage::Prepare, format!("prepare: {}: {}", end.how, end.last_line())));
                return Ok(());
            }
        }
        let asked = Ready::parse(&self.ready_text(variables)).map_err(ServiceError::Definition)?;
        // A proxy that `prepare` started may listen already and answer with an error. An answer that counts
        // as ready comes from a foreign process.
        if asked.answers() {
            let what = format!(
                "{} is taken: something answers there before the server is started",
                self.ready_text(variables)
            );
            run.failure = Some(failure(Stage::Taken, what));
            return Ok(());
        }
        let mut server = Server::start(self, candidate, work, variables)?;
        run.control_group = server.tree().has_group();
        let recorder = Recorder::start(&server.tree, server.began);
        let found = self.serve(&mut server, &asked, run);
        run.loaded = candidate.library.as_deref().map(|library| server.loaded(library));
        if let Some((with, all)) = run.loaded.filter(|(with, all)| with < all && found.is_ok()) {
            run.notes
                .push(format!("only {with} of {all} processes of the server have the candidate's library"));
        }
        let failure = match found {
            Ok(spans) => {
                let stopped = server.stop(self.service.stop.signal(), run)?;
                let recording = recorder.stop();
                self.figures(run, &recording, &spans);
                run.curve = recording.curve();
                stopped
            }
            Err(Interrupted::Failed(failure)) => {
                run.curve = recorder.stop().curve();
                Some(failure)
            }
            Err(Interrupted::Error(error)) => return Err(error),
        };
        run.failure = failure.map(|failure| server.explained(failure));
        Ok(())
    }

    /// The text of the readiness test with its variables replaced. A command is left to the shell, which
    /// replaces them.
    fn ready_text(&self, variables: &Variables) -> String {
        let text = &self.service.ready;
        let is_ours = ["tcp:", "unix:", "http://"].iter().any(|kind| text.starts_with(kind));
        if is_ours { expand(text, variables, &NAMES) } else { text.clone() }
    }

    /// From the start to the end of the pause.
    fn serve(
        &self,
        server: &mut Server<'_>,
        asked: &Ready,
        run: &mut ServiceRun,
    ) -> Result<Spans, Interrupted> {
        self.wait_until_ready(server, asked)?;
        let ready_s = server.began.elapsed().as_secs_f64();
        run.figures.extend(named(Figure::lower("ready", ready_s, "s")));
        server.tree().adopt_no_more();
        let look = server.tree().look();
        run.figures.extend(named(Figure::lower("memory_ready", look.bytes as f64, "B")));
        let meter = Meter::start(None);
        let cpu_before = server.tree().cpu();
        for _ in 0..self.service.cycles {
            let cycle = self.cycle(server, &mut run.notes)?;
            run.cycles.push(cycle);
        }
        let loaded_s = server.began.elapsed().as_secs_f64();
        let cpu_after = server.tree().cpu();
        run.cpu_s = (cpu_after.0 - cpu_before.0, cpu_after.1 - cpu_before.1);
        run.pace = meter.stop();
        run.heaps = server.heaps();
        if self.service.idle > 0.0 {
            self.pause(server)?;
            let look = server.tree().look();
            run.figures.extend(named(Figure::lower("memory_idle", look.bytes as f64, "B")));
            run.heaps_idle = server.heaps();
        }
        Ok(Spans { ready_s, loaded_s })
    }

    fn wait_until_ready(&self, server: &mut Server<'_>, asked: &Ready) -> Result<(), Interrupted> {
        let limit = Duration::from_secs_f64(self.service.ready_timeout);
        loop {
            let is_ready = match asked {
                Ready::Command(line) => self.shell(server, line, limit)?.is_ok,
                other => other.answers(),
            };
            if let Some(how) = server.ended() {
                return Err(failure(Stage::Ready, format!("it ended before it was ready: {how}")).into());
            }
            if is_ready {
                return Ok(());
            }
            self.check_time(server)?;
            if server.began.elapsed() > limit {
                let what = format!("it was not ready after {:.0} s", limit.as_secs_f64());
                return Err(failure(Stage::Ready, what).into());
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// An error when the run has taken longer than it may.
    fn check_time(&self, server: &Server<'_>) -> Result<(), Interrupted> {
        match self.limits.timeout {
            Some(limit) if server.began.elapsed() > limit => {
                Err(failure(Stage::Timeout, too_long(limit)).into())
            }
            _ => Ok(()),
        }
    }

    fn cycle(&self, server: &mut Server<'_>, notes: &mut Vec<String>) -> Result<CycleFigures, Interrupted> {
        let began = Instant::now();
        let (user, system) = server.tree().cpu();
        let mut cycle = CycleFigures::default();
        for line in &self.service.load {
            cycle.phases.push(self.phase(server, line, notes)?);
        }
        cycle.wall_s = began.elapsed().as_secs_f64();
        let mut tree = server.tree();
        let after = tree.cpu();
        cycle.cpu_s = after.0 + after.1 - user - system;
        cycle.end_bytes = tree.look().bytes;
        Ok(cycle)
    }

    fn phase(
        &self,
        server: &mut Server<'_>,
        line: &str,
        notes: &mut Vec<String>,
    ) -> Result<PhaseFigures, Interrupted> {
        let metrics = server.work.metrics();
        let _ = std::fs::remove_file(&metrics); // remove the file of the line before
        let logs = load::logs_before(line, server.work.path(), server.variables);
        let end = self.shell(server, line, Duration::from_secs_f64(self.service.load_timeout))?;
        if let Some(how) = server.ended() {
            return Err(failure(Stage::Died, format!("it ended under load: {how}")).into());
        }
        self.check_time(server)?;
        if !end.is_ok {
            let what = format!("the load failed ({}): {}", end.how, end.last_line());
            if !(self.limits.ignores_load_failure && end.failed_by_itself) {
                return Err(failure(Stage::Load, what).into());
            }
            if !notes.contains(&what) {
                notes.push(what);
            }
        }
        Ok(PhaseFigures { wall_s: end.wall_s, figures: load::figures_of(line, &end.output, &metrics, logs) })
    }

    /// Runs a line of load. It is ended when the server has ended. Its processes do not count as the
    /// server's.
    fn shell(&self, server: &mut Server<'_>, line: &str, timeout: Duration) -> Result<LineEnd, Interrupted> {
        let (work, variables) = (server.work, server.variables.clone());
        let tree = Arc::clone(&server.tree);
        let spawn = |start: &mut dyn FnMut() -> std::io::Result<Child>| {
            let mut tree = locked(&tree);
            let child = start()?;
            tree.leave_out(child.id());
            Ok(child)
        };
        let mut looked = Instant::now();
        let limit = self.limits.timeout;
        let end = self.line(line, work.path(), &variables, timeout).run(spawn, || {
            if looked.elapsed() < LOOK_EVERY {
                return None;
            }
            looked = Instant::now();
            let overdue = limit.filter(|&limit| server.began.elapsed() > limit).map(too_long);
            overdue.or_else(|| server.ended().map(|how| format!("the server ended: {how}")))
        });
        end.map_err(|error| Interrupted::Error(error.into()))
    }

    fn pause(&self, server: &mut Server<'_>) -> Result<(), Interrupted> {
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < self.service.idle {
            if let Some(how) = server.ended() {
                return Err(failure(Stage::Idle, format!("it ended in the pause: {how}")).into());
            }
            self.check_time(server)?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn figures(&self, run: &mut ServiceRun, recording: &Recording, spans: &Spans) {
        let n = f64::from(self.service.cycles);
        let walls: Vec<f64> = run.cycles.iter().map(|cycle| cycle.wall_s).collect();
        let wall = imas_core::stats::median(&walls).unwrap_or(0.0);
        let mut figures = load::over_all(&run.cycles);
        if !figures.contains_key("rate") && wall > 0.0 {
            figures.extend(named(Figure::higher("rate", 1.0 / wall, "cycles/s")));
        }
        let ends = run.cycles.iter().map(|cycle| cycle.end_bytes);
        let peak = recording.peak_bytes().into_iter().chain(ends.clone()).max();
        let mean = recording.mean(spans.ready_s, spans.loaded_s);
        let mean = mean.or_else(|| Some(ends.sum::<u64>() as f64 / n)).filter(|mean| *mean > 0.0);
        let found = [
            Some(Figure::lower("cycle", wall, "s")),
            Some(Figure::lower("cpu", (run.cpu_s.0 + run.cpu_s.1) / n, "s")),
            mean.map(|mean| Figure::lower("memory", mean, "B")),
            peak.map(|peak| Figure::lower("memory_peak", peak as f64, "B")),
            slope(&run.cycles).map(|slope| Figure::lower("memory_slope", slope, "B/cycle")),
            recording.peak_threads().map(|threads| Figure::lower("threads", threads as f64, "threads")),
        ];
        figures.extend(found.into_iter().flatten().flat_map(named));
        run.figures.extend(figures);
    }
}

/// Growth of memory per cycle, bytes: the slope of the regression line through the ends of all cycles.
fn slope(cycles: &[CycleFigures]) -> Option<f64> {
    let n = cycles.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = cycles.iter().map(|cycle| cycle.end_bytes as f64).sum::<f64>() / n;
    let places = || {
        cycles.iter().zip(0_u32..).map(|(cycle, i)| (f64::from(i) - middle, cycle.end_bytes as f64 - mean))
    };
    let spread: f64 = places().map(|(x, _)| x * x).sum();
    (spread > 0.0).then(|| places().map(|(x, y)| x * y).sum::<f64>() / spread)
}

fn too_long(limit: Duration) -> String {
    format!("the run took longer than {} s", limit.as_secs_f64())
}

fn named(figure: Figure) -> [(String, Figure); 1] {
    [(figure.name.clone(), figure)]
}

fn failure(stage: Stage, what: String) -> Failure {
    Failure { stage, what, signal: None, server: String::new() }
}

/// Times of the phases, in seconds since the start.
struct Spans {
    ready_s: f64,
    loaded_s: f64,
}

/// The reason why a run was ended early.
enum Interrupted {
    Failed(Failure),
    Error(ServiceError),
}

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn locked(tree: &SharedTree) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server of one run. Drop ends all of its processes.
struct Server<'a> {
    child: Child,
    /// Exit status of its first process.
    status: Option<ExitStatus>,
    tree: SharedTree,
    work: &'a Work,
    variables: &'a Variables,
    began: Instant,
    log: File,
    /// Its candidate is the C library's malloc, untouched or with settings.
    is_on_libc: bool,
}

impl<'a> Server<'a> {
    fn start(
        executor: &ServiceExecutor,
        candidate: &CatalogueCandidate,
        work: &'a Work,
        variables: &'a Variables,
    ) -> Result<Self, ServiceError> {
        let command = executor.command_in(variables)?;
        let injection = Injection { candidate, mode: Mode::Production, reach: Reach::Children, page: None };
        let injected = injection.variables(variables, &executor.libraries)?;
        let others: BTreeSet<u32> = sampler::tree(std::process::id()).into_iter().skip(1).collect();
        // A file, not a pipe: a daemon would hold a pipe open. Both outputs are appended, and read at the
        // end.
        let log = tempfile::tempfile()?;
        let group = Group::new();
        let began = Instant::now();
        let spawn = || {
            let _kept = KeptOn::new(&executor.cpus.server);
            std::process::Command::new(&command.file)
                .arg0(command.argv.first().map_or(command.file.as_os_str(), |word| word))
                .args(command.argv.get(1..).unwrap_or_default())
                .current_dir(work.path())
                .env_clear()
                .envs(&injected)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log.try_clone()?)
                .process_group(0)
                .spawn()
        };
        let (child, group) = match group.map(|group| (group.within(spawn), group)) {
            Some((Ok(child), group)) => (child?, Some(group)),
            _ => (spawn()?, None),
        };
        let tree = Arc::new(Mutex::new(Tree::new(child.id(), group, others)));
        let is_on_libc = candidate.library.is_none();
        Ok(Self { child, status: None, tree, work, variables, began, log, is_on_libc })
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        locked(&self.tree)
    }

    /// The exit status, if the server has ended: its first process failed, or none of its processes runs. If
    /// the first process exits with 0 and others still run, the server is a daemon.
    fn ended(&mut self) -> Option<String> {
        if self.status.is_none() {
            self.tree().refresh(); // read the CPU time while the process is a zombie
            self.status = self.child.try_wait().ok().flatten();
        }
        let status = self.status?;
        (!status.success() || self.tree().is_empty()).then(|| how(status))
    }

    /// Number of its processes that have loaded the library, and number of all.
    fn loaded(&self, library: &Path) -> (usize, usize) {
        let pids = self.tree().pids();
        let with = pids.iter().filter(|&&pid| imas_linux::process::maps(pid, library).unwrap_or(false));
        (with.count(), pids.len())
    }

    /// The heaps of glibc's arenas in each process; empty under another allocator.
    fn heaps(&self) -> Vec<ArenaHeaps> {
        let pids = if self.is_on_libc { self.tree().pids() } else { Vec::new() };
        pids.into_iter().filter_map(ArenaHeaps::of).collect()
    }

    /// Sends the signal and waits until no process of the server runs. A crash meanwhile is a failure.
    fn stop(&mut self, signal: Signal, run: &mut ServiceRun) -> Result<Option<Failure>, ServiceError> {
        if let Some(how) = self.ended() {
            return Ok(Some(failure(Stage::Idle, format!("it ended by itself: {how}"))));
        }
        let first = self.status.is_none().then(|| vec![self.child.id()]);
        let asked = first.unwrap_or_else(|| self.tree().tops());
        asked.into_iter().for_each(|pid| send(pid, signal));
        let began = Instant::now();
        while began.elapsed() < STOP_TIMEOUT {
            if self.status.is_none() {
                self.status = self.child.try_wait()?;
            }
            if self.status.is_some() && self.tree().is_empty() {
                break;
            }
            std::thread::sleep(ASK_EVERY);
        }
        if self.end()? {
            run.notes.push(format!("it did not end within {} s and was killed", STOP_TIMEOUT.as_secs()));
            return Ok(None);
        }
        let crashed = self.status.and_then(|status| status.signal()).filter(|&raw| is_crash(raw));
        Ok(crashed.map(|raw| {
            failure(Stage::Stop, format!("it crashed when it was asked to end: {}", signal_name(raw)))
        }))
    }

    /// Kills the remaining processes. Returns whether there were any.
    fn end(&mut self) -> Result<bool, ServiceError> {
        let left = self.tree().pids();
        left.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
        if self.status.is_none() {
            self.status = Some(self.child.wait()?);
        }
        Ok(!left.is_empty())
    }

    /// Adds the signal and the server's last lines to the failure.
    fn explained(&mut self, failure: Failure) -> Failure {
        let text = tail(&mut self.log, SERVER_TEXT).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let server = lines[lines.len().saturating_sub(SERVER_LINES)..].join("\n");
        let what = match last_line(&server) {
            Some(last) if failure.stage.is_of_the_server() => {
                format!("{}; its last line: {last}", failure.what)
            }
            _ => failure.what.clone(),
        };
        let signal = self.status.and_then(|status| status.signal()).filter(|&raw| is_crash(raw));
        Failure { what, signal, server, ..failure }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.end(); // the run may have ended at any point
    }
}

fn is_crash(signal: i32) -> bool {
    u32::try_from(signal).is_ok_and(is_crash_signal)
}

fn send(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal); // the process may have ended in the meantime
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, raw) => signal_name(raw.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line_through_all_ends() {
        let cycles = |ends: &[u64]| -> Vec<CycleFigures> {
            ends.iter().map(|&end_bytes| CycleFigures { end_bytes, ..CycleFigures::default() }).collect()
        };
        assert_eq!(slope(&cycles(&[10, 20, 30])), Some(10.0));
        assert_eq!(slope(&cycles(&[30, 10])), Some(-20.0));
        assert_eq!((slope(&cycles(&[30])), slope(&cycles(&[]))), (None, None));
    }
}
