// SPDX-License-Identifier: Apache-2.0
//! The folder of one search: `trace`, `points.jsonl`, `live.json`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use imas_runs::journal::Journal;
use imas_trace::file::TraceHeader;
use imas_tune::found::Evaluation;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::message::{self, Hinted};

/// The folder, which may be a temporary one.
pub(super) struct WorkFolder {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

/// First line of `points.jsonl`: of which trace the points are.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PointsHeader {
    imas: String,
    schema: u32,
    began_unix_s: f64,
    calls: u64,
}

/// The points that were replayed, in a file that is only appended to.
pub(super) struct PointsJournal {
    journal: Journal,
    pub(super) known: Vec<Evaluation>,
}

impl WorkFolder {
    pub(super) fn open(folder: Option<&Path>) -> Result<Self> {
        let Some(path) = folder else {
            let temporary = tempfile::Builder::new().prefix("imas-tune-").tempdir()?;
            return Ok(Self { path: temporary.path().to_owned(), temporary: Some(temporary) });
        };
        std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), temporary: None })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The trace of the command: that of an earlier session, or a new one.
    pub(super) fn recorded(
        &self,
        command: &[OsString],
        input: Option<&Path>,
        context: &Context,
    ) -> Result<PathBuf> {
        let trace = self.file("trace");
        if trace.exists() {
            message::say(&format!("imas: note: {} is there already and is used", trace.display()));
            return Ok(trace);
        }
        message::say("imas: recording one run");
        let mut record = itself(context)?;
        record.arg("record").arg("--out").arg(&trace).arg("--").args(command);
        // Standard output is for the result.
        record.stdin(standard_input(input)?).stdout(Stdio::null());
        let status = record.status().context("imas record")?;
        if !status.success() {
            let _ = std::fs::remove_file(&trace); // a trace of a failed run must not be used next time
            return Err(Hinted::error(
                format!("the command ended with {status} while it was recorded"),
                "check the command; 'imas record' shows what it prints",
            ));
        }
        Ok(trace)
    }

    /// The points of earlier sessions, and where new ones go.
    pub(super) fn points(&self, trace: &TraceHeader, calls: u64) -> Result<PointsJournal> {
        let file = self.file("points.jsonl");
        let named = || file.display().to_string();
        let mut journal = Journal::open(&file).with_context(named)?;
        let header =
            PointsHeader { imas: "tune".to_owned(), schema: 1, began_unix_s: trace.began_unix_s, calls };
        if journal.text().is_empty() {
            journal.append(&header).with_context(named)?;
            return Ok(PointsJournal { journal, known: vec![] });
        }
        let mut lines = journal.text().lines();
        let first = lines.next().and_then(|line| serde_json::from_str::<PointsHeader>(line).ok());
        if first.as_ref() != Some(&header) {
            return Err(Hinted::error(
                format!("{} holds the points of another trace", file.display()),
                "give another --folder, or remove this one",
            ));
        }
        let known = lines.map(serde_json::from_str).collect::<Result<_, _>>().with_context(named)?;
        Ok(PointsJournal { journal, known })
    }

    /// After a signal.
    pub(super) fn say_how_to_go_on(&self) {
        let hint = match &self.temporary {
            None => {
                format!("the points are kept: the same command with --folder {} goes on", self.path.display())
            }
            Some(_) => "nothing is kept; with --folder DIR a search can go on later".to_owned(),
        };
        message::say(&format!("imas: note: {hint}"));
    }
}

impl PointsJournal {
    pub(super) fn append(&mut self, evaluation: &Evaluation) -> Result<()> {
        let named = || self.journal.path().display().to_string();
        let named = named();
        self.journal.append(evaluation).with_context(|| named)
    }
}

fn standard_input(file: Option<&Path>) -> Result<Stdio> {
    let Some(file) = file else { return Ok(Stdio::null()) };
    Ok(std::fs::File::open(file).with_context(|| file.display().to_string())?.into())
}

/// This program, with the same libraries. The store is that of the environment or of a flag.
pub(super) fn itself(context: &Context) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's file")?);
    command.env("IMAS_LIB_DIR", &context.lib_dir);
    Ok(command)
}
