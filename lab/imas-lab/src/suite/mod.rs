// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite`: real programs with real input, measured under every candidate.

pub(crate) mod fit;
pub(crate) mod install;
mod listing;
mod measured;
pub(crate) mod once;
mod pack;
mod packed;
mod progress;
pub(crate) mod session;
pub(crate) mod sessions;
mod show;
mod watcher;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_suite::{Place, Set, Suite, SuiteError};

use crate::study_args::{SuiteAction, SuitePlaces, SuiteSet};
use imas_cli::message::Hinted;
use imas_engine::context::Context;
use imas_engine::flags::Places;
use imas_engine::folders::{check_place, xdg};

/// The file of raw runs in its folder.
pub(crate) const FILE: &str = "runs.jsonl";

pub(crate) fn run(action: &SuiteAction, places: &Places) -> Result<ExitCode> {
    match action {
        SuiteAction::List(args) => listing::run(args, &Context::new(places)?),
        SuiteAction::Run(args) => session::run(args, &Context::new(places)?),
        SuiteAction::Show(args) => show::run(args),
        SuiteAction::Pack(args) => pack::run(args),
    }
}

/// The suite's folder in the installation: `suite.toml`, `input/` with the generators, `bin/` with programs
/// of our own.
fn folder(context: &Context) -> PathBuf {
    context.lib_dir.join("workloads")
}

pub(crate) fn read(context: &Context) -> Result<Suite> {
    let path = folder(context).join("suite.toml");
    if !path.is_file() {
        return Err(Hinted::error(
            format!("{} is missing", path.display()),
            "run 'make workloads' in the source tree, or install again",
        ));
    }
    Suite::read(&path).map_err(hinted)
}

pub(crate) fn place(cache: Option<&Path>, context: &Context) -> Result<Place> {
    let folder_of = || xdg("XDG_CACHE_HOME", ".cache").map(|cache| cache.join("imas/suite"));
    let root = cache.map(Path::to_owned).or_else(folder_of).ok_or_else(|| {
        Hinted::error("no home directory for the suite's inputs", "name a folder with --cache DIR")
    })?;
    let root = std::path::absolute(root)?;
    check_place(&root)?; // it has programs that are run
    Place::new(&root, &folder(context)).map_err(hinted)
}

fn out(places: &SuitePlaces) -> Result<PathBuf> {
    let folder = || xdg("XDG_DATA_HOME", ".local/share").map(|data| data.join("imas/suite"));
    places.out.clone().or_else(folder).ok_or_else(|| {
        Hinted::error("no home directory for the suite's runs", "name a folder with --out DIR")
    })
}

pub(crate) fn set(set: SuiteSet) -> Set {
    match set {
        SuiteSet::Quick => Set::Quick,
        SuiteSet::Data => Set::Data,
        SuiteSet::Study => Set::Study,
        SuiteSet::Runtimes => Set::Runtimes,
        SuiteSet::Full => Set::Full,
    }
}

pub(crate) fn hinted(error: SuiteError) -> anyhow::Error {
    let hint = error.hint();
    Hinted::error(error.to_string(), hint)
}
