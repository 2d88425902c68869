// SPDX-License-Identifier: Apache-2.0
//! `imas bench` of a server: loaded from outside, only the server under the candidate.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_core::compare::Looks;
use imas_core::judgement::Goal;
use imas_core::run::RawRun;
use imas_core::sample::Ended;
use imas_core::server_bench::course::{CourseEnd, CourseOptions};
use imas_core::server_bench::{ServiceOptions, compare_services};
use imas_engine::compared::{
    ComparedCandidate, DefaultComparison, OfRuntime, compared_with_inline, typed_for_services,
};
use imas_engine::inspect::ExecutableFacts;
use imas_engine::runtime_command::RuntimeCommand;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::host::{self, Host, now_unix_s};
use imas_linux::program::Command;
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::runtime::Runtime;
use imas_report::bench::{RoundsEnd, RoundsMade};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::runner::{Elimination, Rules, Runner, SessionEnd};
use imas_runs::schedule;
use imas_runs::service::{SYSTEM_RUNS, Service, ServiceExecutor};
use imas_runs::subject::{Subject, Timeout};
use imas_store::Store;

use super::least_memory::LeastMemory;
use super::progress::StopRule;
use super::result::Remembered;
use super::service_definition::{CallerFolder, definition, hinted, limits, refuse};
use super::service_report::{ServiceReport, ShownSession};
use super::service_rounds::{BenchRounds, Course, OneServer};
use super::session::refuse_preloads;
use crate::command_line::bench_args::BenchArgs;
use crate::command_line::wrapper::starts_another;
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;

/// Failed runs that eliminate a candidate: another one would most likely fail as well, and takes minutes.
const MOST_FAILURES: usize = 2;
/// Exit status when the server fails under `system`.
const PROGRAM_FAILED: u8 = 1;

pub(super) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode> {
    refuse(args)?;
    let store = context.open_store().inspect_err(message::error).ok();
    let (mut service, words) = definition(args)?;
    let is_fresh = args.server.fresh_folder || args.server.service.is_some();
    let caller = (!is_fresh).then(CallerFolder::now).transpose()?;
    service.runs_in = caller.as_ref().map(|caller| caller.path().to_owned());
    let inline = typed_for_services(&args.with(), context)?;
    let set = DefaultComparison::ServiceSet;
    let chosen = compared_with_inline(&args.with(), &inline, set, context, store.as_ref())?;
    // The set-up has a process group of its own, which the terminal's signal does not reach.
    let interruption = Interruption::watch()?;
    let made = Session::new(args, context, service, &words, chosen);
    if let Some(signal) = interruption.signal() {
        message::say("imas: interrupted; the set-up has been ended");
        return Ok(ExitCode::from(InterruptedBy(signal).exit_status()));
    }
    drop(interruption);
    let mut session = made?;
    let command = session.command()?;
    let executable = imas_engine::inspect::command(&command, store.as_ref())?;
    let environment = session.executor.environment();
    let of_command = RuntimeCommand {
        command: &command,
        executable: &executable,
        environment: &environment,
        has_files: true,
    };
    let names = args.with();
    let of_runtime = match session.runtime_behind_a_script(&executable)? {
        Some(runtime) => OfRuntime::behind_a_script(&runtime, &names, context, store.as_ref()),
        None => OfRuntime::find(&of_command, &names, context, store.as_ref()),
    };
    if let Some(why) = of_runtime.why_nothing(&executable) {
        return Err(Hinted::error(
            format!("{}: cannot run under another allocator: {why}", command.program.path.display()),
            "name the server itself as the command, not a program that starts it with other rights",
        ));
    }
    session.chosen = of_runtime.join(&session.chosen, &executable);
    session.runtime = executable.runtimes.first().map(|found| found.runtime);
    let build_id = executable.build_id.clone();
    let interruption = Interruption::watch()?;
    if args.server.least_memory {
        return session.least_memory(&executable, words, &interruption);
    }
    let ServerRounds { runs, planned, made, course, signal } = session.measure(&interruption)?;
    drop(interruption);
    let early = signal.map(|signal| ExitCode::from(InterruptedBy(signal).exit_status()));
    if let Some(early) = early
        && !has_common_round(&runs)
    {
        let made = runs.len();
        message::say(&format!("imas: interrupted after {made} of {planned} runs; nothing to compare"));
        imas_report::service::where_memory_is(&runs)
            .iter()
            .for_each(|text| message::say(&format!("imas: {text}")));
        return Ok(early);
    }
    if let Some(store) = &store {
        session.remember_crashes(store, &runs, &build_id)?;
    }
    let ended = session.finish(runs, words, made, course)?;
    let left = caller.and_then(|caller| caller.left_behind(args.exports.export_runs.as_deref()));
    left.iter().for_each(|note| message::say(&format!("imas: note: {note}")));
    Ok(early.unwrap_or(ended))
}

/// The rounds of a server.
struct ServerRounds {
    runs: Vec<RawRun>,
    /// Runs that would have been made.
    planned: usize,
    made: RoundsMade,
    /// How the course ended, where the number of rounds was not fixed and nothing cut it short.
    course: Option<CourseEnd>,
    /// The signal that ended them.
    signal: Option<i32>,
}

/// Whether `system` and another candidate have a run in one round.
fn has_common_round(runs: &[RawRun]) -> bool {
    let system =
        |round| runs.iter().any(|run| run.round == round && run.candidate == imas_core::SYSTEM && run.ok);
    runs.iter().any(|run| run.candidate != imas_core::SYSTEM && run.ok && system(run.round))
}

struct Session<'a> {
    args: &'a BenchArgs,
    chosen: Vec<ComparedCandidate<'a>>,
    /// Runtime of the server's program.
    runtime: Option<Runtime>,
    executor: ServiceExecutor,
    began_unix_s: f64,
    /// Beginning of the session, for `--max-time`.
    began: Instant,
    busy: Option<f64>,
}

impl<'a> Session<'a> {
    fn new(
        args: &'a BenchArgs,
        context: &'a Context,
        service: Service,
        words: &[String],
        chosen: Vec<ComparedCandidate<'a>>,
    ) -> Result<Self> {
        refuse_preloads()?;
        let inherited = Variables::inherited();
        let executor = ServiceExecutor::with_words(
            service,
            words.to_vec(),
            context.libraries.clone(),
            inherited,
            limits(args),
        )
        .map_err(hinted)?;
        let busy = host::load1().filter(|load| *load > 0.5 * f64::from(host::cpus()));
        Ok(Self {
            args,
            chosen,
            runtime: None,
            executor,
            began_unix_s: now_unix_s(),
            began: Instant::now(),
            busy,
        })
    }

    fn command(&self) -> Result<Command> {
        self.executor.command().map_err(hinted)
    }

    /// Runtime of the process that holds most of the memory, where the server is started by what has no runtime itself.
    fn runtime_behind_a_script(&self, executable: &ExecutableFacts) -> Result<Option<RunningRuntime>> {
        let environment = self.executor.environment();
        if !executable.runtimes.is_empty() || !starts_another(&self.command()?, environment) {
            return Ok(None);
        }
        let interruption = Interruption::watch()?;
        let found = self.executor.find_runtime(&interruption).map_err(hinted)?;
        if let Some(runtime) = &found {
            message::say(&format!(
                "imas: note: most of the server's memory is that of a process of {}{}, so its settings are candidates",
                runtime.found.runtime.name(),
                runtime.found.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default()
            ));
        }
        Ok(found)
    }

    /// The least limits of memory in place of the usual comparison.
    fn least_memory(
        &self,
        executable: &ExecutableFacts,
        words: Vec<String>,
        interruption: &Interruption,
    ) -> Result<ExitCode> {
        // Trims take turns of their own, so they are no part of what a limit needs unless they are asked for.
        let is_wanted = |one: &CatalogueCandidate| !one.trims || self.args.with().contains(&one.name);
        let candidates: Vec<&CatalogueCandidate> =
            self.chosen.iter().filter(|one| one.obstacle.is_none()).map(|one| one.candidate).collect();
        let (system, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .filter(|one| is_wanted(one))
            .partition(|one| one.name == imas_core::SYSTEM);
        let behind = self.runtime_behind_a_script(executable)?.map(|runtime| runtime.found.runtime);
        let bench = LeastMemory {
            args: self.args,
            executor: &self.executor,
            candidates: system.into_iter().chain(others).collect(),
            unusable: self
                .chosen
                .iter()
                .filter_map(|c| Some((c.candidate.name.clone(), c.obstacle.clone()?)))
                .collect(),
            runtimes: executable.runtimes.iter().map(|found| found.runtime).chain(behind).collect(),
            words,
            hinted,
        };
        bench.run(interruption)
    }

    fn measure(&self, interruption: &Interruption) -> Result<ServerRounds> {
        let usable: Vec<&CatalogueCandidate> =
            self.chosen.iter().filter(|one| one.obstacle.is_none()).map(|one| one.candidate).collect();
        let names: Vec<String> = usable.iter().map(|candidate| candidate.name.clone()).collect();
        let is_shown = self.args.look.style.has_live_line();
        let looks = self.args.runs.looks_at_a_server();
        let course = looks.map(|looks| self.course(&names, &usable, looks, is_shown));
        let steps = self.fixed_steps(&names);
        let planned = course.as_ref().map_or(steps.len(), |course| course.planned().0);
        // Each run has its own limits, which the executor knows.
        let subject = Subject::new(&self.executor.service().name, Timeout::After(Duration::MAX));
        let elimination = Elimination::FatalOrFailures(MOST_FAILURES);
        let rules = Rules { elimination, warmup_must_succeed: false };
        let mut runner = Runner::new(names.clone(), vec![subject], rules, interruption);
        let raw = self.args.exports.export_runs.as_deref();
        let stop = StopRule::new(None, self.args.max_time, self.began);
        let mut rounds = BenchRounds::new(&usable, planned, is_shown, raw, stop)?;
        let mut executor = OneServer { executor: &self.executor, candidates: &usable, interruption, hinted };
        let (end, course) = match &course {
            Some(course) => course.make(&mut runner, &mut executor, &mut rounds)?,
            None => (runner.run(steps, &mut executor, &mut rounds)?, None),
        };
        let (runs, stopped) = rounds.finish();
        let signal = if let SessionEnd::Interrupted(signal) = end { Some(signal) } else { None };
        let interrupted = signal.map(|_| RoundsEnd::Interrupted);
        let of_system = runs.iter().filter(|run| run.candidate == imas_core::SYSTEM).map(|run| run.round);
        let made = u32::try_from(of_system.collect::<BTreeSet<u32>>().len()).unwrap_or(u32::MAX);
        let by_course = course.map(|end| match end {
            CourseEnd::Proven | CourseEnd::NothingToSave { .. } => RoundsEnd::Settled,
            CourseEnd::NoneLooksBetter => RoundsEnd::NoneLooksBetter,
            CourseEnd::TooClose => RoundsEnd::Hopeless,
            CourseEnd::AllMade => RoundsEnd::AllMade,
        });
        let ended = interrupted.or(stopped).or(by_course).unwrap_or(RoundsEnd::AllMade);
        let made = RoundsMade { made, most: self.args.runs.of_a_server(), ended };
        Ok(ServerRounds { planned, made, signal, course, runs })
    }

    /// The steps of a fixed number of rounds: all candidates in each.
    fn fixed_steps(&self, names: &[String]) -> Vec<schedule::Step> {
        let indices: Vec<usize> = (0..names.len()).collect();
        let (rounds, seed) = (self.args.runs.of_a_server(), self.args.seed);
        let steps = schedule::steps(&indices, rounds, 0, self.args.warmup, seed);
        let system = names.iter().position(|name| name == imas_core::SYSTEM).unwrap_or(0);
        schedule::with_repeats(steps, system, SYSTEM_RUNS, seed)
    }

    fn course<'b>(
        &self,
        names: &'b [String],
        usable: &[&CatalogueCandidate],
        looks: Looks,
        is_told: bool,
    ) -> Course<'b> {
        let has_settings = usable.iter().any(|one| one.runtime.is_some() || one.huge_pages.is_some());
        let ignores_heaps = self.args.server.all || has_settings || self.args.server.goal() != Goal::Memory;
        Course {
            names,
            options: self.options(),
            course: CourseOptions { ignores_heaps, looks },
            warmup: self.args.warmup,
            seed: self.args.seed,
            runtime: self.runtime,
            is_told,
        }
    }

    /// How the runs are compared.
    fn options(&self) -> ServiceOptions {
        ServiceOptions {
            goal: self.args.server.goal(),
            rails: self.args.server.rails(),
            worth: self.args.server.worth(),
            seed: self.args.seed,
            looks: self.args.runs.looks_at_a_server(),
            ..ServiceOptions::default()
        }
    }

    /// What the words about the result rest on.
    fn shown(&self) -> ShownSession<'_> {
        ShownSession { args: self.args, chosen: &self.chosen, executor: &self.executor, busy: self.busy }
    }

    /// A crash under a candidate is evidence: `imas run` must never have to see it again.
    fn remember_crashes(&self, store: &Store, runs: &[RawRun], build_id: &str) -> Result<()> {
        let command = self.command()?;
        for chosen in &self.chosen {
            let candidate = chosen.candidate;
            let signal = runs
                .iter()
                .filter(|run| run.candidate == candidate.name)
                .find_map(|run| run.of_server().failure.as_ref().and_then(|failure| failure.signal));
            let Some(signal) = signal.and_then(|signal| u32::try_from(signal).ok()) else { continue };
            Remembered { store, command: &command, build_id }.harm(candidate, Ended::Signal { signal })?;
        }
        Ok(())
    }

    fn finish(
        &self,
        runs: Vec<RawRun>,
        words: Vec<String>,
        rounds: RoundsMade,
        course: Option<CourseEnd>,
    ) -> Result<ExitCode> {
        let usable = self.chosen.iter().filter(|chosen| chosen.obstacle.is_none());
        let names: Vec<String> = usable.map(|chosen| chosen.candidate.name.clone()).collect();
        let options = self.options();
        let comparison = compare_services(&names, &runs, &options);
        let mut comparison = match course {
            Some(end) => comparison.ended(end),
            None => comparison,
        };
        let shown = self.shown();
        comparison.look_for_one_variable(&shown.single_variables());
        let unusable =
            self.chosen.iter().filter_map(|c| Some((c.candidate.name.clone(), c.obstacle.clone()?)));
        let report = ServiceReport {
            schema: 2,
            kind: "service",
            service: self.executor.service().clone(),
            command: words,
            began_unix_s: self.began_unix_s,
            seed: self.args.seed,
            host: Host::now(),
            cpus: self.executor.cpus().clone(),
            at_most: options.rails,
            worth_of_cpu: options.worth,
            unusable: unusable.collect(),
            notes: shown.notes(&runs, &comparison).into_iter().chain(rounds.note()).collect(),
            sentence: imas_report::service::sentence(&comparison),
            comparison,
            rounds,
            runs,
        };
        shown.write(&report)?;
        let system = report.comparison.named(imas_core::SYSTEM);
        let is_measured = system.is_some_and(|system| system.rounds > 0);
        if is_measured {
            return Ok(ExitCode::SUCCESS);
        }
        message::say("imas: note: every run under system failed; the warning of each run says why");
        Ok(ExitCode::from(PROGRAM_FAILED))
    }
}
