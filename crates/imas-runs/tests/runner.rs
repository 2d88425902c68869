// SPDX-License-Identifier: Apache-2.0
//! The runner with an executor that runs nothing: limits, failing runs, outputs, errors and the journal. Last, runs that were
//! written before there was one record format: they are read as they were meant.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use imas_core::hang::hang_threshold_s;
use imas_core::raw_runs::data::{self, Line};
use imas_core::run::{RawRun, RunKind};
use imas_core::server_run::{Failure, ServerRun, Stage};
use imas_linux::measure::RunOutcome;
use imas_linux::pace::enough_for;
use imas_linux::sampler::Resident;
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, Rules, Runner, SessionEnd};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::{Subject, Timeout};
use support::{Fake, Log, Script, killed, measured, names, output, rounds, rules, runs_of};

fn runner(interruption: &Interruption, elimination: Elimination) -> Runner<'_> {
    let subject = Subject::new("p", Timeout::ByFirstRun);
    Runner::new(names(), vec![subject], rules(elimination), interruption)
}

/// Outcome of the steps, with these outcomes of `system` and `other`.
fn made(
    elimination: Elimination,
    steps: Vec<Step>,
    scripts: [Script; 2],
) -> (anyhow::Result<SessionEnd>, Log, Fake) {
    let interruption = Interruption::default();
    let mut fake = Fake { scripts: vec![scripts.into()], ..Fake::default() };
    let mut log = Log::default();
    let ended = runner(&interruption, elimination).run(steps, &mut fake, &mut log);
    (ended, log, fake)
}

fn same(outcome: RunOutcome) -> Script {
    Script::from([Ok(outcome)])
}

fn outputs<const N: usize>(hashes: [u64; N]) -> Script {
    hashes.into_iter().map(|hash| Ok(output(hash))).collect()
}

/// Candidate and why, of the runs that do not count.
fn rejected(log: &Log) -> Vec<(&str, &str)> {
    let out = log.runs.iter().filter(|run| !run.ok);
    out.map(|run| (run.candidate.as_str(), run.why.as_deref().unwrap())).collect()
}

// ---- outputs ----------------------------------------------------------------------------------------------

#[test]
fn a_candidate_whose_output_differs_twice_does_not_count() {
    let (ended, log, _) = made(Elimination::Never, rounds(2), [same(output(1)), outputs([2, 1])]);
    assert_eq!(ended.unwrap(), SessionEnd::Finished);
    assert_eq!((log.runs.len(), rejected(&log)), (4, vec![("other", "output")]));
}

#[test]
fn one_more_run_of_system_confirms_its_output() {
    let (_, log, fake) = made(Elimination::Never, rounds(1), [same(output(1)), same(output(2))]);
    assert_eq!(fake.asked.len(), 3, "one that is not kept");
    assert_eq!((log.runs.len(), rejected(&log)), (2, vec![("other", "output")]));
    let (_, log, fake) = made(Elimination::Never, rounds(1), [outputs([1, 3]), same(output(2))]);
    assert_eq!(fake.asked.len(), 3);
    assert_eq!((rejected(&log), log.varies.clone()), (vec![], vec!["p".to_owned()]));
}

#[test]
fn a_run_from_before_the_first_of_system_waits_for_it() {
    let steps = vec![measured(0, 1, 0), measured(0, 0, 0), measured(0, 0, 1)];
    let (_, log, _) = made(Elimination::Never, steps, [same(output(1)), same(output(2))]);
    let order: Vec<&str> = log.runs.iter().map(|run| run.candidate.as_str()).collect();
    assert_eq!(order, ["system", "other", "system"]);
    assert_eq!(rejected(&log), [("other", "output")]);
    let (_, log, _) = made(Elimination::Never, vec![measured(0, 1, 0)], [same(output(1)), same(output(2))]);
    assert_eq!(
        (log.runs.len(), rejected(&log)),
        (1, vec![]),
        "without a run of system no candidate is rejected"
    );
}

#[test]
fn no_candidate_is_rejected_when_the_output_varies_under_system() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let interruption = Interruption::default();
    let mut runner = runner(&interruption, Elimination::Failures(2));
    runner.journal = Some(Journal::open(&path).unwrap());
    let mut fake = Fake { scripts: vec![vec![outputs([1, 1, 7, 1, 1]), same(output(2))]], ..Fake::default() };
    let mut log = Log::default();
    runner.run(rounds(4), &mut fake, &mut log).unwrap();
    assert_eq!(rejected(&log), [("other", "output")], "before the output was known to vary");
    assert_eq!(log.varies, ["p"]);
    let read = data::read(&std::fs::read_to_string(&path).unwrap());
    assert_eq!((read.runs.len(), read.unreadable.len()), (8, 0));
    assert!(read.runs.iter().all(|run| run.ok), "a line says that the output varies");
}

// ---- failing runs -----------------------------------------------------------------------------------------

#[test]
fn a_crash_or_a_timeout_is_not_waited_for_again() {
    for outcome in [killed(11), RunOutcome { timed_out: true, ..killed(9) }] {
        let (_, log, fake) = made(Elimination::Fatal, rounds(3), [same(output(1)), same(outcome.clone())]);
        assert_eq!((fake.asked.len(), log.skipped.len()), (4, 2));
        let (_, log, _) = made(Elimination::Fatal, rounds(3), [same(outcome), same(output(1))]);
        assert_eq!(log.runs.len(), 6, "system goes on");
    }
    let exits = RunOutcome { exit: 3, ..output(1) };
    let (_, log, _) = made(Elimination::Fatal, rounds(3), [same(output(1)), same(exits.clone())]);
    assert_eq!((log.runs.len(), rejected(&log).len()), (6, 3), "an exit is no crash");
    let rule = Elimination::FatalOrFailures(2);
    let (_, log, _) = made(rule, rounds(4), [same(exits.clone()), same(exits)]);
    assert_eq!((log.runs.len(), log.skipped.len()), (6, 2), "two failures end it, but for system");
    let (_, log, _) = made(rule, rounds(4), [same(output(1)), same(killed(11))]);
    assert_eq!((log.runs.len(), log.skipped.len()), (5, 3), "and so does one crash");
}

#[test]
fn a_candidate_has_two_chances_and_a_subject_with_its_system() {
    let failing = || same(RunOutcome { exit: 3, ..output(1) });
    let (_, log, _) = made(Elimination::Failures(2), rounds(4), [same(output(1)), failing()]);
    assert_eq!((log.runs.len(), log.skipped.len()), (6, 2));
    let (_, log, _) = made(Elimination::Failures(2), rounds(4), [failing(), same(output(1))]);
    assert_eq!((log.runs.len(), log.skipped.len()), (3, 5), "nothing can be compared any more");
}

#[test]
fn a_counted_run_of_a_service_that_fails_ends_nothing() {
    let counted = |round| Step { subject: 0, candidate: 0, kind: RoundKind::Counted { round } };
    let steps: Vec<Step> = [counted(0), counted(1)].into_iter().chain(rounds(2)).collect();
    let exit = |exit| Ok(RunOutcome { exit, ..output(1) });
    let script = || Script::from([exit(3), exit(3), exit(0)]);
    let rule = Elimination::MeasuredFailures(2);
    let (_, log, _) = made(rule, steps.clone(), [script(), same(output(1))]);
    assert_eq!((log.runs.len(), log.skipped.len()), (6, 0));
    let (_, log, _) = made(Elimination::Failures(2), steps, [script(), same(output(1))]);
    assert_eq!((log.runs.len(), log.skipped.len()), (2, 4), "of a suite it is a failure");
}

/// Runs of a server that all fail at this stage.
struct Failing(Stage);

impl Executor for Failing {
    fn execute(&mut self, _step: &Step, _limits: &RunLimits) -> anyhow::Result<Execution> {
        let failure = Some(Failure::new(self.0, "x".to_owned()));
        let server = ServerRun { failure, ..ServerRun::default() };
        Ok(imas_runs::service::execution(RawRun::default().with_server(server)))
    }
}

#[test]
fn a_failure_that_is_nobodys_fault_ends_nothing() {
    let interruption = Interruption::default();
    for (stage, made, known) in [(Stage::Ready, 3, 2), (Stage::Taken, 8, 0), (Stage::Prepare, 8, 0)] {
        let mut log = Log::default();
        let mut runner = runner(&interruption, Elimination::MeasuredFailures(2));
        runner.run(rounds(4), &mut Failing(stage), &mut log).unwrap();
        assert_eq!((log.runs.len(), log.skipped.len()), (made, 8 - made), "{stage:?}");
        let mut resumed = Subject::new("p", Timeout::ByFirstRun);
        resumed.resume(log.runs.iter());
        assert_eq!(resumed.failures.get("system").map_or(0, Vec::len), known, "{stage:?}");
    }
}

#[test]
fn failures_in_a_row_are_forgotten_after_a_run_that_counts() {
    let exit = |exit| Ok(RunOutcome { exit, ..output(1) });
    let script = Script::from([exit(3), exit(0), exit(3), exit(3), exit(0)]);
    let (_, log, _) = made(Elimination::FailuresInARow(2), rounds(6), [same(output(1)), script]);
    assert_eq!((rejected(&log).len(), log.skipped.len()), (3, 2));
}

#[test]
fn a_warm_up_that_fails_leaves_its_subject_out() {
    let interruption = Interruption::default();
    let rules = Rules { elimination: Elimination::Never, warmup_must_succeed: true };
    let subjects = ["p", "q"].map(|name| Subject::new(name, Timeout::ByFirstRun));
    let mut runner = Runner::new(names(), subjects.into(), rules, &interruption);
    let warm_up = |subject| Step { subject, candidate: 0, kind: RoundKind::Warmup };
    let steps = [warm_up(0), measured(0, 0, 0), warm_up(1), measured(1, 0, 0)];
    let broken = RunOutcome { exit: 2, stderr_tail: "no such file\n".into(), ..output(1) };
    let mut fake = Fake::always(&[&[broken], &[output(1)]]);
    let mut log = Log::default();
    runner.run(steps, &mut fake, &mut log).unwrap();
    assert_eq!(log.left_out, ["p: it fails under system (exit): exit 2: no such file"]);
    assert_eq!(log.runs.iter().map(|run| run.program.as_str()).collect::<Vec<_>>(), ["q"]);
}

#[test]
fn a_later_warm_up_only_fills_caches() {
    let interruption = Interruption::default();
    let rules = Rules { elimination: Elimination::Never, warmup_must_succeed: true };
    let mut runner = Runner::new(names(), vec![Subject::new("p", Timeout::ByFirstRun)], rules, &interruption);
    let warm_up = Step { subject: 0, candidate: 0, kind: RoundKind::Warmup };
    let broken = RunOutcome { exit: 2, ..output(1) };
    let script = [output(1), output(1), broken, output(1)].map(Ok);
    let mut fake = Fake { scripts: vec![vec![script.into()]], ..Fake::default() };
    let mut log = Log::default();
    runner.run([warm_up, measured(0, 0, 0), warm_up, measured(0, 0, 1)], &mut fake, &mut log).unwrap();
    assert_eq!((log.left_out.len(), log.runs.len()), (0, 2));
}

// ---- limits -----------------------------------------------------------------------------------------------

#[test]
fn the_first_run_sets_the_limit_of_the_others() {
    let long = RunOutcome { wall_s: 10.0, ..output(1) };
    let (_, _, fake) = made(Elimination::Never, rounds(1), [same(long), same(output(1))]);
    let timeouts: Vec<u64> = fake.asked.iter().map(|(_, limits)| limits.timeout.as_secs()).collect();
    assert_eq!(timeouts, [24 * 3600, 200]);
    let (_, _, fake) = made(Elimination::Never, rounds(1), [same(output(1)), same(output(1))]);
    assert_eq!(fake.asked[1].1.timeout, Duration::from_secs(60), "never less than a minute");
}

#[test]
fn the_first_run_can_have_a_limit_that_later_ones_scale_from_their_own() {
    let interruption = Interruption::default();
    let mut runner = runner(&interruption, Elimination::Never);
    runner.subjects[0].timeout = Timeout::FirstWithin(Duration::from_secs(12));
    let mut fake = Fake::always(&[&[output(1), output(1)]]);
    runner.run(rounds(1), &mut fake, &mut Log::default()).unwrap();
    let timeouts: Vec<u64> = fake.asked.iter().map(|(_, limits)| limits.timeout.as_secs()).collect();
    assert_eq!(timeouts, [12, 20], "twenty times the first run, which took a second");
}

#[test]
fn a_candidate_may_be_idle_for_the_hang_threshold_of_system() {
    let interruption = Interruption::default();
    let mut runner = runner(&interruption, Elimination::Never);
    runner.subjects[0].watches_standstill = true;
    runner.subjects[0].timeout = Timeout::After(Duration::from_secs(5));
    let mut fake = Fake::always(&[&[output(1), output(1)]]);
    let steps = [measured(0, 1, 0), measured(0, 0, 0), measured(0, 1, 1), measured(0, 0, 1)];
    runner.run(steps, &mut fake, &mut Log::default()).unwrap();
    let still: Vec<_> = fake.asked.iter().map(|(_, limits)| limits.still).collect();
    let wanted = Some(Duration::from_secs_f64(hang_threshold_s(1.0)));
    assert_eq!(still, [None, None, wanted, None], "known from system alone, and never of it");
    assert!(fake.asked.iter().all(|(_, limits)| limits.timeout == Duration::from_secs(5)));
}

#[test]
fn a_candidate_may_take_twenty_times_what_system_took() {
    let interruption = Interruption::default();
    let mut runner = runner(&interruption, Elimination::Never);
    runner.subjects[0].watches_standstill = true;
    let resident = Resident { peak_bytes: 1 << 30, ..Resident::default() };
    let took = || RunOutcome { user_s: 1.0, system_s: 0.5, resident, ..output(1) };
    let mut fake = Fake::always(&[&[took(), took()]]);
    let steps = [measured(0, 1, 0), measured(0, 0, 0), measured(0, 1, 1), measured(0, 0, 1)];
    runner.run(steps, &mut fake, &mut Log::default()).unwrap();
    let most: Vec<_> =
        fake.asked.iter().map(|(_, limits)| limits.most.map(|most| (most.cpu_s, most.bytes))).collect();
    let wanted = Some((30.0, 20.0 * f64::from(1 << 30)));
    assert_eq!(most, [None, None, wanted, None], "known from system alone, and never of it");
}

#[test]
fn memory_is_touched_by_what_the_runs_took() {
    let resident = Resident { peak_bytes: 1 << 30, ..Resident::default() };
    let large = RunOutcome { resident, ..output(1) };
    let (_, _, fake) = made(Elimination::Never, rounds(1), [same(large), same(output(1))]);
    let bytes: Vec<u64> = fake.asked.iter().map(|(_, limits)| limits.prefault_bytes).collect();
    assert_eq!(bytes, [enough_for(0), enough_for(1 << 30)]);
}

// ---- errors, and what is kept -----------------------------------------------------------------------------

fn no_memory() -> std::io::Error {
    std::io::Error::from_raw_os_error(nix::libc::ENOMEM)
}

#[test]
fn a_run_that_cannot_be_made_ends_the_session_and_keeps_what_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let interruption = Interruption::default();
    let mut runner = runner(&interruption, Elimination::Never);
    runner.journal = Some(Journal::open(&path).unwrap());
    let script = Script::from([Ok(output(1)), Err(no_memory())]);
    let mut fake = Fake { scripts: vec![vec![same(output(1)), script]], ..Fake::default() };
    let mut log = Log::default();
    let error = runner.run(rounds(3), &mut fake, &mut log).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    assert_eq!(log.runs.len(), 3);
    assert_eq!(runs_of(&path), log.runs);
}

#[test]
fn a_subject_that_cannot_be_run_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let interruption = Interruption::default();
    let subjects = ["p", "q"].map(|name| Subject::new(name, Timeout::ByFirstRun));
    let mut runner = Runner::new(names(), subjects.into(), rules(Elimination::Never), &interruption);
    runner.journal = Some(Journal::open(&path).unwrap());
    let scripts = vec![vec![Script::from([Err(no_memory())])], vec![same(output(1))]];
    let mut fake = Fake { scripts, ..Fake::default() };
    let mut log = Log { goes_on: true, ..Log::default() };
    let steps = [measured(0, 0, 0), measured(0, 0, 1), measured(1, 0, 0)];
    assert_eq!(runner.run(steps, &mut fake, &mut log).unwrap(), SessionEnd::Finished);
    assert_eq!((log.runs.len(), log.skipped.len(), log.left_out.len()), (1, 1, 1));
    let read = data::read(&std::fs::read_to_string(&path).unwrap());
    assert!(read.dropped.reasons()["p"].contains("memory"));
}

#[test]
fn an_observer_stops_the_session() {
    let interruption = Interruption::default();
    let mut fake = Fake::always(&[&[output(1), output(1)]]);
    let mut log = Log { stop_after: Some(3), ..Log::default() };
    let ended = runner(&interruption, Elimination::Never).run(rounds(9), &mut fake, &mut log);
    assert_eq!((ended.unwrap(), log.runs.len()), (SessionEnd::Stopped, 3));
}

#[test]
fn a_session_goes_on_after_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let interruption = Interruption::default();
    let session = |rounds: Vec<Step>| -> Vec<RawRun> {
        let mut runner = runner(&interruption, Elimination::Never);
        runner.journal = Some(Journal::open(&path).unwrap());
        runner.run(rounds, &mut Fake::always(&[&[output(1), output(1)]]), &mut Log::default()).unwrap();
        runs_of(&path)
    };
    assert_eq!(session(rounds(2)).len(), 4);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let last = vec![measured(0, 1, 1)];
    let keys: Vec<_> = session(last).iter().map(RawRun::key).collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    let read = data::read(&std::fs::read_to_string(&path).unwrap());
    assert!(read.unreadable.is_empty(), "{:?}", read.unreadable);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// `imas-lab suite run` of a program under two candidates: two measured rounds and a counted one.
#[test]
fn runs_of_the_suite_are_read() {
    let runs = imas_runs::journal::read_data(&[fixture("suite.jsonl")]).unwrap().runs;
    assert_eq!(runs.len(), 6);
    assert!(runs.iter().all(|run| run.ok && run.output.is_some() && run.load1.is_some()));
    let counted: Vec<_> = runs.iter().filter(|run| run.kind == RunKind::Counted).collect();
    assert!(counted.iter().all(|run| run.ns_per_op.unwrap() > 0.0 && run.heap_bytes.unwrap() > 0));
    assert!(runs[0].voluntary_switches > 0);
}

/// `imas bench --export-runs` of a command that writes something else under mimalloc.
#[test]
fn exported_runs_of_a_bench_are_read() {
    let data = imas_runs::journal::read_data(&[fixture("bench.jsonl")]).unwrap();
    assert_eq!((data.headers.len(), data.runs.len(), data.unreadable.len()), (1, 6, 0));
    let rejected: Vec<_> = data.runs.iter().filter(|run| !run.ok).collect();
    assert!(rejected.iter().all(|run| run.candidate == "mimalloc" && run.why.as_deref() == Some("output")));
    assert_eq!(rejected.len(), 2);
}

/// A journal that today's program goes on with keeps every line of before.
#[test]
fn an_old_journal_is_appended_to() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let before = std::fs::read_to_string(fixture("suite.jsonl")).unwrap();
    std::fs::write(file.path(), &before).unwrap();
    let mut journal = Journal::open(file.path()).unwrap();
    let mut run = data::read(journal.text()).runs.remove(0);
    run.round = 9;
    journal.append(&run).unwrap();
    let after = std::fs::read_to_string(file.path()).unwrap();
    let added = after.strip_prefix(&before).unwrap();
    assert_eq!(Line::parse(added.trim_end()), Ok(Line::Run(Box::new(run))));
}
