// SPDX-License-Identifier: Apache-2.0
//! `imas bench`: a command under every candidate, interleaved, and what that says.

mod progress;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use imas_core::bench::{CandidateRuns, CountedExits, Options, Run, Warning, compare_counted, prepare};
use imas_core::candidate::SYSTEM;
use imas_core::hang::patience_s;
use imas_core::sample::{Ended, PageKind, is_crash_signal};
use imas_core::split::Split;
use imas_core::{Conditions, Sample, TrialRecord};
use imas_linux::catalogue::Candidate;
use imas_linux::clock::now_unix_s;
use imas_linux::environment::{Injection, Mode, Reach, Variables};
use imas_linux::host::Host;
use imas_linux::measure::{self, Outcome};
use imas_linux::one_cpu::steady_cpu;
use imas_linux::program::Command;
use imas_linux::{conditions, page};
use imas_report::bench::{Candidate as Row, PaperFigures, Report};
use imas_runs::backing::Backing;
use imas_runs::plan::{Kind, Step};
use imas_runs::raw::RawFile;
use imas_runs::run::run_of;
use imas_runs::{counted, plan};
use imas_store::Store;

use crate::cli::{BenchArgs, OneCpuName};
use crate::context::Context;
use crate::message::{self, Hinted};
use crate::{export, output};
use progress::Progress;

/// Exit status when the program itself fails under `system`.
const PROGRAM_FAILED: u8 = 1;
/// A run may take at least this long whatever the first one took.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How many times as long as the first run.
const PATIENCE: u32 = 20;

pub(crate) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode> {
    let command = Command::resolve(&args.command, std::env::var_os("PATH").as_deref())?;
    // A store is welcome (it remembers probes and crashes) but not needed.
    let store = context.open_store().inspect_err(message::error).ok();
    let executable = crate::commands::inspect(&command, store.as_ref())?;
    if let Some(why) = &executable.unfit {
        return Err(Hinted::error(
            format!("{}: cannot run under another allocator: {why}", command.program.path.display()),
            "measure another program, or the program that this one starts",
        ));
    }
    let chosen = chosen(args, context, store.as_ref())?;
    check_files(args)?;
    let always = (args.one_cpu == OneCpuName::Always).then(steady_cpu).flatten();
    let bench = Bench {
        args,
        context,
        command,
        build_id: executable.build_id,
        began_unix_s: now_unix_s(),
        conditions: conditions::now().ok(),
        cpu: Cell::new(always),
        backing: Backing::default(),
    };
    let measured = bench.measure(&chosen)?;
    if let Some(store) = &store {
        bench.remember_harm(store, &chosen, &measured)?;
    }
    let report = bench.report(chosen, measured);
    export::write(args, &report)?;
    show(args, &report, &bench.command)?;
    let failed = report.warnings.iter().any(|warning| matches!(warning, Warning::SystemFails { .. }));
    Ok(if failed { ExitCode::from(PROGRAM_FAILED) } else { ExitCode::SUCCESS })
}

/// The files that the user named must not fail when half is measured.
fn check_files(args: &BenchArgs) -> Result<()> {
    if let Some(input) = &args.input {
        std::fs::File::open(input).map_err(|error| {
            Hinted::error(
                format!("{} cannot be read: {error}", input.display()),
                "--input names the file that the command reads as its standard input",
            )
        })?;
    }
    export::check(args)
}

/// A candidate to be measured, or why it cannot be.
struct Chosen<'a> {
    candidate: &'a Candidate,
    obstacle: Option<String>,
}

/// `system` and what the user named, in the order of the catalogue.
fn chosen<'a>(args: &BenchArgs, context: &'a Context, store: Option<&Store>) -> Result<Vec<Chosen<'a>>> {
    let all = args.with.iter().any(|name| name == "all");
    for name in args.with.iter().filter(|name| *name != "all") {
        context.candidate(name)?;
    }
    let is_chosen = |candidate: &&Candidate| {
        let named = args.with.contains(&candidate.name);
        candidate.is_system() || all || if args.with.is_empty() { candidate.default } else { named }
    };
    let chosen = context.catalogue.candidates().iter().filter(is_chosen);
    Ok(chosen.map(|candidate| Chosen { obstacle: context.obstacle(candidate, store), candidate }).collect())
}

/// What the runs of one candidate brought.
#[derive(Default)]
struct Measured {
    runs: Vec<Run>,
    counted: Vec<CountedRun>,
    signals: Vec<i32>,
    /// One of its runs stood still and was ended.
    hung: bool,
    notes: Vec<String>,
}

impl Measured {
    /// How its runs of either kind ended.
    fn exits(&self) -> impl Iterator<Item = i32> {
        self.runs.iter().map(|run| run.exit).chain(self.counted.iter().map(|run| run.exit))
    }

    /// Of the counted runs that ended in one of these ways.
    fn samples(&self, exits: &BTreeSet<i32>) -> Vec<&Sample> {
        let ended_so = self.counted.iter().filter(|run| exits.contains(&run.exit));
        ended_so.filter_map(|run| run.sample.as_ref()).collect()
    }
}

/// How a counted run ended, and its figures where it left any.
struct CountedRun {
    exit: i32,
    sample: Option<Sample>,
}

/// When a run is ended.
struct Limits {
    /// After so long, whatever it does.
    timeout: Duration,
    /// When it has used no CPU time for so long.
    still: Option<Duration>,
}

/// How long a run may stand still, by the slowest run under `system`: whoever gets nowhere for far longer than the program takes hangs.
fn still_limit(slowest_s: f64) -> Duration {
    Duration::from_secs_f64(patience_s(slowest_s))
}

struct Bench<'a> {
    args: &'a BenchArgs,
    context: &'a Context,
    command: Command,
    build_id: String,
    /// Before the first run, like the conditions.
    began_unix_s: f64,
    conditions: Option<Conditions>,
    /// Where the runs are kept, once it is known that the program uses one CPU at a time.
    cpu: Cell<Option<usize>>,
    backing: Backing,
}

impl Bench<'_> {
    /// Makes all runs; the result has one entry per candidate, empty for those that cannot be used.
    fn measure(&self, chosen: &[Chosen<'_>]) -> Result<Vec<Measured>> {
        let usable: Vec<usize> = (0..chosen.len()).filter(|&i| chosen[i].obstacle.is_none()).collect();
        let steps = plan::steps(&usable, self.args.runs, self.args.trials, self.args.warmup, self.args.seed);
        let progress = Progress::start(steps.len());
        let mut raw = self.raw_file()?;
        let measured = self.all(&steps, chosen, &progress, raw.as_mut());
        let written = raw.map_or(Ok(()), RawFile::finish);
        progress.finish();
        let measured = measured?;
        written.map(|()| measured)
    }

    fn all(
        &self,
        steps: &[Step],
        chosen: &[Chosen<'_>],
        progress: &Progress,
        mut raw: Option<&mut RawFile>,
    ) -> Result<Vec<Measured>> {
        let mut measured: Vec<Measured> = chosen.iter().map(|_| Measured::default()).collect();
        let mut timeout = self.args.timeout.map(Duration::from_secs_f64);
        let mut slowest_s: Option<f64> = None; // of the runs under system
        for (at, step) in steps.iter().enumerate() {
            let candidate = chosen[step.candidate].candidate;
            progress.step(&candidate.name, step.kind);
            let into = &mut measured[step.candidate];
            // A candidate that crashed or hung once has lost: no reason to wait for it again.
            if into.signals.iter().any(|&signal| is_fatal(signal)) && !candidate.is_system() {
                continue;
            }
            let patience = timeout.unwrap_or(Duration::from_secs(24 * 3600));
            // How long the program takes is known from system alone, and so is how long it stands still by itself.
            let still = slowest_s.filter(|_| !candidate.is_system()).map(still_limit);
            let limits = Limits { timeout: patience, still };
            let outcome = self.step(step, candidate, &limits, into, raw.as_deref_mut())?;
            if candidate.is_system() {
                slowest_s = Some(slowest_s.unwrap_or(0.0).max(outcome.wall_s));
            }
            // Not before: of a warm-up that is kept on one CPU already nothing can be learnt.
            if self.args.one_cpu == OneCpuName::Auto && plan::is_last_warmup(steps, at) {
                self.cpu.set(outcome.is_serial().then(steady_cpu).flatten());
            }
            if timeout.is_none() {
                timeout = Some(SHORTEST_TIMEOUT.max(Duration::from_secs_f64(outcome.wall_s) * PATIENCE));
            }
        }
        Ok(measured)
    }

    fn step(
        &self,
        step: &Step,
        candidate: &Candidate,
        limits: &Limits,
        into: &mut Measured,
        raw: Option<&mut RawFile>,
    ) -> Result<Outcome> {
        let (outcome, counted) = match step.kind {
            Kind::Warmup => return self.once(candidate, Mode::Production, None, limits),
            Kind::Counted { .. } => {
                let folder = counted::Folder::new()?;
                let first = folder.first_page(&self.command, candidate, &self.build_id)?;
                let outcome = self.once(candidate, Mode::Trial, Some(&first), limits)?;
                let counted = folder.counted().inspect_err(|error| {
                    into.notes
                        .push(format!("{}: its counted run gave no figures: {error:#}", candidate.name));
                });
                let counted = counted.ok();
                let sample = counted.as_ref().map(|counted| counted.sample.clone());
                into.counted.push(CountedRun { exit: outcome.exit, sample });
                (outcome, counted)
            }
            Kind::Measured { round } => {
                let outcome = self.once(candidate, Mode::Production, None, limits)?;
                into.runs.push(run_of(&outcome, round));
                (outcome, None)
            }
        };
        if let Some(raw) = raw {
            raw.add(&candidate.name, step.kind, &outcome, counted.as_ref())?;
        }
        into.signals.extend(outcome.signal);
        into.hung |= outcome.hung;
        into.notes.extend(odd(&outcome, candidate));
        Ok(outcome)
    }

    /// The file of raw runs, when one was named.
    fn raw_file(&self) -> Result<Option<RawFile>> {
        let name = || {
            let path = &self.command.program.path;
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let program = self.args.name.clone().unwrap_or_else(name);
        self.args.export_runs.as_ref().map(|file| RawFile::append(file, &program, self.args.seed)).transpose()
    }

    fn once(
        &self,
        candidate: &Candidate,
        mode: Mode,
        page: Option<&Path>,
        limits: &Limits,
    ) -> Result<Outcome> {
        let reach = if mode == Mode::Trial { Reach::Tree } else { Reach::Children };
        let inherited: Variables = std::env::vars_os().collect();
        let variables =
            Injection { candidate, mode, reach, page }.variables(&inherited, &self.context.libraries)?;
        let run = measure::Run {
            file: &self.command.file,
            argv: &self.command.argv,
            variables: &variables,
            input: self.args.input.as_deref(),
            folder: None,
            show_output: self.args.show_output,
            timeout: limits.timeout,
            still: limits.still,
            cpu: self.cpu.get(),
            backed_bytes: self.backing.bytes(),
        };
        let outcome = run.measure()?;
        self.backing.saw(&outcome);
        Ok(outcome)
    }

    fn report(&self, chosen: Vec<Chosen<'_>>, mut measured: Vec<Measured>) -> Report<Host> {
        let mut runs: Vec<CandidateRuns> = chosen
            .iter()
            .zip(&measured)
            .map(|(c, m)| CandidateRuns { name: c.candidate.name.clone(), runs: m.runs.clone() })
            .collect();
        prepare(&mut runs);
        for (each, ready) in measured.iter_mut().zip(&runs) {
            each.runs.clone_from(&ready.runs);
        }
        let options = Options { seed: self.args.seed, conditions: self.conditions, ..Options::default() };
        let hung: Vec<&str> = chosen
            .iter()
            .zip(&measured)
            .filter(|(_, m)| m.hung)
            .map(|(c, _)| c.candidate.name.as_str())
            .collect();
        let comparison =
            compare_counted(&runs, &counted_exits(&chosen, &measured), &options).with_hung(&hung);
        let expected: BTreeSet<i32> =
            of_system(&chosen, &measured).map(Measured::exits).into_iter().flatten().collect();
        let notes = measured
            .iter()
            .flat_map(|m| m.notes.clone())
            .chain(system_note(&chosen, &measured))
            .chain(pace_note(&runs))
            .chain(self.backing.note())
            .collect();
        let unusable: Vec<&str> =
            chosen.iter().filter(|c| c.obstacle.is_some()).map(|c| c.candidate.name.as_str()).collect();
        // What could not be used is listed with its reason; that it has no runs needs no second warning.
        let warnings = comparison.warnings.into_iter().filter(|w| !names_one_of(w, &unusable)).collect();
        let rows =
            chosen.iter().zip(measured).zip(comparison.candidates).map(|((chosen, measured), result)| {
                let version = imas_engine::candidates::version(chosen.candidate);
                match &chosen.obstacle {
                    Some(reason) => Row::unusable(&chosen.candidate.name, &version, reason),
                    None => {
                        let paper = paper(&measured.samples(&expected));
                        Row::measured(&version, measured.runs, result, paper)
                    }
                }
            });
        Report {
            schema: 1,
            command: self.args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            began_unix_s: self.began_unix_s,
            seed: self.args.seed,
            host: Host::now(),
            candidates: rows.collect(),
            picks: comparison.picks,
            kept_on_cpu: self.cpu.get(),
            warnings,
            notes,
        }
    }

    /// A crash or a hang under a candidate is evidence, and `imas run` must never have to see it again.
    fn remember_harm(&self, store: &Store, chosen: &[Chosen<'_>], measured: &[Measured]) -> Result<()> {
        let program =
            || store.program(&self.command.program.path.to_string_lossy(), &self.command.program.detail);
        for (candidate, ended) in harms(chosen, measured) {
            let sample = Sample {
                trial_id: page::new_trial_id()?,
                candidate: candidate.name.clone(),
                made_unix_s: now_unix_s(),
                ended,
                kind: PageKind::Flight,
                ..Sample::default()
            };
            let record = TrialRecord {
                sample,
                build_id: self.build_id.clone(),
                allocator_version: candidate.version.clone().unwrap_or_default(),
                retest_s: None,
            };
            store.add_trial(program()?.id, &record)?;
        }
        Ok(())
    }
}

fn of_system<'a>(chosen: &[Chosen<'_>], measured: &'a [Measured]) -> Option<&'a Measured> {
    chosen.iter().zip(measured).find(|(chosen, _)| chosen.candidate.is_system()).map(|(_, measured)| measured)
}

fn counted_exits(chosen: &[Chosen<'_>], measured: &[Measured]) -> CountedExits {
    let exits = |measured: &Measured| measured.counted.iter().map(|run| run.exit).collect();
    chosen.iter().zip(measured).map(|(c, measured)| (c.candidate.name.clone(), exits(measured))).collect()
}

/// Says so when `system` is not glibc's malloc for this program.
fn system_note(chosen: &[Chosen<'_>], measured: &[Measured]) -> Option<String> {
    let served = &of_system(chosen, measured)?.counted.iter().find_map(|run| run.sample.as_ref())?.served;
    (!served.is_empty() && served != "libc.so.6")
        .then(|| format!("under system, {served} serves this program"))
}

/// First crash or hang of each candidate, `system` included: its crashes are the baseline.
fn harms<'a>(
    chosen: &'a [Chosen<'_>],
    measured: &'a [Measured],
) -> impl Iterator<Item = (&'a Candidate, Ended)> {
    let fatal = |m: &Measured| {
        let signals = m.signals.iter().filter_map(|&signal| u32::try_from(signal).ok());
        let crash = signals.into_iter().find(|&signal| is_crash_signal(signal));
        crash.map(|signal| Ended::Signal { signal }).or_else(|| m.hung.then_some(Ended::Hung))
    };
    chosen.iter().zip(measured).filter_map(move |(c, m)| Some((c.candidate, fatal(m)?)))
}

fn is_fatal(signal: i32) -> bool {
    const SIGKILL: i32 = 9; // our own watchdog's
    signal == SIGKILL || u32::try_from(signal).is_ok_and(is_crash_signal)
}

fn names_one_of(warning: &Warning, names: &[&str]) -> bool {
    match warning {
        Warning::Outliers { candidate, .. }
        | Warning::ExitDiffers { candidate, .. }
        | Warning::OutputDiffers { candidate }
        | Warning::CrashUnder { candidate, .. }
        | Warning::HangsUnder { candidate } => names.contains(&candidate.as_str()),
        _ => false,
    }
}

/// Changes of pace below this are not worth a word.
const EVEN: f64 = 0.02;

/// The changes that are printed are not the ratios of the medians beside them, where the pace was taken out.
fn pace_note(candidates: &[CandidateRuns]) -> Option<String> {
    let runs = candidates.iter().flat_map(|candidate| &candidate.runs);
    let paces: Vec<f64> = runs.filter_map(|run| Some(run.cpu_s() / run.even_cpu_s? - 1.0)).collect();
    let most = paces.iter().copied().fold(0.0, f64::max);
    let least = paces.iter().copied().fold(0.0, f64::min);
    (most > EVEN || least < -EVEN).then(|| {
        format!(
            "the CPU did not always work equally fast: runs took from {:.0} % less to {:.0} % more CPU time by that alone; it is taken out of what is compared \
             (CPU time at even pace)",
            -least * 100.0,
            most * 100.0
        )
    })
}

/// What a reader of the figures should know of a run beyond them.
fn odd(outcome: &Outcome, candidate: &Candidate) -> Option<String> {
    let name = &candidate.name;
    if outcome.hung {
        return Some(format!(
            "{name}: a run used no CPU time for far longer than any under system took, and was ended"
        ));
    }
    if outcome.timed_out {
        return Some(format!("{name}: a run took too long and was ended"));
    }
    let failed = candidate.is_system() && outcome.exit != 0;
    let said = outcome.stderr_tail.lines().last().filter(|_| failed);
    let left = (outcome.left_running > 0 && candidate.name == SYSTEM)
        .then(|| format!("{} processes outlived the command and were ended", outcome.left_running));
    said.map(|said| format!("the program says: {said}")).or(left)
}

/// The paper's figures: medians are not in the paper, so the mean over the counted runs, as Algorithm 8 averages tests.
fn paper(samples: &[&Sample]) -> Option<PaperFigures> {
    let first = samples.first()?;
    let mean = |figure: fn(&Sample) -> Option<f64>| {
        let figures: Vec<f64> = samples.iter().copied().filter_map(figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    let count = samples.len() as u64;
    Some(PaperFigures {
        ns_per_op: mean(Sample::ns_per_op),
        frag_virtual: mean(Sample::frag_virtual),
        frag_resident: mean(Sample::frag_resident),
        heap_bytes: samples.iter().map(|s| s.memory.heap_mean / count).sum(),
        operations: samples.iter().map(|s| s.classes().iter().map(|op| op.calls).sum::<u64>() / count).sum(),
        served: first.served.clone(),
        split: Split::mean(&samples.iter().filter_map(|s| s.memory.split).collect::<Vec<_>>()),
    })
}

fn show(args: &BenchArgs, report: &Report<Host>, command: &Command) -> Result<()> {
    if args.json {
        return output::json(report);
    }
    let tell = |text: &str| match export::takes_stdout(args) {
        true => {
            message::say(text.trim_end_matches('\n'));
            Ok(())
        }
        false => output::text(text),
    };
    tell(&format!("\n{}\n{}", report.table(), report.sentence()))?;
    if args.trials > 0 && !report.splits().is_empty() {
        tell(&format!("\n{}", report.splits()))?;
    }
    tell(&how_to_use(args, report, command))?;
    for warning in &report.warnings {
        message::warning(&format!("{}\nhint: {}", warning.what(), warning.hint()));
    }
    report.notes.iter().for_each(|note| message::say(&format!("imas: note: {note}")));
    open_questions(report);
    Ok(())
}

/// The command that uses the best pick: the balanced one, else one that suits a shortage.
fn how_to_use(args: &BenchArgs, report: &Report<Host>, command: &Command) -> String {
    let words: Vec<_> = args.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let words = words.join(" ");
    let picks = [&report.picks.balanced, &report.picks.fastest, &report.picks.leanest];
    match picks.into_iter().find(|pick| *pick != SYSTEM) {
        // The children were measured too, so they have to come along.
        Some(pick) => format!(
            "to use it:  imas run --follow --candidate {pick} -- {words}\nfor good:   imas pin {} {pick}   (then: imas run --follow -- ...)",
            quoted(&pinnable(command))
        ),
        None => format!("to have it looked at while it works:  imas run --follow -- {words}"),
    }
}

fn pinnable(command: &Command) -> String {
    let program = &command.program;
    let script = Path::new(&program.detail);
    if script.is_absolute() { program.detail.clone() } else { program.path.to_string_lossy().into_owned() }
}

/// How many more runs would settle what the intervals leave open.
fn open_questions(report: &Report<Host>) {
    let most = report.candidates.iter().filter_map(|c| c.more_runs.cpu).max().unwrap_or(0);
    if most > 0 {
        message::say(&format!(
            "imas: note: about {most} more runs would settle the CPU times that are still open"
        ));
    }
}

/// A word as a shell would take it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a-b=c"), "a-b=c");
        assert_eq!(quoted("it's 1"), "'it'\\''s 1'");
        assert_eq!(quoted(""), "''");
    }
}
