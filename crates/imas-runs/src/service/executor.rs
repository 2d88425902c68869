// SPDX-License-Identifier: Apache-2.0
//! One call is one run of one candidate: start, ready, cycles of load, pause, stop.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::command;
use crate::executor::Execution;
use crate::interruption::Interruption;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{Injection, Libraries, Mode, Reach, Variables};
use imas_linux::host::{self, now_unix_s};
use imas_linux::measure::{RunOutcome, adopt_orphans, end_descendants};
use imas_linux::program::Command;
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::runtime_start::with_arguments;

use crate::counted::Folder;
use crate::service::definition::{MemoryBound, Service, ServiceError, ServiceLimits};
use crate::service::life::{Interrupted, LoadCost, Purpose, ServerLife};
use crate::service::line::{NAMES, ShellLine, Work, expand};
use crate::service::ready::Ready;
use crate::service::recorder::{Recorder, add_figures, finished, with_live};
use crate::service::server::{Server, ServerStart};
use crate::service::tree::MemoryControl;
use crate::service::{adapter, line};
use imas_core::run::{RawRun, RunKind};
use imas_core::server_run::{C_LIBRARY, CpuShare, Failure, ServerRun, Stage};

/// The rate of the open loop, as a share of the most that `system` reaches.
const SHARE_OF_MOST: f64 = 0.5;
/// Advice about a port that is given.
const FREE_PORT: &str = ": let the server listen on $PORT, which is a free port for each run";
/// Time limit for lines that prepare or clean up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(900);

/// Candidate, recorder and page with which a server is started.
#[derive(Debug, Clone, Copy)]
struct Preloads<'a> {
    /// None: the environment is untouched, as under `system`.
    candidate: Option<&'a CatalogueCandidate>,
    recorder: Option<&'a command::Recorder>,
    /// The page from which the processes of a counted run make theirs.
    page: Option<&'a Path>,
    /// Bound on the server's memory.
    memory: Option<&'a MemoryBound>,
}

impl Preloads<'_> {
    /// The command with the arguments that the candidate adds.
    fn command(self, mut command: Command) -> Command {
        if let Some(candidate) = self.candidate {
            command.argv = with_arguments(candidate, &command.argv);
        }
        command
    }

    fn variables(self, inherited: &Variables, libraries: &Libraries) -> Result<Variables, ServiceError> {
        let Self { candidate, recorder, page, memory: _ } = self;
        let Some(candidate) = candidate else { return Ok(inherited.clone()) };
        if let Some(recorder) = recorder {
            return recorder
                .variables(candidate, inherited, libraries)
                .map_err(|error| ServiceError::Definition(format!("it cannot be recorded: {error:#}")));
        }
        let (mode, reach) = match page {
            Some(_) => (Mode::Trial, Reach::Tree),
            None => (Mode::Production, Reach::Children),
        };
        let injection = Injection { candidate, mode, reach, page };
        Ok(injection.variables(inherited, libraries)?)
    }
}

/// A run as the runner wants it.
#[must_use]
pub fn execution(record: RawRun) -> Execution {
    let signal = record.of_server().failure.as_ref().and_then(|failure| failure.signal);
    let outcome = RunOutcome { signal, ..RunOutcome::default() };
    Execution { record, outcome, ..Execution::default() }
}

/// Makes runs whose memory a control group counts and limits.
#[derive(Debug)]
pub struct MemoryLimits<'a> {
    executor: &'a ServiceExecutor,
    _control: MemoryControl,
}

impl MemoryLimits<'_> {
    /// Makes one run as [`ServiceExecutor::run`] does, within the bound. The run has the figures `group_peak` (bytes, where
    /// the kernel counts it) and `group_kills`; a server that the kernel killed a process of has failed.
    ///
    /// # Errors
    /// When [`ServiceExecutor::run`] would fail.
    pub fn run(
        &self,
        candidate: &CatalogueCandidate,
        round: u32,
        bound: &MemoryBound,
        interruption: &Interruption,
    ) -> Result<RawRun, ServiceError> {
        let preloads =
            Preloads { candidate: Some(candidate), recorder: None, page: None, memory: Some(bound) };
        self.executor.make((preloads, Purpose::Measure(None)), round, interruption)
    }
}

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
    /// Rate of the open loop, requests per second, once it is known.
    rate: Cell<Option<f64>>,
    /// Runtime that a life with [`Purpose::FindRuntime`] found.
    runtime: RefCell<Option<RunningRuntime>>,
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

    /// Makes an executor from a command line that is already split into words, with limits of each run.
    ///
    /// # Errors
    /// When [`Self::new`] would fail.
    pub fn with_words(
        service: Service,
        words: Vec<String>,
        libraries: Libraries,
        inherited: Variables,
        limits: ServiceLimits,
    ) -> Result<Self, ServiceError> {
        service.check().map_err(ServiceError::Definition)?;
        if let Some(why) = Ready::parse(&service.ready).obstacle() {
            return Err(ServiceError::Definition(why));
        }
        adopt_orphans()?;
        let setup = service.setup.as_ref().map(|_| Work::new("imas-setup-")).transpose()?;
        let cpus = if limits.one_cpu { line::one_for_the_server() } else { line::shared_out() };
        let executor = Self {
            service,
            words,
            libraries,
            inherited,
            setup,
            cpus,
            limits,
            rate: Cell::default(),
            runtime: RefCell::default(),
        };
        if let (Some(line), Some(work)) = (&executor.service.setup, &executor.setup) {
            let variables = executor.plain(work)?;
            let end = executor.line(line, work, &variables, SETUP_TIMEOUT).run_plain()?;
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

    /// Takes over the rate of the open loop from earlier runs of the service: runs at another rate are not comparable.
    pub fn set_rate(&self, rate: Option<f64>) {
        self.rate.set(rate);
    }

    /// The division of the CPUs.
    #[must_use]
    pub fn cpus(&self) -> &CpuShare {
        &self.cpus
    }

    /// The environment of the server, without the variables of a run's folder.
    #[must_use]
    pub fn environment(&self) -> Variables {
        let mut variables = self.inherited.clone();
        for (name, value) in &self.service.environment {
            variables.insert(name.into(), value.into());
        }
        variables
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
    ) -> Result<RawRun, ServiceError> {
        let purpose = Purpose::Measure(self.rate(interruption)?);
        let preloads = Preloads { candidate: Some(candidate), recorder: None, page: None, memory: None };
        self.make((preloads, purpose), round, interruption)
    }

    /// Takes the right to limit the memory of servers, until the returned value is dropped.
    ///
    /// # Errors
    /// When no control group with a limit can be made.
    pub fn limit_memory(&self) -> Result<MemoryLimits<'_>, ServiceError> {
        let control = MemoryControl::take().map_err(|error| {
            ServiceError::Definition(format!("no control group with a limit of memory can be made: {error}"))
        })?;
        Ok(MemoryLimits { executor: self, _control: control })
    }

    /// Makes a run as [`Self::run`] does, with every malloc call counted by the hook. Its memory is measured
    /// under the hook, so the run is compared with no other; `live` says how much of it was in live blocks.
    ///
    /// # Errors
    /// When [`Self::run`] would fail. A server whose processes leave no figures is no error: a note says so.
    pub fn run_counted(
        &self,
        candidate: &CatalogueCandidate,
        interruption: &Interruption,
    ) -> anyhow::Result<RawRun> {
        let folder = Folder::new()?;
        let page = folder.first_page(&self.command()?, candidate, "")?;
        let preloads =
            Preloads { candidate: Some(candidate), recorder: None, page: Some(&page), memory: None };
        let mut run = self.make((preloads, Purpose::Measure(None)), 0, interruption)?;
        if run.ok {
            run = with_live(run, folder.counted());
        }
        Ok(RawRun { kind: RunKind::Counted, ..run })
    }

    /// Starts the server untouched until it is ready, and looks for the runtime of the process that holds most of the memory:
    /// a start script shows none. None where that process has none, or the server does not get ready.
    ///
    /// # Errors
    /// When the start cannot be made at all, or a signal asked this program to end.
    pub fn find_runtime(&self, interruption: &Interruption) -> Result<Option<RunningRuntime>, ServiceError> {
        let untouched = Preloads { candidate: None, recorder: None, page: None, memory: None };
        self.make((untouched, Purpose::FindRuntime), 0, interruption)?;
        Ok(self.runtime.take())
    }

    /// The rate of the open loop: half of what `system` reaches. None where the service has no open loop.
    fn rate(&self, interruption: &Interruption) -> Result<Option<f64>, ServiceError> {
        if self.service.open.is_none() {
            return Ok(None);
        }
        if let Some(rate) = self.rate.get() {
            return Ok(Some(rate));
        }
        let untouched = Preloads { candidate: None, recorder: None, page: None, memory: None };
        let run = self.make((untouched, Purpose::FindRate), 0, interruption)?;
        let why = run.message.clone().unwrap_or_else(|| "it prints no rate".to_owned());
        let most = run.value("open_rate").filter(|rate| run.ok && *rate > 0.0);
        let most =
            most.ok_or_else(|| ServiceError::Definition(format!("the open loop has no rate: {why}")))?;
        self.rate.set(Some(most * SHARE_OF_MOST));
        Ok(self.rate.get())
    }

    /// Makes a run as [`Self::run`] does, with every malloc call of the server's processes recorded.
    ///
    /// # Errors
    /// When [`Self::run`] would fail.
    pub fn run_recorded(
        &self,
        candidate: &CatalogueCandidate,
        recorder: &command::Recorder,
        interruption: &Interruption,
    ) -> Result<RawRun, ServiceError> {
        let preloads =
            Preloads { candidate: Some(candidate), recorder: Some(recorder), page: None, memory: None };
        self.make((preloads, Purpose::Measure(None)), 0, interruption)
    }

    fn make(
        &self,
        (preloads, purpose): (Preloads<'_>, Purpose),
        round: u32,
        interruption: &Interruption,
    ) -> Result<RawRun, ServiceError> {
        let began = Instant::now();
        let mut run = RawRun {
            program: self.service.name.clone(),
            candidate: preloads.candidate.map_or_else(String::new, |candidate| candidate.name.clone()),
            round,
            at_s: now_unix_s(),
            load1: host::load1(),
            ..RawRun::default()
        };
        let mut server = ServerRun {
            cpus: self.cpus.clone(),
            asked_rate: purpose.rate(),
            by_clock: adapter::is_by_clock(&self.service.load),
            ..ServerRun::default()
        };
        let work = Work::new("imas-service-")?;
        let variables = self.plain(&work)?;
        let made = self.in_folder((preloads, purpose), &work, &variables, &mut server);
        if let Some(signal) = interruption.signal() {
            // The clean-up would be killed half-way.
            end_descendants()?;
            return Err(ServiceError::Interrupted(signal));
        }
        if let Some(cleanup) = &self.service.cleanup {
            let end = self.line(cleanup, &work, &variables, SETUP_TIMEOUT).run_plain()?;
            if !end.is_ok {
                server.notes.push(format!("the clean-up failed ({}): {}", end.how, end.last_line()));
            }
        }
        end_descendants()?;
        if let Some(cost) = made? {
            (run.user_s, run.system_s) = cost.cpu_s;
            run.pace = cost.pace;
        }
        run = finished(run, server);
        run.wall_s = began.elapsed().as_secs_f64();
        Ok(run)
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
        work: &'a Work,
        variables: &'a Variables,
        timeout: Duration,
    ) -> ShellLine<'a> {
        let folder = self.service.folder_or(work.path());
        ShellLine { line, folder, variables, timeout, cpus: &self.cpus.load }
    }

    /// Prepares the folder. If that succeeds, starts the server, puts it under load and stops it.
    fn in_folder(
        &self,
        preloads: (Preloads<'_>, Purpose),
        work: &Work,
        variables: &Variables,
        run: &mut ServerRun,
    ) -> Result<Option<LoadCost>, ServiceError> {
        if let Some(prepare) = &self.service.prepare {
            let end = self.line(prepare, work, variables, SETUP_TIMEOUT).run_plain()?;
            if !end.is_ok {
                let what = format!("prepare: {}: {}", end.how, end.last_line());
                run.failure = Some(Failure::new(Stage::Prepare, what));
                return Ok(None);
            }
        }
        let ready = Ready::parse(&self.ready_text(variables));
        // A proxy that `prepare` started may listen already and answer with an error. An answer that counts
        // as ready comes from a foreign process.
        if ready.answers() {
            let what = format!(
                "{} is taken: something answers there before the server is started{}",
                self.ready_text(variables),
                if self.has_fixed_port() { FREE_PORT } else { "" }
            );
            run.failure = Some(Failure::new(Stage::Taken, what));
            return Ok(None);
        }
        self.with_server(preloads, &ready, (work, variables), run)
    }

    /// Starts a server, makes the run with it and ends it.
    fn with_server(
        &self,
        (preloads, purpose): (Preloads<'_>, Purpose),
        ready: &Ready,
        (work, variables): (&Work, &Variables),
        run: &mut ServerRun,
    ) -> Result<Option<LoadCost>, ServiceError> {
        let library = preloads.candidate.and_then(|candidate| candidate.library.as_deref());
        let own = preloads.memory.map_or(&[][..], |bound| &bound.variables);
        let mut environment = preloads.variables(variables, &self.libraries)?;
        environment.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
        let mut server = Server::start(&ServerStart {
            command: preloads.command(self.command_in(variables)?),
            environment,
            memory: preloads.memory,
            cpus: &self.cpus.server,
            folder: self.service.folder_or(work.path()),
            is_on_libc: library.is_none(),
        })?;
        run.control_group = server.tree().has_group();
        let recorder = Recorder::start(&server.shared_tree(), server.began());
        let (service, limits, load_cpus) = (&self.service, &self.limits, &self.cpus.load);
        let is_trimmed = preloads.candidate.is_some_and(|candidate| candidate.trims);
        let mut life = ServerLife {
            server: &mut server,
            service,
            limits,
            work,
            variables,
            load_cpus,
            purpose,
            is_trimmed,
            longest_line_s: preloads.memory.and_then(|bound| bound.longest_line_s),
        };
        let found = life.lead(ready, run);
        if purpose == Purpose::FindRuntime && found.is_ok() {
            *self.runtime.borrow_mut() = server.runtime();
        }
        run.loaded = library.map(|library| server.loaded(library));
        if preloads.candidate.is_some_and(|candidate| candidate.name == SYSTEM) && found.is_ok() {
            run.malloc_by = server.malloc();
            // Where jemalloc serves already, the program has found it.
            let is_on_libc = run.malloc_by.iter().any(|by| by == C_LIBRARY);
            run.looks_for_jemalloc = is_on_libc.then(|| server.looks_for_jemalloc()).flatten();
        }
        if let Some((with, all)) = run.loaded.filter(|(with, all)| with < all && found.is_ok()) {
            run.notes
                .push(format!("only {with} of {all} processes of the server have the candidate's library"));
        }
        let (cost, failure) = match found {
            Ok(cost) => {
                let stopped = server.stop(self.service.stop.signal(), run)?;
                let recording = recorder.stop();
                add_figures(run, &recording, cost.cpu_s.0 + cost.cpu_s.1);
                run.curve = recording.curve();
                (Some(cost), stopped)
            }
            Err(Interrupted::Failed(failure)) => {
                run.curve = recorder.stop().curve();
                (None, Some(failure))
            }
            Err(Interrupted::Error(error)) => return Err(error),
        };
        let killed = server.record_memory(run);
        run.failure =
            killed.or_else(|| failure.map(|failure| self.with_port(server.explained(failure), ready)));
        Ok(cost)
    }

    /// Whether the readiness test names a port, and not `$PORT`.
    fn has_fixed_port(&self) -> bool {
        Ready::is_asked_by_us(&self.service.ready) && !self.service.ready.contains('$')
    }

    /// Says so where a server did not get ready because the run before had its port.
    fn with_port(&self, failure: Failure, ready: &Ready) -> Failure {
        let port = ready.port().filter(|_| self.has_fixed_port() && failure.stage == Stage::Ready);
        let Some(port) = port.filter(|port| line::is_kept_by_ended_connections(*port)) else {
            return failure;
        };
        let what = format!(
            "{}; connections of an earlier run keep port {port} for a minute (TIME_WAIT){FREE_PORT}",
            failure.what
        );
        Failure { what, ..failure }
    }

    /// The text of the readiness test with its variables replaced. A command is left to the shell, which
    /// replaces them.
    fn ready_text(&self, variables: &Variables) -> String {
        let text = &self.service.ready;
        if Ready::is_asked_by_us(text) { expand(text, variables, &NAMES) } else { text.clone() }
    }
}
