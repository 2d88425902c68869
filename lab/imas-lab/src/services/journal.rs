// SPDX-License-Identifier: Apache-2.0
//! The journal of `imas-lab services`: lines of JSON, a header for each session and one for each run.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_cli::format::counted;
use imas_cli::message::Hinted;
use imas_linux::host::Host;
use imas_runs::journal::Journal;
use imas_runs::service::{Service, ServiceRun};
use serde::{Deserialize, Serialize};

/// First line of each session; a later reader needs the machine and the versions.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) imas: String,
    pub(super) schema: u32,
    pub(super) at_s: f64,
    pub(super) host: Host,
    pub(super) seed: u64,
    pub(super) candidates: Vec<(String, String)>,
    pub(super) services: Vec<Service>,
}

/// Opens the journal; with the runs that are in it.
pub(super) fn open(path: &Path, resume: bool) -> Result<(Journal, Vec<ServiceRun>)> {
    let runs = if path.exists() { read(path)? } else { Vec::new() };
    if !runs.is_empty() && !resume {
        return Err(Hinted::error(
            format!("{} has {} already", path.display(), counted(runs.len(), "run")),
            "add --resume to go on with it, or name another file",
        ));
    }
    let journal = Journal::open(path).with_context(|| path.display().to_string())?;
    Ok((journal, runs))
}

/// The runs of a journal; lines that are cut off or of another kind are left out.
pub(super) fn read(path: &Path) -> Result<Vec<ServiceRun>> {
    Ok(read_whole(path)?.runs)
}

/// A journal that is only read.
pub(super) struct ServiceJournal {
    pub(super) runs: Vec<ServiceRun>,
    /// The services with an allocator of their own, by the headers.
    pub(super) own_allocator: BTreeSet<String>,
}

/// The runs of a journal with what its headers say.
pub(super) fn read_whole(path: &Path) -> Result<ServiceJournal> {
    let text = imas_runs::packed::read(path).with_context(|| path.display().to_string())?;
    let run =
        |line: &str| serde_json::from_str::<ServiceRun>(line).ok().filter(|run| !run.candidate.is_empty());
    let headers = text.lines().filter_map(|line| serde_json::from_str::<Header>(line).ok());
    let own = headers.flat_map(|header| header.services).filter(|service| service.own_allocator);
    Ok(ServiceJournal {
        runs: text.lines().filter_map(run).collect(),
        own_allocator: own.map(|service| service.name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_journal_goes_on_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j.jsonl");
        let run =
            |round| ServiceRun { service: "s".into(), candidate: "c".into(), round, ..ServiceRun::default() };
        let (mut journal, runs) = open(&path, false).unwrap();
        assert_eq!(runs, []);
        journal.append_durably(&run(0)).unwrap();
        drop(journal);
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"service\":\"s\",\"cand").unwrap();
        assert!(open(&path, false).is_err(), "it has a run");
        let (mut journal, runs) = open(&path, true).unwrap();
        assert_eq!(runs, [run(0)], "what is not made again");
        journal.append_durably(&run(1)).unwrap();
        assert_eq!(read(&path).unwrap(), [run(0), run(1)]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 2 && text.ends_with('\n'), "the torn line is cut off: {text}");
    }

    /// What is shipped as a result was written by an older IMAS.
    #[test]
    fn the_published_runs_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let known = ["services.jsonl.gz", "services.jsonl"].map(|name| folder.join(name));
        let Some(file) = known.iter().find(|file| file.exists()) else {
            return imas_testing::skipped("results/ has no runs of services");
        };
        let runs = read(file).unwrap();
        assert!(runs.iter().any(|run| run.is_ok() && run.value("memory").is_some()), "{}", runs.len());
    }
}
