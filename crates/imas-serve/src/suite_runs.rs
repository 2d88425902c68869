// SPDX-License-Identifier: Apache-2.0
//! The runs of the suite.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use imas_report::html::ProgramSection;

/// Where the runs are installed, below the folder of the libraries.
const PLACE: &str = "results/suite.jsonl.gz";

/// The runs, read when they are first asked for.
#[derive(Debug)]
pub(crate) struct Suite {
    file: Option<PathBuf>,
    programs: OnceLock<Result<BTreeMap<String, ProgramSection>, String>>,
}

impl Suite {
    /// The suite of the file that was named, else of the installed file.
    pub(crate) fn new(named: Option<PathBuf>, lib_dir: &Path) -> Self {
        let installed = || Some(lib_dir.join(PLACE)).filter(|file| file.is_file());
        Self { file: named.or_else(installed), programs: OnceLock::new() }
    }

    /// Whether there is anything to show.
    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The programs by name, or why they cannot be read; None without a file.
    pub(crate) fn programs(&self) -> Option<Result<&BTreeMap<String, ProgramSection>, &str>> {
        let file = self.file.as_ref()?;
        let read = self.programs.get_or_init(|| read(file).map_err(|error| format!("{error:#}")));
        Some(read.as_ref().map_err(String::as_str))
    }
}

fn read(file: &Path) -> anyhow::Result<BTreeMap<String, ProgramSection>> {
    let data = imas_runs::data::read_data(&[file.to_owned()])?;
    let mut names: Vec<&str> = data.runs.iter().map(|run| run.program.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names
        .into_iter()
        .map(|name| (name.to_owned(), imas_engine::section::runs_section(&data, name)))
        .collect())
}
