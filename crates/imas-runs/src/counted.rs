// SPDX-License-Identifier: Apache-2.0
//! The pages of one counted run: a private folder on tmpfs, one page per process of the tree.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_abi::page_kind;
use imas_core::Sample;
use imas_core::run::Curve;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::now_unix_s;
use imas_linux::ingest::{ExpectedPage, ParsedPage};
use imas_linux::page::{self, Ticket};
use imas_linux::program::Command;
use imas_linux::sampler::Watcher;

use crate::watch;

/// A private folder for the pages of one counted run.
#[derive(Debug)]
pub struct Folder {
    folder: tempfile::TempDir,
    watch: Watcher<Curve>,
}

/// Results of a counted run.
#[derive(Debug)]
pub struct CountedRun {
    /// The figures of the whole tree.
    pub sample: Sample,
    /// Memory of the program through the run; None when the run was over before anybody looked.
    pub curve: Option<Curve>,
}

impl Folder {
    /// Makes the folder, and begins to watch the memory of the processes that have a page in it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new() -> Result<Self> {
        let parent = page::folder()?;
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(parent);
        let folder = folder.context("a folder for trial pages")?;
        Ok(Self { watch: watch::start(folder.path()), folder })
    }

    /// The page from which the processes of the tree copy user, program and candidate. Its pid is ours, which
    /// none of them has: each makes its own page.
    ///
    /// # Errors
    /// When the page cannot be made.
    pub fn first_page(
        &self,
        command: &Command,
        candidate: &CatalogueCandidate,
        build_id: &str,
    ) -> Result<PathBuf> {
        let ticket = Ticket {
            kind: page_kind::TRIAL,
            trial_id: &page::new_trial_id()?,
            candidate: &candidate.name,
            served: "",
            program: &command.program,
            build_id,
            pid: std::process::id(),
        };
        Ok(page::create(self.folder.path(), &ticket)?)
    }

    /// Results of the run, once all of its processes have ended.
    ///
    /// # Errors
    /// When a page cannot be read, or no process left one.
    pub fn counted(self) -> Result<CountedRun> {
        let curve = self.watch.stop().filter(|curve| !curve.ms.is_empty());
        Ok(CountedRun { sample: sample(self.folder.path())?, curve })
    }
}

fn sample(folder: &Path) -> Result<Sample> {
    let expected = ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: now_unix_s() };
    let me = std::process::id();
    let mut pages = Vec::new();
    for path in page::list(folder)? {
        let page = imas_linux::ingest::read_page_file(&path, &expected)
            .with_context(|| path.display().to_string())?;
        if page.pid != me {
            pages.push(page.of_ended(None));
        }
    }
    // The first process is the root of the tree; the others follow in the order they began.
    // Within a clock tick the time of its page says so, and not its number: those begin anew at 32768.
    pages.sort_by(|a: &ParsedPage, b: &ParsedPage| {
        let by_page = a.made_unix_s.total_cmp(&b.made_unix_s);
        a.process_start_ticks.cmp(&b.process_start_ticks).then(by_page).then(a.pid.cmp(&b.pid))
    });
    imas_linux::ingest::merge(&pages).context("no process of the tree was counted")
}
