// SPDX-License-Identifier: Apache-2.0
//! `imas fleet agent` as a process with an exchange folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use imas_exchange::AgentRecord;
use imas_exchange::exchange::Exchange;
use rustix::process::{Pid, Signal, kill_process};

use crate::network::LONGEST_WAIT;
use crate::running::Running;

/// An agent's process, which ends when this is dropped.
pub(crate) struct AgentProcess {
    child: Running,
    pub(crate) exchange: Exchange,
    folder: PathBuf,
    /// The exchange folder, where nobody else made it.
    made: Option<tempfile::TempDir>,
}

impl AgentProcess {
    pub(crate) fn start(program: &Path, settings: &Path) -> Result<Self> {
        Self::start_by(Command::new(program), settings)
    }

    /// Starts an agent by a command that starts `imas-fleet`, perhaps in a namespace.
    pub(crate) fn start_by(command: Command, settings: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut agent = Self::start_at(command, settings, folder.path())?;
        agent.made = Some(folder);
        Ok(agent)
    }

    /// Starts an agent with an exchange folder of somebody else.
    pub(crate) fn start_at(mut command: Command, settings: &Path, folder: &Path) -> Result<Self> {
        let exchange = Exchange::new(folder);
        exchange.prepare()?;
        command.args(["agent", "--settings"]).arg(settings).arg("--exchange").arg(folder);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("imas-fleet")?;
        Ok(Self { child: Running(child), exchange, folder: folder.to_owned(), made: None })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn record(&self) -> AgentRecord {
        let bytes = std::fs::read(self.file("agent.json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Waits until the agent's record is as wanted.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is: impl Fn(&AgentRecord) -> bool,
    ) -> Result<AgentRecord> {
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let record = self.record();
            if is(&record) {
                return Ok(record);
            }
            if let Some(status) = self.child.0.try_wait()? {
                bail!("the agent ended: {status}");
            }
            if Instant::now() > end {
                bail!("not {what}: {record:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the agent with SIGTERM. Returns whether it ends well.
    pub(crate) fn end(mut self) -> Result<bool> {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM)?;
        Ok(self.child.0.wait()?.success())
    }
}
