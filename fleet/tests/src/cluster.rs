// SPDX-License-Identifier: Apache-2.0
//! Three servers of nats-server on loopback ports, with the files that `imas fleet init` writes. They end with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use imas_fleet_agent::commands;
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::server_files::{FleetPlan, OPERATOR};
use imas_fleet_agent::settings::FleetSettings;
use imas_fleet_agent::setup::{self, StreamSizes};
use rustix::process::{Pid, Signal, kill_process};

use crate::cost;
use crate::network::{LONGEST_WAIT, Place};
use crate::running::Running;

/// Sizes that no test fills by accident.
pub(crate) const SIZES: StreamSizes = StreamSizes {
    replicas: 3,
    days: 30,
    stream_bytes: 512 << 20,
    most_aggregates: 300_000,
    bucket_bytes: 128 << 20,
};

/// The servers.
pub(crate) struct Cluster {
    /// Plan from which the files of the cluster were written.
    pub(crate) plan: FleetPlan,
    server: PathBuf,
    nodes: Vec<Option<Running>>,
    /// Namespace of each server; empty: all are on the loopback device.
    places: Vec<Place>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts servers for these hosts, and makes stream and bucket.
    pub(crate) async fn start(
        server: &Path,
        hosts: &[&str],
        mergers: &[&str],
        sizes: StreamSizes,
    ) -> Result<Self> {
        let mut cluster = Self::planned(server, hosts, mergers, vec![])?;
        cluster.begin(sizes).await?;
        Ok(cluster)
    }

    /// Starts all servers, and makes stream and bucket.
    pub(crate) async fn begin(&mut self, sizes: StreamSizes) -> Result<()> {
        (0..3).try_for_each(|at| self.start_node(at))?;
        self.healthy(&[0, 1, 2])?;
        self.make(sizes).await
    }

    /// The files of a cluster in these namespaces, or on the loopback device. Nothing is started.
    pub(crate) fn planned(
        server: &Path,
        hosts: &[&str],
        mergers: &[&str],
        places: Vec<Place>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let servers = if places.is_empty() {
            let base = free_ports()?;
            (0..3).map(|at| format!("127.0.0.1:{}", base + at)).collect()
        } else {
            places.iter().map(|place| format!("{}:4222", place.address())).collect()
        };
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let plan = FleetPlan {
            folder: folder.path().join("fleet"),
            servers,
            tenant: "imas".to_owned(),
            hosts: owned(hosts),
            mergers: owned(mergers),
            days: 30,
            disk_gib: 4,
        };
        plan.write()?;
        let nodes = (0..3).map(|_| None).collect();
        Ok(Self { plan, server: server.to_owned(), nodes, places, _folder: folder })
    }

    /// Makes stream and bucket, once the servers have agreed on a leader.
    pub(crate) async fn make(&self, sizes: StreamSizes) -> Result<()> {
        let settings = self.settings(OPERATOR)?;
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let made = match Connection::open(&settings).await {
                Ok(connection) => setup::make(&connection.jetstream(), sizes).await,
                Err(error) => Err(error),
            };
            match made {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    pub(crate) fn start_node(&mut self, at: usize) -> Result<()> {
        let folder = self.plan.server_folder(at);
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let place = self.places.get(at);
        let mut command =
            place.map_or_else(|| Command::new(&self.server), |place| place.command(&self.server));
        command.args(["-c", "nats-server.conf"]).current_dir(&folder).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.nodes[at] = Some(Running(command.spawn().context("nats-server")?));
        Ok(())
    }

    /// Waits until these servers report that they are healthy.
    pub(crate) fn healthy(&self, nodes: &[usize]) -> Result<()> {
        let end = Instant::now() + LONGEST_WAIT;
        for &at in nodes {
            while !self.is_healthy(at) {
                if Instant::now() > end {
                    let log = std::fs::read_to_string(self.plan.server_folder(at).join("log"))?;
                    bail!(
                        "server {at} is not well: {}",
                        log.lines().rev().take(5).collect::<Vec<_>>().join("\n")
                    );
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// A server shows its health at the loopback device of its own namespace only: elsewhere it must listen.
    fn is_healthy(&self, at: usize) -> bool {
        if !self.places.is_empty() {
            return TcpStream::connect(&self.plan.servers[at]).is_ok();
        }
        let port: u16 =
            self.plan.servers[at].rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port + 4000)) else { return false };
        let mut answer = String::new();
        let _ = socket.set_read_timeout(Some(Duration::from_secs(2)));
        let asked = socket.write_all(b"GET /healthz HTTP/1.0\r\n\r\n");
        asked.is_ok() && socket.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, at: usize) -> Result<()> {
        if let Some(mut node) = self.nodes[at].take() {
            node.0.kill()?;
            node.0.wait()?;
        }
        Ok(())
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let node = self.nodes[at].as_ref().context("that server does not run")?;
        let pid = Pid::from_child(&node.0);
        Ok(kill_process(pid, signal)?)
    }

    /// Resident memory of a server.
    pub(crate) fn resident_bytes(&self, at: usize) -> Result<u64> {
        let node = self.nodes[at].as_ref().context("that server does not run")?;
        cost::resident_bytes(node.0.id())
    }

    /// The highest resident memory of a server so far.
    pub(crate) fn peak_bytes(&self, at: usize) -> Result<u64> {
        let node = self.nodes[at].as_ref().context("that server does not run")?;
        cost::peak_bytes(node.0.id())
    }

    /// Waits until stream and bucket are whole on every server.
    pub(crate) async fn whole(&self) -> Result<()> {
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let states = match self.bus(OPERATOR).await {
                Ok(bus) => commands::streams(&bus).await,
                Err(error) => Err(error),
            };
            if states.as_ref().is_ok_and(|states| states.iter().all(|one| one.behind.is_empty())) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not whole: {states:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The server that leads the stream.
    pub(crate) async fn leader(&self, bus: &JetStreamBus, stream: &str) -> Result<usize> {
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            let states = commands::streams(bus).await.unwrap_or_default();
            let leader = states.into_iter().find(|state| state.name == stream).and_then(|state| state.leader);
            let number = leader.and_then(|name| name.strip_prefix("fleet-")?.parse::<usize>().ok());
            if let Some(number) = number {
                return Ok(number - 1);
            }
            if Instant::now() > end {
                bail!("{stream} has no leader");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) fn settings(&self, name: &str) -> Result<FleetSettings> {
        FleetSettings::read(&self.plan.member_folder(name).join("fleet.toml"))
    }

    /// A connection of that host.
    pub(crate) async fn bus(&self, name: &str) -> Result<JetStreamBus> {
        let settings = self.settings(name)?;
        let connection = Connection::open(&settings).await?;
        let bus = JetStreamBus::new(connection.jetstream(), &settings.host);
        // Its events go nowhere from here on; the client does not mind.
        drop(connection);
        Ok(bus)
    }
}

/// Three ports, with those that a server adds 2000 and 4000 to, that nobody uses now.
pub(crate) fn free_ports() -> Result<u16> {
    use rand::RngExt as _;
    for _ in 0..1000 {
        let base = rand::rng().random_range(11_000..26_000);
        let all = (0..3).flat_map(|at| [0, 2000, 4000].map(|more| base + at + more));
        let sockets: Result<Vec<_>, _> = all.map(|port| TcpListener::bind(("127.0.0.1", port))).collect();
        if sockets.is_ok() {
            return Ok(base);
        }
    }
    bail!("no ports are free")
}
