// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite run`, and the end of what a session that was killed left running.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message;
use imas_cli::message::Hinted;
use imas_core::bench::OutputCheck;
use imas_core::raw_runs::data::{DataHeader, NotRun};
use imas_core::run::{RawRun, RunKey, RunKind};
use imas_engine::compared::DefaultComparison;
use imas_engine::context::Context;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::{Host, now_unix_s};
use imas_linux::{host, process};
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, Rules, Runner, SessionEnd};
use imas_runs::schedule;
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::{Subject, Timeout};
use imas_suite::{Place, Suite, SuiteError, SuiteProgram};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fit::{Fit, Measurable, NotRunHere, fit};
use super::measured::{MeasuredProgram, MeasuredPrograms};
use super::once::{Once, RunMode};
use super::sessions::{BegunRound, Sessions};
use super::show;
use super::watcher::{Planned, Watcher};
use crate::study_args::SuiteRunArgs;
use crate::with_list::for_every_program;

/// A run may take at least this time, and this multiple of the time that the suite expects.
const SHORTEST_TIMEOUT_S: f64 = 60.0;
const TIMEOUT_FACTOR: f64 = 20.0;
/// Number of runs that do not count after which a candidate is not tried with the program again.
const CHANCES: usize = 2;
/// A load above this share of the CPUs before the first run is worth reporting.
const BUSY: f64 = 0.25;

pub(super) fn run(args: &SuiteRunArgs, context: &Context) -> Result<ExitCode> {
    show::show(&measure(args, context)?, args.json.json)
}

/// Makes the runs that are missing; the file of all.
pub(crate) fn measure(args: &SuiteRunArgs, context: &Context) -> Result<PathBuf> {
    if args.rounds.max(args.counted) == 0 {
        return Err(Hinted::error("no rounds are asked for", "--rounds, --counted or both must be above 0"));
    }
    let suite = super::read(context)?;
    let place = super::place(args.places.cache.as_deref(), context)?;
    let programs = chosen(&suite, args)?;
    let for_every = for_every_program(&args.with, DefaultComparison::DefaultSet, context)?;
    let folder = super::out(&args.places)?;
    let _alone = place.lock().map_err(super::hinted)?;
    end(&place);
    let (mut journal, earlier) = journal(&folder.join(super::FILE), args.resume)?;
    super::install::missing(&suite, &programs, &place, args.install)?;
    let interruption = Interruption::watch()?;
    let (measurable, mut not_run) = usable(&programs, &place);
    let measured = MeasuredPrograms::of(for_every, &args.with, measurable, &place, context);
    not_run.extend(measured.not_run);
    if measured.programs.is_empty() {
        return Err(Hinted::error(
            "none of these programs can be run here",
            "'imas-lab suite list' says why",
        ));
    }
    say_if_busy();
    let done = earlier.runs.iter().map(RawRun::key).collect();
    let session = Session {
        args,
        context,
        suite: &suite,
        place: &place,
        candidates: measured.candidates,
        programs: measured.programs,
        done,
        earlier,
    };
    session.warn_of_late_candidates();
    write(&mut journal, &session.header())?;
    for (left_out, why) in not_run {
        write(&mut journal, &NotRun { left_out, why, at_s: now_unix_s() })?;
    }
    let path = journal.path().to_owned();
    if let SessionEnd::Interrupted(signal) = session.all(journal, &interruption)? {
        return Err(InterruptedBy(signal).into());
    }
    Ok(path)
}

/// The file of raw runs, and what is in it.
fn journal(path: &std::path::Path, resume: bool) -> Result<(Journal, Sessions)> {
    let failed = |source| super::hinted(SuiteError::File { path: path.to_owned(), source });
    let folder = path.parent().unwrap_or(path);
    let journal = std::fs::create_dir_all(folder).and_then(|()| Journal::open(path)).map_err(failed)?;
    let earlier = Sessions::of(journal.text());
    if !earlier.runs.is_empty() && !resume {
        return Err(super::hinted(SuiteError::HasRuns { path: path.to_owned() }));
    }
    if journal.torn_bytes() > 0 {
        message::say(
            "imas: note: the last line was cut short when the run before was ended; that run is made again",
        );
    }
    Ok((journal, earlier))
}

fn write(journal: &mut Journal, line: &impl serde::Serialize) -> Result<()> {
    journal.append(line).with_context(|| journal.path().display().to_string())
}

fn chosen<'a>(suite: &'a Suite, args: &SuiteRunArgs) -> Result<Vec<&'a SuiteProgram>> {
    if args.names.is_empty() {
        return Ok(suite.set(super::set(args.set)).collect());
    }
    let found: Result<Vec<_>, _> = args.names.iter().map(|name| suite.find(name)).collect();
    found.map_err(super::hinted)
}

/// Programs that can be measured, and the other programs, which are reported.
pub(crate) fn usable<'a>(
    programs: &[&'a SuiteProgram],
    place: &Place,
) -> (Vec<(&'a SuiteProgram, Box<Measurable>)>, Vec<NotRunHere>) {
    let (mut usable, mut not_run) = (Vec::new(), Vec::new());
    for program in programs {
        let why = match fit(program, place) {
            Fit::Yes(measurable) => {
                usable.push((*program, measurable));
                continue;
            }
            Fit::No(why) => why,
            Fit::Absent => format!("{} is not installed", program.executable()),
        };
        message::say(&format!("imas: {}: not run: {why}", program.name));
        not_run.push((program.name.clone(), why));
    }
    (usable, not_run)
}

fn say_if_busy() {
    let load1 = host::load1().unwrap_or(0.0);
    let cpus = host::cpus();
    if load1 > BUSY * f64::from(cpus) {
        message::warning(&format!(
            "the machine is busy: a load of {load1:.1} on {cpus} CPUs; every figure will be the less certain for it\nhint: end what else is running, or make more rounds"
        ));
    }
}

struct Session<'a> {
    args: &'a SuiteRunArgs,
    context: &'a Context,
    suite: &'a Suite,
    place: &'a Place,
    candidates: Vec<&'a CatalogueCandidate>,
    programs: Vec<MeasuredProgram<'a>>,
    done: BTreeSet<RunKey>,
    /// Runs of earlier sessions.
    earlier: Sessions,
}

impl Session<'_> {
    fn header(&self) -> DataHeader {
        let versions = self
            .candidates
            .iter()
            .map(|candidate| (candidate.name.clone(), imas_engine::candidates::version(candidate)));
        DataHeader {
            imas: "runs".to_owned(),
            schema: 1,
            began_unix_s: now_unix_s(),
            seed: self.args.seed,
            host: serde_json::to_value(Host::now()).unwrap_or_default(),
            versions: versions.collect(),
            load1: host::load1(),
        }
    }

    fn all(&self, journal: Journal, interruption: &Interruption) -> Result<SessionEnd> {
        let planned = self.planned();
        let candidates: Vec<String> = self.candidates.iter().map(|one| one.name.clone()).collect();
        let subjects = self.programs.iter().map(|one| self.subject(one.program)).collect();
        let rules = Rules { elimination: Elimination::Failures(CHANCES), warmup_must_succeed: true };
        let mut runner = Runner::new(candidates.clone(), subjects, rules, interruption);
        runner.journal = Some(journal);
        let steps: Vec<Step> = planned.iter().map(|planned| planned.step).collect();
        let expected = self.programs.iter().map(|one| (one.program.name.clone(), one.program.seconds));
        let mut watcher = Watcher::start(planned, expected.collect(), candidates, self.args.time_limit);
        let mut executor = SuiteExecutor { session: self, prepared: vec![false; self.programs.len()] };
        let ended = runner.run(steps, &mut executor, &mut watcher);
        watcher.finish();
        ended
    }

    fn subject(&self, program: &SuiteProgram) -> Subject {
        let seconds = || (program.seconds * TIMEOUT_FACTOR).max(SHORTEST_TIMEOUT_S);
        let timeout = Duration::from_secs_f64(self.args.timeout.unwrap_or_else(seconds));
        let mut subject = Subject::new(&program.name, Timeout::After(timeout));
        if self.earlier.varying.contains(&program.name) {
            subject.outputs = OutputCheck::varying();
        }
        subject.resume(self.earlier.runs.iter());
        subject
    }

    /// Rounds of both kinds, one after the other, so that a drift of the machine meets both alike.
    fn rounds(&self) -> Vec<(RunKind, u32)> {
        let (measured, counted) = (self.args.rounds, self.args.counted);
        let of = |round| {
            let both = [(RunKind::Measured, measured), (RunKind::Counted, counted)];
            both.into_iter().filter(move |(_, rounds)| round < *rounds).map(move |(kind, _)| (kind, round))
        };
        (0..measured.max(counted)).flat_map(of).collect()
    }

    /// Every run that is not there yet; before the first of a program in a round its warm-up. Other programs ran
    /// meanwhile, and without one the first run had 3 % less memory and 2 % more CPU time than the others.
    fn planned(&self) -> Vec<Planned> {
        let names: Vec<&str> = self.programs.iter().map(|one| one.program.name.as_str()).collect();
        let mut warm = BTreeSet::new();
        let mut planned = Vec::new();
        for (kind, round) in self.rounds() {
            for subject in schedule::subjects(&names, round, self.args.seed) {
                let todo = self.todo(&self.programs[subject], kind, round);
                let mut add = |candidate, of| {
                    planned.push(Planned { step: Step { subject, candidate, kind: of }, kind, round });
                };
                if !todo.is_empty() && warm.insert((subject, kind, round)) {
                    add(0, RoundKind::Warmup);
                }
                todo.into_iter().for_each(|candidate| add(candidate, RoundKind::of(kind, round)));
            }
        }
        planned
    }

    /// Candidates that have not run in this round yet, in its order, as indices; without those that joined
    /// after it was begun, and those that the program does not get in such runs.
    fn todo(&self, measured: &MeasuredProgram<'_>, kind: RunKind, round: u32) -> Vec<usize> {
        let name = measured.program.name.as_str();
        let order = schedule::candidates(name, self.candidates.len(), round, self.args.seed);
        let key = |at: usize| (name.to_owned(), self.candidates[at].name.clone(), kind, round);
        let begun = self.begun().get(&(name.to_owned(), kind, round));
        let is_in = |at: usize| begun.is_none_or(|names| names.contains(&self.candidates[at].name));
        let is_due = |at: usize| is_in(at) && !self.done.contains(&key(at));
        order.into_iter().filter(|&at| measured.has_runs(at, kind) && is_due(at)).collect()
    }

    /// Rounds of sessions before, with the candidates of each.
    fn begun(&self) -> &BTreeMap<BegunRound, Rc<BTreeSet<String>>> {
        &self.earlier.begun
    }

    fn warn_of_late_candidates(&self) {
        let gets = |round: &BegunRound, at: usize| {
            self.programs.iter().any(|one| one.program.name == round.0 && one.has_runs(at, round.1))
        };
        let lacks = |at: usize, name: &String| {
            self.begun().iter().any(|(round, names)| gets(round, at) && !names.contains(name))
        };
        let names = self.candidates.iter().map(|one| &one.name).enumerate();
        let joined: Vec<&str> =
            names.filter(|(at, name)| lacks(*at, name)).map(|(_, name)| name.as_str()).collect();
        if !joined.is_empty() {
            message::warning(&format!(
                "{} joined after rounds were begun, and those stay without: runs of a round are made next to each other\nhint: --rounds above those that are done makes rounds with all; they are compared once more than half of the rounds have all",
                joined.join(", ")
            ));
        }
    }
}

/// Runs the programs of the suite.
struct SuiteExecutor<'a, 'b> {
    session: &'a Session<'b>,
    /// Whether the input of each program is there, in the order of the programs.
    prepared: Vec<bool>,
}

impl Executor for SuiteExecutor<'_, '_> {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        let Session { context, place, suite, programs, .. } = self.session;
        let measured = &programs[step.subject];
        let MeasuredProgram { program, build_id, .. } = measured;
        let candidate =
            measured.fitted(step.candidate).context("a candidate that the program does not get")?;
        if !std::mem::replace(&mut self.prepared[step.subject], true) {
            place.prepare(suite, program)?;
        }
        let once = Once { context, place, program, build_id, limits: *limits };
        let is_counted = matches!(step.kind, RoundKind::Counted { .. });
        once.run(candidate, if is_counted { RunMode::Counted } else { RunMode::Measured })
    }
}

/// Ends it, because its CPU use would affect every figure. The place must be locked, so that no other session
/// has processes there.
pub(crate) fn end(place: &Place) {
    let found = at_home_in(&place.work());
    for pid in found.iter().filter_map(|&pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended this instant
    }
    if !found.is_empty() {
        message::say(&format!(
            "imas: note: {} processes of a session that was killed were still running and have been ended",
            found.len()
        ));
    }
}

/// Processes that work in a folder or below it and have it as HOME.
fn at_home_in(folder: &Path) -> Vec<u32> {
    let home = [OsStr::new("HOME="), folder.as_os_str()].into_iter().collect::<OsString>();
    let is_one = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
            && process::environment(*pid).is_ok_and(|variables| variables.contains(&home))
    };
    process::pids().unwrap_or_default().into_iter().filter(is_one).collect()
}
