// SPDX-License-Identifier: Apache-2.0
//! What a bench of a server begins with: the options that have a meaning for it, the service with its limits, and the
//! folder that `imas bench` was called from, in which the server runs: what the runs leave there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_runs::service::{Service, ServiceError, ServiceFileError, ServiceLimits};

use crate::command_line::bench_args::{BenchArgs, OneCpuName, RunCount};

/// Options that have no meaning for a server must not look as if they had.
pub(super) fn refuse(args: &BenchArgs) -> Result<()> {
    if args.trials.is_some() {
        return Err(Hinted::error(
            "--trials is not for a server: it has no counted runs",
            "-n N is the number of rounds, with one run of each candidate",
        ));
    }
    let given = [
        ("--export-csv", args.exports.export_csv.is_some()),
        ("--export-markdown", args.exports.export_markdown.is_some()),
        ("--input", args.input.is_some()),
        ("--conclude", args.lines.conclude.is_some()),
        ("--shell", args.commands.shell.is_some()),
        ("--parameter-list", !args.commands.parameter_list.is_empty()),
        ("--parameter-scan", !args.commands.parameter_scan.is_empty()),
        ("--columns", !args.look.columns.is_empty()),
        ("--sort", args.look.sort.is_some()),
        ("--baseline", args.baseline.baseline.is_some()),
        ("--max-cpu", args.cost.max_cpu.is_some()),
        ("--max-memory", args.cost.max_memory.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Hinted::error(
            format!("{option} is not for a server"),
            "docs/services.md has the options of a server; --export-json has every run with all figures",
        ));
    }
    crate::measure::bench::export::check(args)
}

/// Limits of each run, from the options.
pub(super) fn limits(args: &BenchArgs) -> ServiceLimits {
    ServiceLimits {
        timeout: args.timeout.map(Duration::from_secs_f64),
        ignores_load_failure: args.ignore_failure,
        one_cpu: args.one_cpu == OneCpuName::Always,
    }
}

/// The service and the words of its command.
pub(super) fn definition(args: &BenchArgs) -> Result<(Service, Vec<String>)> {
    let from_file = args.server.service.as_deref().map(Service::read).transpose().map_err(file_error)?;
    let mut service = args.server.service(&args.lines, from_file);
    let typed: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words = if typed.is_empty() { service.words().map_err(definition_error)? } else { typed };
    if let Some(name) = &args.exports.name {
        service.name.clone_from(name);
    } else if service.name.is_empty() {
        let first = words.first().map(Path::new).and_then(Path::file_name);
        service.name = first.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    }
    service.check().map_err(definition_error)?;
    if args.runs == RunCount::Auto && args.server.cycles.is_none() {
        // Most of the noise lies between runs: shorter ones, and more of them.
        service.cycles = service.cycles.div_ceil(2);
    }
    Ok((service, words))
}

fn file_error(error: ServiceFileError) -> anyhow::Error {
    Hinted::error(
        error.to_string(),
        "docs/services.md has the keys of such a file, and lab/workloads/services/ in the source tree examples",
    )
}

pub(super) fn definition_error(why: String) -> anyhow::Error {
    Hinted::error(why, "docs/services.md says how a server is described")
}

pub(super) fn hinted(error: ServiceError) -> anyhow::Error {
    match error {
        ServiceError::Command(error) => error.into(),
        ServiceError::Setup { .. } => Hinted::error(error.to_string(), "run the line of --setup by hand"),
        other => definition_error(other.to_string()),
    }
}

/// Entries beyond this number are not looked at.
const MOST_ENTRIES: usize = 10_000;
/// Names that a note has at most.
const MOST_NAMED: usize = 3;

/// The caller's folder before the first run.
pub(super) struct CallerFolder {
    path: PathBuf,
    before: BTreeMap<OsString, Option<SystemTime>>,
}

impl CallerFolder {
    /// The folder as it is now.
    ///
    /// # Errors
    /// When there is none any more, as after `rmdir`.
    pub(super) fn now() -> Result<Self> {
        let path = std::env::current_dir().map_err(|error| {
            Hinted::error(
                format!("the server cannot run in this folder: {error}"),
                "go to a folder that exists, or give each run a fresh one with --fresh-folder",
            )
        })?;
        Ok(Self { before: entries(&path), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A note on what the runs made or changed here, but for the file `ours`: the second run did not begin like the
    /// first one.
    pub(super) fn left_behind(&self, ours: Option<&Path>) -> Option<String> {
        let ours = ours.and_then(Path::file_name);
        let is_new = |(name, changed): &(OsString, Option<SystemTime>)| {
            Some(name.as_os_str()) != ours && self.before.get(name) != Some(changed)
        };
        let new: Vec<OsString> =
            entries(&self.path).into_iter().filter(is_new).map(|(name, _)| name).collect();
        let named: Vec<String> = new.iter().take(MOST_NAMED).map(|name| text(name)).collect();
        let more = match new.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!new.is_empty()).then(|| {
            format!(
                "the runs wrote {}{more} in this folder, so a later one may not have begun like the first; \
                 --fresh-folder gives each run a folder of its own",
                named.join(", ")
            )
        })
    }
}

/// Names of a folder and when each was changed last. What cannot be read is not there.
fn entries(folder: &Path) -> BTreeMap<OsString, Option<SystemTime>> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_ENTRIES);
    let changed = |entry: &std::fs::DirEntry| entry.metadata().and_then(|it| it.modified()).ok();
    all.map(|entry| (entry.file_name(), changed(&entry))).collect()
}

fn text(name: &OsStr) -> String {
    imas_core::printable::text(&name.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

    use super::*;

    #[test]
    fn what_the_runs_write_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.ru"), "").unwrap();
        let caller = CallerFolder { path: folder.path().to_owned(), before: entries(folder.path()) };
        assert_eq!(caller.left_behind(None), None);
        std::fs::write(folder.path().join("raw.jsonl"), "").unwrap();
        assert_eq!(caller.left_behind(Some(Path::new("raw.jsonl"))), None);
        for name in ["a", "b", "dump.rdb", "z"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let note = caller.left_behind(Some(Path::new("raw.jsonl"))).unwrap();
        assert!(note.contains("wrote a, b, dump.rdb and 1 more in this folder"), "{note}");
    }
}
