// SPDX-License-Identifier: Apache-2.0
//! A host: an imasd with its own store and folders, its agent, and a program that carries the stub.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use imas_core::sample::PageKind;
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::Index;
use imas_store::Store;
use imas_store::samples::StoredProgram;

use crate::agent::AgentProcess;
use crate::network::LONGEST_WAIT;
use crate::network::outside;
use crate::running::Running;

/// A program that gains clearly. glibc returns each large block to the kernel, mimalloc keeps it: a third less
/// CPU for five times the memory. So the objective is CPU time; by the balanced one `system` wins. It prints which
/// libraries of IMAS it has. With an argument it keeps running.
const PROGRAM: &str = "
import sys, time
for _ in range(80):
    block = b'x' * 40_000_000
    del block
print(sorted({line.split('/')[-1].strip() for line in open('/proc/self/maps') if '/imas/' in line}))
if sys.argv[1:]:
    time.sleep(300)
";
/// Trials are short, wait for nothing, and are judged by the same objective everywhere. A pick may cost ten times the
/// memory.
const SETTINGS: &str = "worth_cpu_s = 0.0
worth_life_s = 0.1
candidates = [\"jemalloc\", \"mimalloc\"]
[overrides]
objective = \"cpu\"
max_memory = 9.0
[fleet]
enabled = true
turn_s = 5.0
";

/// One host; everything of it ends with it.
pub(crate) struct ImasHost {
    _daemon: Option<Running>,
    pub(crate) agent: AgentProcess,
    lib: PathBuf,
    folder: tempfile::TempDir,
}

impl ImasHost {
    /// Starts a host: its folders, its agent by this command, and its imasd.
    pub(crate) fn start(imasd: &Path, agent: Command, settings: &Path) -> Result<Self> {
        let lib = std::fs::canonicalize("build/lib/imas").context("build/lib/imas: run 'make build'")?;
        // Pages belong on tmpfs.
        let folder = tempfile::Builder::new().prefix("imas-fleet-test-").tempdir_in("/dev/shm")?;
        for name in ["run", "db", "exchange"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let exchange = folder.path().join("exchange");
        let text = format!("{SETTINGS}exchange = \"{}\"\n", exchange.display());
        std::fs::write(folder.path().join("imasd.toml"), text)?;
        std::fs::write(folder.path().join("program.py"), PROGRAM)?;
        let agent = AgentProcess::start_at(agent, settings, &exchange)?;
        let mut host = Self { _daemon: None, agent, lib, folder };
        host._daemon = Some(Running(host.imasd(imasd)?.spawn().context("imasd: run 'make build'")?));
        host.wait("imasd serves", || Ok(host.path("run/state/status.json").exists()))?;
        Ok(host)
    }

    fn imasd(&self, imasd: &Path) -> Result<Command> {
        let mut command = outside(imasd);
        command.args(["--user", "--retest", "0", "--run-dir"]).arg(self.path("run"));
        command.arg("--store").arg(self.store_path()).arg("--config").arg(self.path("imasd.toml"));
        command.arg("--lib-dir").arg(&self.lib).env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.path("log"))?);
        Ok(command)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store_path(&self) -> PathBuf {
        self.path("db/imas.db")
    }

    fn store(&self) -> Result<Store> {
        Ok(Store::open(&self.store_path())?)
    }

    /// Output of the program: the libraries that it has.
    pub(crate) fn run(&self) -> Result<String> {
        let output = self.command()?.output()?;
        ensure!(output.status.success(), "the program failed: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self) -> Result<Command> {
        // The interpreter itself, not a shim in front of it.
        let python = std::fs::canonicalize("/usr/bin/python3").context("python3 is missing")?;
        let mut command = outside(python);
        command.arg(self.path("program.py")).stdin(Stdio::null());
        command.env("LD_PRELOAD", self.lib.join("libimas-preload.so")).env("IMAS_RUN", self.path("run"));
        Ok(command)
    }

    /// Starts the program for the first time, until imasd knows it.
    pub(crate) fn notice(&self) -> Result<StoredProgram> {
        let mut child = self.command()?.arg("stay").stdout(Stdio::null()).spawn()?;
        let known = self.wait("the program is known", || Ok(self.program()?.is_some()));
        child.kill()?;
        child.wait()?;
        known?;
        self.program()?.context("the program is gone")
    }

    fn program(&self) -> Result<Option<StoredProgram>> {
        let script = self.path("program.py").to_string_lossy().into_owned();
        Ok(self.store()?.programs()?.into_iter().find(|one| one.detail == script || one.path == script))
    }

    /// Starts the program if a trial is on offer: whether its trial was stored. The offer may end with the host's turn
    /// before the start, and a busy imasd may miss so short a life.
    pub(crate) fn tries(&self, program: &StoredProgram) -> Result<bool> {
        let Some(offered) = self.offer(program)? else { return Ok(false) };
        let before = self.trials(program)?;
        self.run()?;
        let mut is_stored = false;
        self.wait("the trial is stored, or another one is on offer", || {
            is_stored = self.trials(program)? > before;
            Ok(is_stored || self.offer(program)? != Some(offered))
        })?;
        Ok(is_stored)
    }

    /// Trials in the store, without the program's production starts.
    pub(crate) fn trials(&self, program: &StoredProgram) -> Result<usize> {
        let stored = self.store()?.trials(program.id)?;
        Ok(stored.iter().filter(|one| one.sample.kind == PageKind::Trial).count())
    }

    /// The token of the trial on offer.
    fn offer(&self, program: &StoredProgram) -> Result<Option<u64>> {
        let id = u64::try_from(program.id)?;
        let index = self.index()?;
        let entry = index.entries().find(|entry| entry.program_id == id && entry.trial_candidate != 0);
        Ok(entry.map(|entry| entry.trial_token))
    }

    /// Whether the next start is a production start under this candidate.
    pub(crate) fn starts_under(&self, program: &StoredProgram, candidate: &str) -> Result<bool> {
        Ok(self.offer(program)?.is_none() && self.production(program)? == self.id_of(candidate)?)
    }

    /// The candidate of a production start, 1 for `system`.
    fn production(&self, program: &StoredProgram) -> Result<u16> {
        let id = u64::try_from(program.id)?;
        let index = self.index()?;
        Ok(index.entries().find(|entry| entry.program_id == id).map_or(1, |entry| entry.candidate))
    }

    fn index(&self) -> Result<Index> {
        Ok(Index::read(&self.path("run/state/index"))?)
    }

    fn id_of(&self, candidate: &str) -> Result<u16> {
        let table = CatalogueTable::read(&self.path("run/catalogue"))?;
        table.id_of(candidate).with_context(|| format!("{candidate} is not in the catalogue"))
    }

    /// Waits until something is true.
    pub(crate) fn wait(&self, what: &str, holds: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait_for(what, LONGEST_WAIT, holds)
    }

    /// Waits until something is true, for `patience` at most.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        patience: Duration,
        mut holds: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + patience;
        while !holds()? {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            ensure!(Instant::now() < end, "timed out: {what}\n{}\n{:?}", log(), self.agent.record());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
