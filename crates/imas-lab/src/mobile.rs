// SPDX-License-Identifier: Apache-2.0
//! The runs of `imas-lab study mobile`: sizes, benchmarks and the use case under each candidate, appended to one file as they are made.

mod browser;
mod inputs;
mod parts;
mod server;
mod session;
mod spoken;
mod start;
mod use_case;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use imas_linux::catalogue::Candidate;
use imas_linux::clock::now_unix_s;
use imas_linux::host::Host;
use imas_linux::{conditions, measure};
use imas_study::{MobileHeader, MobileRecord};

use crate::hint::hinted;
use crate::study_args::MobileArgs;
use imas_engine::context::Context;
use imas_report::message::{self, Hinted};
use session::Session;

/// Those of the paper, in the order of its text, beside `system`; what is not built here is left out with a word.
const CANDIDATES: [&str; 8] =
    ["system", "tlsf", "musl-mallocng", "musl-oldmalloc", "tcmalloc", "nedmalloc", "dlmalloc", "jemalloc"];
/// Seed of the orders: the figures do not depend on it.
const SEED: u64 = 1;

/// Makes what is missing; the file of all samples.
pub(crate) fn run(args: &MobileArgs, out: &std::path::Path, context: &Context) -> Result<PathBuf> {
    let candidates = candidates(args, context)?;
    // What cannot be run must be known before the first hour has passed.
    let parts = parts::available(args, context)?;
    // A preloaded path is looked up from the working directory of the program: it has to be absolute.
    let out = std::path::absolute(out)?;
    let (mut record, samples) = MobileRecord::open(&out, args.resume).map_err(hinted)?;
    record.append(&header(&candidates)).map_err(hinted)?;
    measure::adopt_orphans()?;
    let work = tempfile::Builder::new().prefix("imas-mobile-").tempdir()?;
    end_children_with_us(work.path().to_owned())?;
    let done: BTreeSet<_> = samples.iter().map(imas_study::MobileSample::key).collect();
    let path = record.path().to_owned();
    Session { args, context, candidates, parts, record, done, out, work: work.path().to_owned() }.all()?;
    Ok(path)
}

fn header(candidates: &[&Candidate]) -> MobileHeader {
    let versions = candidates.iter().map(|c| (c.name.clone(), imas_engine::candidates::version(c)));
    MobileHeader {
        imas: "mobile".to_owned(),
        schema: 1,
        began_unix_s: now_unix_s(),
        seed: SEED,
        host: serde_json::to_value(Host::now()).unwrap_or_default(),
        versions: versions.collect(),
        load1: conditions::load1(),
    }
}

/// `system` and what was asked for, without those that cannot be used here.
fn candidates<'a>(args: &MobileArgs, context: &'a Context) -> Result<Vec<&'a Candidate>> {
    for name in &args.with {
        context.candidate(name)?;
    }
    let store = context.open_store().ok(); // only a cache here
    let mut names: Vec<&str> = args.with.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = CANDIDATES.to_vec();
    }
    if !names.contains(&imas_linux::catalogue::SYSTEM) {
        names.insert(0, imas_linux::catalogue::SYSTEM);
    }
    let mut usable: Vec<&Candidate> = Vec::new();
    for name in names {
        let Some(candidate) = context.catalogue.find(name) else {
            message::warning(&format!("{name} is left out: it is not in the catalogue"));
            continue;
        };
        match context.obstacle(candidate, store.as_ref()) {
            Some(why) => message::warning(&format!("{name} is left out: {why}")),
            None if usable.iter().any(|known| known.name == candidate.name) => (),
            None => usable.push(candidate),
        }
    }
    if usable.len() < 2 {
        return Err(Hinted::error(
            "there is nothing to compare with system",
            "'imas list' says which candidates can be used here; 'make allocators' builds them",
        ));
    }
    Ok(usable)
}

/// A browser must not go on when we are told to end, nor its profile stay.
fn end_children_with_us(work: PathBuf) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            measure::kill_descendants();
            let _ = std::fs::remove_dir_all(&work); // one that is still ending may write into it
            measure::kill_descendants();
            message::say("imas: interrupted; every finished sample is kept, --resume goes on");
            #[expect(
                clippy::exit,
                reason = "the thread that measures waits for children and cannot be asked"
            )]
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
