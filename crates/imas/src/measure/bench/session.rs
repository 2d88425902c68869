// SPDX-License-Identifier: Apache-2.0
//! One command under every candidate: its runs from the setup to the cleanup.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_core::Conditions;
use imas_core::bench::{Floor, Looks, Options};
use imas_core::raw_runs::data::DataHeader;
use imas_engine::compared::{ComparedCandidate, OfRuntime};
use imas_engine::inline_candidate::is_typed;
use imas_engine::inspect::ExecutableFacts;
use imas_engine::runtime_command::{self, RuntimeCommand};
use imas_linux::environment::{Libraries, Reach};
use imas_linux::host::{self, Host, now_unix_s};
use imas_linux::preloads::own_malloc;
use imas_linux::program::Command;
use imas_linux::variables::Variables;
use imas_report::bench::{BenchReport, RoundsEnd, RoundsMade};
use imas_runs::command::{CommandExecutor, OneCpuRule};
use imas_runs::executor::{Around, Executor, ShellLine};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, Rules, Runner, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};
use imas_runs::subject::{Subject, Timeout};
use imas_store::Store;

use super::collected::{AGAIN, Collector, Failure};
use super::progress::{Progress, StopRule};
use super::result::{self, Context as AroundRuns, Remembered};
use super::variant;
use super::variant::{Input, Variant};
use crate::command_line::bench_args::{BenchArgs, OneCpuName};
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;

/// Exit status when the program itself fails under `system`.
const PROGRAM_FAILED: u8 = 1;
/// Exit status when it does not end in time.
const TIMED_OUT: u8 = 2;

/// `--max-time` lets one run take at least this long: a command that ends is measured once in any case.
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);

/// Outcome of a session.
pub(super) enum SessionOutcome {
    /// Nothing can be compared. The reason is printed already.
    Stopped(ExitCode),
    /// The result, and the signal that ended it.
    Measured { report: Box<BenchReport<Host>>, signal: Option<i32> },
}

pub(super) struct CommandSession<'a> {
    args: &'a BenchArgs,
    store: Option<&'a Store>,
    input: &'a Input,
    variant: &'a Variant,
    pub(super) command: Command,
    build_id: String,
    /// Facts about the program's executable.
    executable: ExecutableFacts,
    of_runtime: OfRuntime,
    /// Libraries that are preloaded beside a candidate.
    libraries: Libraries,
    /// Before the first run, like the conditions.
    began_unix_s: f64,
    /// Beginning of the session, for `--max-time`.
    began: Instant,
    conditions: Option<Conditions>,
}

/// A candidate would switch off a malloc that the user preloads, and no trial counts beside an auditor.
pub(super) fn refuse_preloads() -> Result<()> {
    let variables = Variables::inherited();
    let is_audited = variables.get("LD_AUDIT").is_some_and(|auditors| !auditors.is_empty());
    let why = match is_audited {
        true => Some(("an auditor of LD_AUDIT would be measured too".to_owned(), "LD_AUDIT")),
        false => own_malloc(&variables).map(|why| (why, "LD_PRELOAD")),
    };
    why.map_or(Ok(()), |(why, name)| {
        Err(Hinted::error(
            format!("nothing can be compared: {why}"),
            format!("measure without that library: env -u {name} imas bench ..."),
        ))
    })
}

impl<'a> CommandSession<'a> {
    pub(super) fn new(
        args: &'a BenchArgs,
        context: &'a Context,
        store: Option<&'a Store>,
        variant: &'a Variant,
        input: &'a Input,
    ) -> Result<Self> {
        let command = variant::command(&variant.words)?;
        let executable = imas_engine::inspect::command(&command, store)?;
        refuse_preloads()?;
        let names = args.with();
        let environment = Variables::inherited();
        let of_command = RuntimeCommand {
            command: &command,
            executable: &executable,
            environment: &environment,
            has_files: true,
        };
        let of_runtime = OfRuntime::find(&of_command, &names, context, store);
        let of_runtime = of_runtime.with_musl(&names, context, &executable)?;
        if let Some(why) = of_runtime.why_nothing(&executable) {
            return Err(Hinted::error(
                format!("{}: cannot run under another allocator: {why}", command.program.path.display()),
                "measure another program, or the program that this one starts",
            ));
        }
        let libraries = match executable.fits_musl {
            true => runtime_command::libraries_of_musl(&context.lib_dir),
            false => context.libraries.clone(),
        };
        let build_id = executable.build_id.clone();
        let (began_unix_s, began) = (now_unix_s(), Instant::now());
        let conditions = host::conditions().ok();
        Ok(Self {
            args,
            store,
            input,
            variant,
            command,
            build_id,
            executable,
            of_runtime,
            libraries,
            began_unix_s,
            began,
            conditions,
        })
    }

    /// The command as it is run.
    pub(super) fn words(&self) -> Vec<String> {
        self.variant.words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    pub(super) fn run(
        &self,
        compared: &[ComparedCandidate<'_>],
        interruption: &Interruption,
    ) -> Result<SessionOutcome> {
        let lines = &self.args.lines;
        let compared = &self.of_runtime.join(compared, &self.executable);
        self.line("--setup", &lines.setup).map_or(Ok(()), |line| line.run())?;
        let measured = self.measure(compared, interruption);
        let cleaned = self.line("--cleanup", &lines.cleanup).map_or(Ok(()), |line| line.run());
        // The measurements are not lost where the cleanup fails.
        let _ = cleaned.inspect_err(message::error);
        measured
    }

    fn measure(
        &self,
        compared: &[ComparedCandidate<'_>],
        interruption: &Interruption,
    ) -> Result<SessionOutcome> {
        let args = self.args;
        // After which rounds the runs are looked at.
        let looks = args.runs.looks();
        let steps = self.steps(compared, looks);
        let progress = Progress::start(steps.len(), looks.is_some(), args.look.style.has_live_line());
        let stop = StopRule::new(looks, args.max_time, self.began);
        let options = Options { looks, ..self.options() };
        let mut collector = Collector::new(compared, progress, stop, options);
        collector.ignores_failure = args.ignore_failure;
        let mut executor = self.executor(compared);
        let mut runner = self.runner(compared, self.subject(), interruption);
        runner.journal = self.journal(compared)?;
        let planned = steps.iter().filter(|step| step.kind.kept().is_some()).count();
        let mut ended = runner.run(steps, &mut self.around(&mut executor), &mut collector);
        if matches!(ended, Ok(SessionEnd::Finished | SessionEnd::Stopped)) && collector.suspects_the_program()
        {
            let again = self.system_again(compared);
            ended = runner.run(again, &mut self.around(&mut executor), &mut collector);
        }
        collector.progress.finish();
        let signal = if let SessionEnd::Interrupted(signal) = ended? { Some(signal) } else { None };
        // A failure of the program by itself, or of runs that were not compared, is no candidate's fault.
        if let Some(failure) = &collector.failure {
            return self.stopped_by(failure);
        }
        if let Some(signal) = signal
            && !collector.has_common_round()
        {
            let made = collector.made();
            message::say(&format!("imas: interrupted after {made} of {planned} runs; nothing to compare"));
            return Ok(SessionOutcome::Stopped(ExitCode::from(InterruptedBy(signal).exit_status())));
        }
        let around = AroundRuns {
            command: self.words(),
            parameters: self.variant.parameters.clone(),
            began_unix_s: self.began_unix_s,
            seed: args.seed,
            options,
            kept_on_cpu: executor.kept_on(),
            notes: runner.subjects.iter().filter_map(|subject| subject.prefault.note()).collect(),
            rounds: self.rounds(&collector, signal),
        };
        let report = Box::new(result::report(&collector, around));
        if let Some(store) = self.store {
            self.remember(store, &collector, report.too_little().is_some())?;
        }
        Ok(SessionOutcome::Measured { report, signal })
    }

    /// The executor with the lines around each run.
    fn around<'b>(&self, executor: &'b mut dyn Executor) -> Around<'b> {
        Around {
            inner: executor,
            before: self.line("--prepare", &self.args.lines.prepare),
            after: self.line("--conclude", &self.args.lines.conclude),
        }
    }

    /// A line around the runs.
    fn line(&self, option: &'static str, line: &Option<String>) -> Option<ShellLine> {
        line.as_ref().map(|line| ShellLine { option, line: self.variant.fill(line) })
    }

    /// Counted runs come in the middle of the rounds that are made in any case.
    fn steps(&self, compared: &[ComparedCandidate<'_>], looks: Option<Looks>) -> Vec<Step> {
        let usable: Vec<usize> = (0..compared.len()).filter(|&i| compared[i].obstacle.is_none()).collect();
        let args = self.args;
        let most = args.runs.most();
        let counted_before = looks.map_or(most, |looks| looks.first) / 2;
        schedule::steps_with_counted_before(
            counted_before,
            &usable,
            most,
            // Nothing can be counted in a program into which nothing can be loaded.
            if self.executable.unfit.is_some() { 0 } else { args.counted_runs() },
            args.warmup,
            args.seed,
        )
    }

    /// Further runs under `system`, whose figures do not count.
    fn system_again(&self, compared: &[ComparedCandidate<'_>]) -> Vec<Step> {
        let system = compared.iter().position(|one| one.candidate.is_system()).unwrap_or(0);
        vec![Step { subject: 0, candidate: system, kind: RoundKind::Warmup }; AGAIN]
    }

    fn options(&self) -> Options {
        Options {
            most_cost: self.args.cost.limits(),
            seed: self.args.seed,
            conditions: self.conditions,
            floor: Floor::BENCH,
            wall_and_peak: true,
            ..Options::default()
        }
    }

    fn rounds(&self, collector: &Collector<'_>, signal: Option<i32>) -> RoundsMade {
        let interrupted = signal.map(|_| RoundsEnd::Interrupted);
        let ended = interrupted.or(collector.stop.ended).unwrap_or(RoundsEnd::AllMade);
        RoundsMade { made: collector.rounds(), most: self.args.runs.most(), ended }
    }

    /// Under `system` the command does not do its work: there is nothing to be compared.
    fn stopped_by(&self, failure: &Failure) -> Result<SessionOutcome> {
        let command = self.command.program.path.display();
        let (error, code) = match failure {
            Failure::TimedOut { wall_s } => (
                Hinted::error(
                    format!(
                        "{command} did not end within {} s",
                        self.args.timeout.unwrap_or_else(|| wall_s.ceil())
                    ),
                    "allow it more time with --timeout SECONDS, or give it less to do; does not end? --ready and \
                     --load measure a server (docs/services.md)",
                ),
                TIMED_OUT,
            ),
            Failure::NowAndThen { message, runs } => (
                Hinted::error(
                    format!(
                        "{command} itself fails now and then: the last of {runs} runs under system did ({message})"
                    ),
                    "no candidate is to blame; make the command repeatable, or measure it all the same with \
                     --ignore-failure",
                ),
                PROGRAM_FAILED,
            ),
            Failure::Failed { message } => (
                Hinted::error(
                    format!("{command} fails under system: {message}"),
                    "check the command; --ignore-failure measures it all the same",
                ),
                PROGRAM_FAILED,
            ),
        };
        message::error(&error);
        Ok(SessionOutcome::Stopped(ExitCode::from(code)))
    }

    fn executor<'b>(&'b self, compared: &[ComparedCandidate<'b>]) -> CommandExecutor<'b> {
        let candidates = compared.iter().map(|compared| compared.candidate).collect();
        let libraries = &self.libraries;
        let mut executor = CommandExecutor::new(&self.command, &self.build_id, candidates, libraries);
        if self.executable.fits_musl {
            executor.reach = Reach::Program; // a child of glibc would not start
        }
        executor.input = self.input.path().map(Path::to_owned);
        executor.show_output = self.args.show_output;
        executor.one_cpu = match self.args.one_cpu {
            OneCpuName::Auto => OneCpuRule::Auto,
            OneCpuName::Always => OneCpuRule::Always,
            OneCpuName::Never => OneCpuRule::Never,
        };
        executor
    }

    /// The command before its first run.
    fn subject(&self) -> Subject {
        let timeout = match (self.args.timeout, self.args.max_time) {
            (Some(seconds), _) => Timeout::After(Duration::from_secs_f64(seconds)),
            (None, Some(all)) => Timeout::FirstWithin(Duration::from_secs_f64(all).max(LEAST_TIMEOUT)),
            (None, None) => Timeout::ByFirstRun,
        };
        let mut subject = Subject::new(&self.name(), timeout);
        subject.watches_standstill = true;
        subject
    }

    fn runner<'b>(
        &self,
        compared: &[ComparedCandidate<'_>],
        subject: Subject,
        interruption: &'b Interruption,
    ) -> Runner<'b> {
        let names = compared.iter().map(|compared| compared.candidate.name.clone()).collect();
        let rules = Rules { elimination: Elimination::Fatal, warmup_must_succeed: false };
        Runner::new(names, vec![subject], rules, interruption)
    }

    /// Name of the program in records.
    fn name(&self) -> String {
        let path = &self.command.program.path;
        let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        self.variant.name(self.args.exports.name.as_deref(), &file)
    }

    /// The file of raw runs, when one was named.
    fn journal(&self, compared: &[ComparedCandidate<'_>]) -> Result<Option<Journal>> {
        let Some(file) = &self.args.exports.export_runs else { return Ok(None) };
        let named = || file.display().to_string();
        let mut journal = crate::measure::bench::export::journal(file)?;
        let version = |one: &ComparedCandidate<'_>| {
            (one.candidate.name.clone(), imas_engine::candidates::version(one.candidate))
        };
        let header = DataHeader {
            imas: "runs".to_owned(),
            schema: 1,
            began_unix_s: self.began_unix_s,
            seed: self.args.seed,
            host: serde_json::to_value(Host::now())?,
            versions: compared.iter().map(version).collect(),
            load1: host::load1(),
        };
        journal.append(&header).with_context(named)?;
        Ok(Some(journal))
    }

    /// A crash or a hang under a candidate is evidence, and `imas run` must never have to see it again. Nor has it to try
    /// what was measured here.
    fn remember(&self, store: &Store, collector: &Collector<'_>, is_too_little: bool) -> Result<()> {
        let program = Remembered { store, command: &self.command, build_id: &self.build_id };
        // Candidates of the command line alone are not offered again.
        let mut harms = collector.harms().filter(|(candidate, _)| !is_typed(&candidate.name));
        harms.try_for_each(|(candidate, ended)| program.harm(candidate, ended))?;
        // A line for a shell says nothing of the shell.
        let is_shell = self.args.commands.shell.as_deref().is_some_and(|shell| shell != "none");
        if is_shell || is_too_little { Ok(()) } else { program.rounds(collector) }
    }
}
