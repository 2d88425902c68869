// SPDX-License-Identifier: Apache-2.0
//! The predictions of `imas-lab study replay`: programs of the suite, recorded once and replayed under each
//! candidate, appended to one file as they are made.

mod session;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_core::raw_runs::data::{Data, NotRun};
use imas_engine::compared::{ComparedCandidate, DefaultComparison, compared};
use imas_engine::context::Context;
use imas_engine::flags::Places;
use imas_linux::host::{self, Host, now_unix_s};
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_study::predictions::{Predictions, REPLAY, ReplayHeader};
use imas_study::{ReplayJudgement, Study, StudyError};
use imas_suite::{Suite, SuiteProgram};

use crate::mobile::hinted;
use crate::study_args::{StudyArgs, SuitePlaces, SuiteRunArgs, SuiteSet};
use crate::suite;
use session::Session;

/// Seed of all orders.
const SEED: u64 = 1;
/// Name of the file in the folder of the study.
const FILE: &str = "replay.jsonl";

/// The study: predictions are made unless `--data` has them, then live rounds if any are asked for.
pub(crate) fn study(args: &StudyArgs, places: &Places) -> Result<Study> {
    if args.replay.live.is_empty() && args.run.rounds.is_none() {
        return Err(Hinted::error(
            "study replay needs live runs to judge the predictions by",
            "name files of raw runs with --live, or have rounds made with --rounds N",
        ));
    }
    let (mut data, mut live) = (args.data.clone(), args.replay.live.clone());
    if data.is_empty() {
        let context = Context::new(places)?;
        let known = imas_runs::journal::read_data(&live)?;
        data.push(run(args, &known, &context)?);
        if let Some(rounds) = args.run.rounds {
            live.push(live_rounds(args, &known, rounds, &context)?);
        }
    }
    let judgement = ReplayJudgement::read(&data, &live).map_err(hinted)?;
    if let Some(file) = &args.replay.reliability {
        write_reliability(&judgement, file)?;
    }
    Ok(judgement.study())
}

fn write_reliability(judgement: &ReplayJudgement, file: &Path) -> Result<()> {
    let table = serde_json::to_string_pretty(&judgement.reliability())?;
    imas_cli::output_file::write(file, (table + "\n").as_bytes()).with_context(|| file.display().to_string())
}

/// Live rounds of the programs that have predictions, by the runner of `suite run`; the file of raw runs.
fn live_rounds(args: &StudyArgs, known: &Data, rounds: u32, context: &Context) -> Result<PathBuf> {
    let suite = suite::read(context)?;
    let made = journal(&args.out, true)?.1;
    let has_predictions =
        |program: &&SuiteProgram| made.lines.iter().any(|line| line.program == program.name);
    let programs = programs(args, &suite, known)?.into_iter().filter(has_predictions);
    let candidates = candidates(args, known, context)?;
    let run = SuiteRunArgs {
        names: programs.map(|program| program.name.clone()).collect(),
        set: SuiteSet::Study,
        with: candidates.iter().map(|one| one.candidate.name.clone()).collect(),
        rounds,
        counted: 0,
        resume: args.run.resume,
        install: false,
        timeout: None,
        time_limit: args.replay.limit,
        seed: SEED,
        places: SuitePlaces { out: Some(args.out.clone()), cache: args.replay.cache.clone() },
        json: args.json,
    };
    suite::session::measure(&run, context)
}

/// Makes what is missing; the file of all predictions. Programs and candidates come from the live runs,
/// unless others are asked for.
pub(crate) fn run(args: &StudyArgs, live: &Data, context: &Context) -> Result<PathBuf> {
    let suite = suite::read(context)?;
    let place = suite::place(args.replay.cache.as_deref(), context)?;
    let programs = programs(args, &suite, live)?;
    let candidates = candidates(args, live, context)?;
    let (mut journal, earlier) = journal(&args.out, args.run.resume)?;
    let _alone = place.lock().map_err(suite::hinted)?;
    suite::session::end(&place);
    suite::install::missing(&suite, &programs, &place, args.run.install)?;
    let interruption = Interruption::watch()?;
    let (measurable, mut not_run) = suite::session::usable(&programs, &place);
    let mut usable = vec![];
    for (program, measurable) in measurable {
        match measurable.executable.unfit {
            None => usable.push((program, measurable.executable.build_id)),
            Some(why) => not_run.push((program.name.clone(), why)),
        }
    }
    write(&mut journal, &header(args, &candidates))?;
    for (left_out, why) in not_run {
        write(&mut journal, &NotRun { left_out, why, at_s: now_unix_s() })?;
    }
    let path = journal.path().to_owned();
    let session = Session {
        args: &args.replay,
        context,
        suite: &suite,
        place: &place,
        candidates,
        programs: usable,
        earlier,
        interruption: &interruption,
    };
    session.all(&mut journal)?;
    Ok(path)
}

/// The journal, and the predictions that are in it.
fn journal(out: &Path, resume: bool) -> Result<(Journal, Predictions)> {
    let path = out.join(FILE);
    let opened = std::fs::create_dir_all(out).and_then(|()| Journal::open(&path));
    let journal = opened.map_err(|source| hinted(StudyError::Write { path: path.clone(), source }))?;
    let predictions = Predictions::of(journal.text());
    if !predictions.lines.is_empty() && !resume {
        return Err(hinted(StudyError::HasSamples { path }));
    }
    Ok((journal, predictions))
}

fn write(journal: &mut Journal, line: &impl serde::Serialize) -> Result<()> {
    journal.append(line).with_context(|| journal.path().display().to_string())
}

fn header(args: &StudyArgs, candidates: &[ComparedCandidate<'_>]) -> ReplayHeader {
    let version = |one: &ComparedCandidate<'_>| {
        (one.candidate.name.clone(), imas_engine::candidates::version(one.candidate))
    };
    ReplayHeader {
        imas: REPLAY.to_owned(),
        schema: 1,
        began_unix_s: now_unix_s(),
        host: serde_json::to_value(Host::now()).unwrap_or_default(),
        versions: candidates.iter().map(version).collect(),
        load1: host::load1(),
        replays: args.replay.replays,
        note: args.replay.note.clone(),
    }
}

fn programs<'a>(args: &StudyArgs, suite: &'a Suite, live: &Data) -> Result<Vec<&'a SuiteProgram>> {
    let asked = &args.replay.only;
    if !asked.is_empty() {
        let found: Result<Vec<_>, _> = asked.iter().map(|name| suite.find(name)).collect();
        return found.map_err(suite::hinted);
    }
    if let Some(set) = args.replay.set {
        return Ok(suite.set(suite::set(set)).collect());
    }
    let has_runs = |program: &&SuiteProgram| live.runs.iter().any(|run| run.program == program.name);
    let found: Vec<_> = suite.programs.iter().filter(has_runs).collect();
    if found.is_empty() {
        return Ok(suite.set(suite::set(SuiteSet::Study)).collect());
    }
    Ok(found)
}

/// `system` and what is compared with it, without those that cannot be used here.
fn candidates<'a>(args: &StudyArgs, live: &Data, context: &'a Context) -> Result<Vec<ComparedCandidate<'a>>> {
    let names: BTreeSet<&str> = live.runs.iter().map(|run| run.candidate.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let default = match names.is_empty() {
        true => DefaultComparison::DefaultSet,
        false => DefaultComparison::These(&names),
    };
    let store = context.open_store().ok(); // only a cache here
    let mut all = compared(&args.run.with, default, context, store.as_ref())?;
    all.retain(|one| {
        if let Some(why) = &one.obstacle {
            message::warning(&format!("{} is left out: {why}", one.candidate.name));
        }
        one.obstacle.is_none()
    });
    if all.len() < 2 {
        return Err(Hinted::error(
            "there is nothing to compare with system",
            "'imas list' says which candidates can be used here; 'make allocators' builds them",
        ));
    }
    Ok(all)
}
