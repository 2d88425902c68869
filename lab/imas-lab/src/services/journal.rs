// SPDX-License-Identifier: Apache-2.0
//! The journal of `imas-lab services`: lines of JSON, a header for each session and one for each run.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::format::counted;
use imas_cli::message::Hinted;
use imas_core::raw_runs::data::Line;
use imas_core::run::{RawRun, RunKind};
use imas_linux::host::Host;
use imas_runs::journal::Journal;
use imas_runs::service::Service;
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

/// Opens the journal for this session alone; with the runs that are in it.
pub(super) fn open(path: &Path, resume: bool) -> Result<(Journal, Vec<RawRun>)> {
    let Some(journal) = Journal::open_alone(path).with_context(|| path.display().to_string())? else {
        return Err(Hinted::error(
            format!("{}: another 'imas-lab services run' is at work there", path.display()),
            "wait until it has ended, or name another file with --out",
        ));
    };
    let runs = of_all_kinds(read_text(journal.text()));
    if !runs.is_empty() && !resume {
        return Err(Hinted::error(
            format!("{} has {} already", path.display(), counted(runs.len(), "run")),
            "add --resume to go on with it, or name another file",
        ));
    }
    Ok((journal, runs))
}

/// All runs of a journal, none where there is no such file.
pub(super) fn read_if_there(path: &Path) -> Result<Vec<RawRun>> {
    Ok(if path.exists() { of_all_kinds(read_whole(path)?) } else { vec![] })
}

/// Measured and counted runs.
fn of_all_kinds(journal: ServiceJournal) -> Vec<RawRun> {
    [journal.runs, journal.counted].concat()
}

/// The measured runs of a journal; lines that are cut off or of another kind are left out.
pub(super) fn read(path: &Path) -> Result<Vec<RawRun>> {
    Ok(read_whole(path)?.runs)
}

/// A journal that is only read.
#[derive(Default)]
pub(super) struct ServiceJournal {
    /// Measured runs.
    pub(super) runs: Vec<RawRun>,
    /// Counted runs, whose figures are not compared.
    pub(super) counted: Vec<RawRun>,
    /// The services with an allocator of their own, by the headers.
    pub(super) own_allocator: BTreeSet<String>,
}

/// The runs of a journal with what its headers say.
pub(super) fn read_whole(path: &Path) -> Result<ServiceJournal> {
    let text = imas_runs::journal::read_text(path).with_context(|| path.display().to_string())?;
    Ok(read_text(&text))
}

fn read_text(text: &str) -> ServiceJournal {
    let run = |line: &str| match Line::parse(line) {
        Ok(Line::Run(run)) => Some(*run),
        _ => None,
    };
    let headers = text.lines().filter_map(|line| serde_json::from_str::<Header>(line).ok());
    let own = headers.flat_map(|header| header.services).filter(|service| service.own_allocator);
    let all = text.lines().filter_map(run);
    let (runs, counted) = all.partition(|run| run.kind == RunKind::Measured);
    ServiceJournal { runs, counted, own_allocator: own.map(|service| service.name).collect() }
}

/// The runs of several journals. Rounds of a service that is in more than one are numbered on.
pub(super) fn read_several(paths: &[PathBuf]) -> Result<ServiceJournal> {
    let mut all = ServiceJournal::default();
    for path in paths {
        let mut next = read_whole(path)?;
        for run in &mut next.runs {
            let known = all.runs.iter().filter(|known| known.program == run.program);
            run.round += known.map(|known| known.round + 1).max().unwrap_or(0);
        }
        all.runs.append(&mut next.runs);
        all.counted.append(&mut next.counted);
        all.own_allocator.append(&mut next.own_allocator);
    }
    Ok(all)
}

/// Appends a line durably. A run takes minutes: it is on the disk before the next begins. Pipes and terminals
/// have nothing to wait for.
pub(super) fn append(journal: &mut Journal, line: &impl Serialize) -> Result<()> {
    let mut appended = journal.append(line);
    if appended.is_ok() && journal.path().is_file() {
        appended = File::open(journal.path()).and_then(|file| file.sync_data());
    }
    appended.with_context(|| journal.path().display().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    use imas_core::server_run::work::memory_by_work;

    use super::*;

    /// The journal once it is free: a child of another test inherits the open file, and the lock until its exec.
    fn resumed(path: &Path) -> (Journal, Vec<RawRun>) {
        let (start, limit) = (Instant::now(), imas_testing::deadline(60));
        loop {
            match open(path, true) {
                Ok(opened) => return opened,
                Err(error) => assert!(start.elapsed() < limit, "{error:#}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_journal_goes_on_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j.jsonl");
        let run = |round| RawRun { program: "s".into(), candidate: "c".into(), round, ..RawRun::default() };
        let (mut journal, runs) = open(&path, false).unwrap();
        assert_eq!(runs, []);
        append(&mut journal, &run(0)).unwrap();
        let busy = format!("{:#}", open(&path, true).unwrap_err());
        assert!(busy.contains("another 'imas-lab services run' is at work there"), "{busy}");
        drop(journal);
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"service\":\"s\",\"cand\xc3").unwrap();
        assert!(open(&path, false).is_err(), "it has a run");
        let (mut journal, runs) = resumed(&path);
        assert_eq!(runs, [run(0)], "what is not made again");
        append(&mut journal, &run(1)).unwrap();
        assert_eq!(read(&path).unwrap(), [run(0), run(1)]);
        let twice = read_several(&[path.clone(), path.clone()]).unwrap().runs;
        assert_eq!(twice.iter().map(|run| run.round).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 2 && text.ends_with('\n'), "the torn line is cut off: {text}");
    }

    /// Runs that are shipped as a result were written by an older IMAS: every line is read, and its memory is
    /// by work.
    #[test]
    fn every_published_run_is_read() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (file, lines) in [("results/services.jsonl", 890), ("data/services-first.jsonl", 23)] {
            let runs = read(&lab.join(file)).unwrap();
            assert_eq!(runs.len(), lines, "{file}");
            for run in runs.iter().filter(|run| run.ok) {
                let memory = run.value("memory").unwrap();
                assert_eq!(
                    memory_by_work(run.of_server()),
                    Some(memory),
                    "{} {}",
                    run.program,
                    run.candidate
                );
                assert!(run.cpu_s() > 0.0 && run.wall_s > 0.0 && run.peak_bytes as f64 >= 0.9 * memory);
                let line = serde_json::to_string(run).unwrap();
                assert_eq!(Line::parse(&line), Ok(Line::Run(Box::new(run.clone()))), "the form of today");
            }
        }
        let runs = read(&lab.join("results/services.jsonl")).unwrap();
        assert!(runs.iter().any(|run| run.ok && run.value("memory").is_some()), "{}", runs.len());
    }
}
