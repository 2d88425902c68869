// SPDX-License-Identifier: Apache-2.0
//! The runs of `imas-lab study mobile`: sizes, benchmarks and the use case under each candidate, appended to
//! one file as they are made.

mod browser;
mod inputs;
mod machine_memory;
mod parts;
mod server;
mod session;
mod spoken;
mod start;
mod use_case;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_core::raw_runs::data::DataHeader;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::{self, Host, now_unix_s};
use imas_runs::interruption::Interruption;
use imas_runs::journal::Journal;
use imas_study::{MOBILE, MobileSample, StudyError, mobile_samples};

use crate::study_args::StudyArgs;
use imas_cli::message::Hinted;
use imas_engine::compared::{DefaultComparison, usable};
use imas_engine::context::Context;
use session::Session;

/// Candidates of the paper, in the order of its text, after `system`. A candidate that is not built here is
/// left out with a warning.
const CANDIDATES: [&str; 8] =
    ["system", "tlsf", "musl-mallocng", "musl-oldmalloc", "tcmalloc", "nedmalloc", "dlmalloc", "jemalloc"];
/// Seed of the orders: the figures do not depend on it.
const SEED: u64 = 1;

/// Name of the file in the folder of the study.
const FILE: &str = "mobile.jsonl";

/// Makes what is missing; the file of all samples.
pub(crate) fn run(args: &StudyArgs, context: &Context) -> Result<PathBuf> {
    let candidates = candidates(args, context)?;
    // Parts that cannot be run must be known before the first hour has passed.
    let parts = parts::available(args, context)?;
    // A preloaded path is looked up from the working directory of the program: it has to be absolute.
    let out = std::path::absolute(&args.out)?;
    let (mut journal, samples) = journal(&out, args.run.resume)?;
    journal.append(&header(&candidates)).with_context(|| journal.path().display().to_string())?;
    let path = journal.path().to_owned();
    let interruption = Interruption::watch()?;
    let work = tempfile::Builder::new().prefix("imas-mobile-").tempdir()?;
    let done = samples.iter().map(MobileSample::key).collect();
    let session = Session { args, context, candidates, parts, done, out, work: work.path().to_owned() };
    session.all(journal, &interruption)?;
    Ok(path)
}

/// The journal, and the samples that are in it.
fn journal(out: &Path, resume: bool) -> Result<(Journal, Vec<MobileSample>)> {
    let path = out.join(FILE);
    let opened = std::fs::create_dir_all(out).and_then(|()| Journal::open(&path));
    let journal = opened.map_err(|source| hinted(StudyError::Write { path: path.clone(), source }))?;
    let samples = mobile_samples(journal.text());
    if !samples.is_empty() && !resume {
        return Err(hinted(StudyError::HasSamples { path }));
    }
    Ok((journal, samples))
}

fn header(candidates: &[&CatalogueCandidate]) -> DataHeader {
    let versions = candidates.iter().map(|c| (c.name.clone(), imas_engine::candidates::version(c)));
    DataHeader {
        imas: MOBILE.to_owned(),
        schema: 1,
        began_unix_s: now_unix_s(),
        seed: SEED,
        host: serde_json::to_value(Host::now()).unwrap_or_default(),
        versions: versions.collect(),
        load1: host::load1(),
    }
}

/// Candidates that were asked for, with `system`, without those that cannot be used here.
fn candidates<'a>(args: &StudyArgs, context: &'a Context) -> Result<Vec<&'a CatalogueCandidate>> {
    let usable = usable(&args.run.with, DefaultComparison::These(&CANDIDATES), context)?;
    if usable.len() < 2 {
        return Err(Hinted::error(
            "there is nothing to compare with system",
            "'imas list' says which candidates can be used here; 'make allocators' builds them",
        ));
    }
    Ok(usable)
}

/// The error of a study, with its hint.
pub(crate) fn hinted(error: StudyError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => Hinted::error(error.to_string(), hint),
        None => error.into(),
    }
}
