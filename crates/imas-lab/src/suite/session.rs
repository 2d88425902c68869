// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite run`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_core::candidate::SYSTEM;
use imas_core::simulate::dropped::NotRun;
use imas_core::simulate::outputs::{OTHER_OUTPUT, OutputVaries, Varying};
use imas_linux::backed::enough_for;
use imas_linux::catalogue::Candidate;
use imas_linux::clock::now_unix_s;
use imas_linux::host::Host;
use imas_linux::{conditions, measure};
use imas_suite::record::{Header, Key, Kind, Line, Record, Round};
use imas_suite::{Place, Program, Suite, order};

use super::fit::{Fit, fit};
use super::limit::Limit;
use super::once::Once;
use super::progress::Progress;
use super::show;
use crate::study_args::SuiteRunArgs;
use imas_engine::context::Context;
use imas_report::message::{self, Hinted};

/// A run may take at least this long, and so many times what the suite expects.
const SHORTEST_TIMEOUT_S: f64 = 60.0;
const PATIENCE: f64 = 20.0;
/// After so many runs that do not count a candidate is not tried with the program again.
const CHANCES: usize = 2;
/// A load above this share of the CPUs before the first run is worth a word.
const BUSY: f64 = 0.25;

pub(super) fn run(args: &SuiteRunArgs, context: &Context) -> Result<ExitCode> {
    if args.rounds.max(args.counted) == 0 {
        return Err(Hinted::error("no rounds are asked for", "--rounds, --counted or both must be above 0"));
    }
    let suite = super::read(context)?;
    let place = super::place(&args.places, context)?;
    let programs = chosen(&suite, args)?;
    let candidates = candidates(args, context)?;
    let folder = super::out(&args.places)?;
    let _alone = place.lock().map_err(super::hinted)?;
    super::left_over::end(&place);
    let (record, lines) = Record::open(&folder, args.resume).map_err(super::hinted)?;
    if record.torn_bytes > 0 {
        message::say(
            "imas: note: the last line was cut short when the run before was ended; that run is made again",
        );
    }
    super::install::missing(&suite, &programs, &place, args.install)?;
    end_children_with_us()?;
    let (usable, not_run) = usable(&programs, &place);
    if usable.is_empty() {
        return Err(Hinted::error(
            "none of these programs can be run here",
            "'imas-lab suite list' says why",
        ));
    }
    say_if_busy();
    let varying = imas_suite::record::varying(record.path()).map_err(super::hinted)?;
    let subject = |(program, build_id)| Subject::new(program, build_id, &lines, &varying);
    let subjects = usable.into_iter().map(subject).collect();
    let done = lines.iter().map(Line::key).collect();
    let begun = imas_suite::record::begun(record.path()).map_err(super::hinted)?;
    let mut session =
        Session { args, context, suite: &suite, place: &place, candidates, subjects, done, begun, record };
    session.say_who_joined();
    session.begin()?;
    for (name, why) in not_run {
        session.not_run(&name, &why)?;
    }
    session.all()?;
    let path = session.record.path().to_owned();
    show::show(&path, args.json.json)
}

fn chosen<'a>(suite: &'a Suite, args: &SuiteRunArgs) -> Result<Vec<&'a Program>> {
    if args.names.is_empty() {
        return Ok(suite.set(super::set(args.set)).collect());
    }
    let found: Result<Vec<_>, _> = args.names.iter().map(|name| suite.find(name)).collect();
    found.map_err(super::hinted)
}

/// `system` and what was asked for, in the order of the catalogue, without those that cannot be used here.
fn candidates<'a>(args: &SuiteRunArgs, context: &'a Context) -> Result<Vec<&'a Candidate>> {
    let all = args.with.iter().any(|name| name == "all");
    for name in args.with.iter().filter(|name| *name != "all") {
        context.candidate(name)?;
    }
    // Only a cache here.
    let store = context.open_store().ok();
    let is_chosen = |candidate: &&Candidate| {
        let named = args.with.contains(&candidate.name);
        candidate.is_system() || all || if args.with.is_empty() { candidate.default } else { named }
    };
    let mut usable = Vec::new();
    for candidate in context.catalogue.candidates().iter().filter(is_chosen) {
        match context.obstacle(candidate, store.as_ref()) {
            None => usable.push(candidate),
            Some(why) => message::warning(&format!("{} is left out: {why}", candidate.name)),
        }
    }
    Ok(usable)
}

/// What cannot be measured: the program's name and why.
type NotRunHere = (String, String);

/// Those that can be measured, with their build ids; the others are said, too.
fn usable<'a>(programs: &[&'a Program], place: &Place) -> (Vec<(&'a Program, String)>, Vec<NotRunHere>) {
    let (mut usable, mut not_run) = (Vec::new(), Vec::new());
    for program in programs {
        let why = match fit(program, place) {
            Fit::Yes { build_id } => {
                usable.push((*program, build_id));
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

/// A server of the suite must not go on when we are told to end.
fn end_children_with_us() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            measure::kill_descendants();
            message::say("imas: interrupted; every finished run is kept, --resume goes on");
            #[expect(
                clippy::exit,
                reason = "the thread that measures waits for a child and cannot be asked"
            )]
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn say_if_busy() {
    let load1 = conditions::load1().unwrap_or(0.0);
    let cpus = conditions::cpus();
    if load1 > BUSY * f64::from(cpus) {
        message::warning(&format!(
            "the machine is busy: a load of {load1:.1} on {cpus} CPUs; every figure will be the less certain for it\nhint: end what else is running, or make more rounds"
        ));
    }
}

fn name_of(kind: Kind, round: u32) -> String {
    let what = if kind == Kind::Counted { "counted round" } else { "round" };
    format!("{what} {}", round + 1)
}

/// A program in this session.
struct Subject<'a> {
    program: &'a Program,
    build_id: String,
    /// Its input is there and it was run once.
    warm: bool,
    /// Why nothing more is done with it.
    dropped: bool,
    /// What it gave under `system` first.
    expected: Option<String>,
    /// A second run of `system` gave the same.
    confirmed: bool,
    /// Two runs of `system` gave different things: outputs are not compared.
    varies: bool,
    /// The most memory that a run of it took.
    most_bytes: u64,
    /// Why runs do not count, by candidate.
    failures: BTreeMap<String, Vec<String>>,
}

impl<'a> Subject<'a> {
    fn new(program: &'a Program, build_id: String, lines: &[Line], varying: &Varying) -> Self {
        let mine = || lines.iter().filter(|line| line.program == program.name);
        let outputs: Vec<&String> = mine()
            .filter(|line| line.ok && line.candidate == SYSTEM)
            .filter_map(|line| line.run.output.as_ref())
            .collect();
        let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in mine().filter(|line| !line.ok) {
            failures.entry(line.candidate.clone()).or_default().push(line.why.clone().unwrap_or_default());
        }
        Self {
            program,
            build_id,
            warm: false,
            dropped: false,
            expected: outputs.first().map(|output| (*output).clone()),
            confirmed: outputs.len() > 1,
            varies: varying.contains(&program.name),
            most_bytes: mine().map(|line| line.run.peak_bytes).max().unwrap_or(0),
            failures,
        }
    }

    fn is_out(&self) -> bool {
        self.dropped || self.has_lost(SYSTEM)
    }

    fn has_lost(&self, candidate: &str) -> bool {
        self.failures.get(candidate).is_some_and(|whys| whys.len() >= CHANCES)
    }

    /// An output of `system`. True when it is the first to show that the output varies: then nobody was to blame for another.
    fn see(&mut self, output: Option<String>) -> bool {
        let Some(output) = output else { return false };
        let Some(expected) = &self.expected else {
            self.expected = Some(output);
            return false;
        };
        self.confirmed = true;
        if self.varies || *expected == output {
            return false;
        }
        self.varies = true;
        self.failures.values_mut().for_each(|whys| whys.retain(|why| why != OTHER_OUTPUT));
        true
    }
}

struct Session<'a> {
    args: &'a SuiteRunArgs,
    context: &'a Context,
    suite: &'a Suite,
    place: &'a Place,
    candidates: Vec<&'a Candidate>,
    subjects: Vec<Subject<'a>>,
    done: BTreeSet<Key>,
    /// Rounds of sessions before, with the candidates of each.
    begun: BTreeMap<Round, Rc<BTreeSet<String>>>,
    record: Record,
}

impl Session<'_> {
    fn begin(&mut self) -> Result<()> {
        let versions = self
            .candidates
            .iter()
            .map(|candidate| (candidate.name.clone(), imas_engine::candidates::version(candidate)));
        let header = Header {
            imas: "runs",
            schema: 1,
            began_unix_s: now_unix_s(),
            seed: self.args.seed,
            host: Host::now(),
            versions: versions.collect(),
            load1: conditions::load1(),
        };
        self.record.append(&header).map_err(super::hinted)
    }

    /// Rounds of both kinds, one after the other, so that a drift of the machine meets both alike.
    fn rounds(&self) -> Vec<(Kind, u32)> {
        let (measured, counted) = (self.args.rounds, self.args.counted);
        let of = |round| {
            let both = [(Kind::Measured, measured), (Kind::Counted, counted)];
            both.into_iter().filter(move |(_, rounds)| round < *rounds).map(move |(kind, _)| (kind, round))
        };
        (0..measured.max(counted)).flat_map(of).collect()
    }

    fn all(&mut self) -> Result<()> {
        let mut progress = Progress::start(self.left());
        let limit = Limit::start(self.args.time_limit);
        for (kind, round) in self.rounds() {
            let needs = self.round_needs(kind, round, &progress);
            if !needs.is_zero() && !limit.begins(needs) {
                progress.say(&limit.said(&format!("{} is not begun", name_of(kind, round))));
                break;
            }
            let names: Vec<&str> =
                self.subjects.iter().map(|subject| subject.program.name.as_str()).collect();
            for at in order::programs(&names, round, self.args.seed) {
                if limit.is_over() {
                    progress.say(&limit.said(&format!("{} is not finished", name_of(kind, round))));
                    progress.finish();
                    return Ok(());
                }
                self.program(at, kind, round, &mut progress)?;
            }
            progress.round(&name_of(kind, round));
        }
        progress.finish();
        Ok(())
    }

    /// What is left of a round, warm-ups too; nothing once it is done.
    fn round_needs(&self, kind: Kind, round: u32, progress: &Progress) -> Duration {
        let of = |subject: &Subject<'_>| {
            let todo = if subject.is_out() { 0 } else { self.todo(subject, kind, round).len() };
            let warm_up = usize::from(todo > 0 && !subject.warm);
            progress.expected(&subject.program.name, todo + warm_up)
        };
        self.subjects.iter().map(of).sum()
    }

    fn left(&self) -> BTreeMap<String, (u64, f64)> {
        let of = |subject: &Subject<'_>| {
            let program = subject.program;
            let runs = self
                .rounds()
                .iter()
                .map(|(kind, round)| self.todo(subject, *kind, *round).len() as u64)
                .sum();
            (program.name.clone(), (runs, program.seconds))
        };
        self.subjects.iter().map(of).collect()
    }

    /// Candidates that have not run in this round yet, in its order, as indices; without those that joined after it was begun.
    fn todo(&self, subject: &Subject<'_>, kind: Kind, round: u32) -> Vec<usize> {
        let name = &subject.program.name;
        let order = order::candidates(name, self.candidates.len(), round, self.args.seed);
        let key = |at: usize| (name.clone(), self.candidates[at].name.clone(), kind, round);
        let begun = self.begun.get(&(name.clone(), kind, round));
        let is_in = |at: usize| begun.is_none_or(|names| names.contains(&self.candidates[at].name));
        order.into_iter().filter(|&at| is_in(at) && !self.done.contains(&key(at))).collect()
    }

    fn say_who_joined(&self) {
        let is_asked = |round: &Round| self.subjects.iter().any(|subject| subject.program.name == round.0);
        let lacks =
            |name: &String| self.begun.iter().any(|(round, names)| is_asked(round) && !names.contains(name));
        let joined: Vec<&str> = self
            .candidates
            .iter()
            .map(|one| &one.name)
            .filter(|name| lacks(name))
            .map(String::as_str)
            .collect();
        if !joined.is_empty() {
            message::warning(&format!(
                "{} joined after rounds were begun, and those stay without: runs of a round are made next to each other\nhint: --rounds above those that are done makes rounds with all; they are compared once more than half of the rounds have all",
                joined.join(", ")
            ));
        }
    }

    fn program(&mut self, at: usize, kind: Kind, round: u32, progress: &mut Progress) -> Result<()> {
        let todo = self.todo(&self.subjects[at], kind, round);
        if !todo.is_empty() {
            self.warm_up(at, progress)?;
        }
        for candidate in todo {
            let candidate = self.candidates[candidate];
            let name = self.subjects[at].program.name.clone();
            let subject = &self.subjects[at];
            if subject.is_out() || subject.has_lost(&candidate.name) {
                progress.done(&name, None);
                continue;
            }
            progress.step(&name, &candidate.name);
            let began = Instant::now();
            let line =
                self.once(at, candidate, kind, round).and_then(|line| self.compared(at, line, progress));
            progress.done(&name, Some(began.elapsed()));
            let line = match line {
                Ok(line) => line,
                // Not the candidate's doing, and no reason to lose the other programs; --resume makes the run again.
                Err(error) => {
                    self.leave_out(at, &format!("{error:#}"), progress)?;
                    continue;
                }
            };
            self.keep(at, &line, progress)?;
        }
        Ok(())
    }

    /// Makes the input and runs it once under `system`, which fills caches and must succeed.
    fn warm_up(&mut self, at: usize, progress: &Progress) -> Result<()> {
        if self.subjects[at].warm {
            return Ok(());
        }
        self.subjects[at].warm = true;
        let program = self.subjects[at].program;
        progress.step(&program.name, "warm-up");
        if let Err(error) = self.place.prepare(self.suite, program) {
            return self.leave_out(at, &error.to_string(), progress);
        }
        let line = match self.once(at, self.candidates[0], Kind::Measured, 0) {
            Ok(line) => line,
            Err(error) => return self.leave_out(at, &format!("{error:#}"), progress),
        };
        if let Some(why) = &line.why {
            let said = line.said.as_deref().unwrap_or_default();
            return self.leave_out(at, &format!("it fails under system ({why}): {said}"), progress);
        }
        self.see(at, line.run.output, progress)
    }

    /// Nothing more is done with the program in this session; the record says why.
    fn leave_out(&mut self, at: usize, why: &str, progress: &Progress) -> Result<()> {
        let subject = &mut self.subjects[at];
        subject.dropped = true;
        let name = subject.program.name.clone();
        progress.say(&format!("imas: {name}: left out: {why}"));
        self.not_run(&name, why)
    }

    fn not_run(&mut self, name: &str, why: &str) -> Result<()> {
        let line = NotRun { left_out: name.to_owned(), why: why.to_owned(), at_s: now_unix_s() };
        self.record.append(&line).map_err(super::hinted)
    }

    fn once(&self, at: usize, candidate: &Candidate, kind: Kind, round: u32) -> Result<Line> {
        let subject = &self.subjects[at];
        let timeout =
            self.args.timeout.unwrap_or_else(|| (subject.program.seconds * PATIENCE).max(SHORTEST_TIMEOUT_S));
        let once = Once {
            context: self.context,
            place: self.place,
            program: subject.program,
            build_id: &subject.build_id,
            timeout: Duration::from_secs_f64(timeout),
            backed_bytes: enough_for(subject.most_bytes),
        };
        once.run(candidate, kind, round)
    }

    /// An output of `system`, by which the others are judged.
    fn see(&mut self, at: usize, output: Option<String>, progress: &Progress) -> Result<()> {
        if !self.subjects[at].see(output) {
            return Ok(());
        }
        let name = self.subjects[at].program.name.clone();
        progress.say(&format!(
            "imas: note: {name}: its output varies under system; outputs are not compared, and nobody is left out for another"
        ));
        let line = OutputVaries { output_varies: name, at_s: now_unix_s() };
        self.record.append(&line).map_err(super::hinted)
    }

    /// A candidate is blamed for another output only when `system` gives the same one twice.
    fn compared(&mut self, at: usize, mut line: Line, progress: &Progress) -> Result<Line> {
        if !line.ok || line.run.output.is_none() {
            return Ok(line);
        }
        if line.candidate == SYSTEM {
            self.see(at, line.run.output.clone(), progress)?;
            return Ok(line);
        }
        let subject = &self.subjects[at];
        if subject.expected == line.run.output || subject.varies {
            return Ok(line);
        }
        if !subject.confirmed {
            let again = self.once(at, self.candidates[0], Kind::Measured, 0)?;
            // What a run that failed wrote says nothing of what the program writes.
            if let Some(why) = again.why {
                anyhow::bail!("it fails under system ({why}) when its output was to be confirmed");
            }
            self.see(at, again.run.output, progress)?;
        }
        if !self.subjects[at].varies {
            line.ok = false;
            line.why = Some(OTHER_OUTPUT.to_owned());
            line.said = Some("its output is not that of system".to_owned());
        }
        Ok(line)
    }

    fn keep(&mut self, at: usize, line: &Line, progress: &Progress) -> Result<()> {
        self.record.append(line).map_err(super::hinted)?;
        self.done.insert(line.key());
        let subject = &mut self.subjects[at];
        subject.most_bytes = subject.most_bytes.max(line.run.peak_bytes);
        if let Some(why) = &line.why {
            let said = line.said.as_deref().unwrap_or_default();
            progress.say(&format!("imas: {} under {}: {why}: {said}", line.program, line.candidate));
            subject.failures.entry(line.candidate.clone()).or_default().push(why.clone());
        } else if line.kind == Kind::Counted && line.counts.is_none() {
            progress.say(&format!(
                "imas: note: {} under {}: no process of it was counted",
                line.program, line.candidate
            ));
        }
        Ok(())
    }
}
