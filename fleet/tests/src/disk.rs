// SPDX-License-Identifier: Apache-2.0
//! A file system without room below the servers' stores.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use imas_fleet_agent::commands;
use imas_fleet_agent::server_files::OPERATOR;

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::load;
use crate::network::LONGEST_WAIT;
use crate::network::{is_isolated, loopback};

/// Stores are on small file systems of their own. All are filled up while aggregates arrive; then there is room again.
pub(crate) async fn disk(server: &Path, program: &Path) -> Result<String> {
    const BEFORE: u64 = 100;
    const NUMBER: u64 = 3_000;
    ensure!(is_isolated(), "this case mounts file systems, in a mount namespace of its own");
    loopback()?;
    let mut cluster = Cluster::planned(server, &["h1"], &["m1"], vec![])?;
    let stores: Vec<PathBuf> = (0..3).map(|at| cluster.plan.server_folder(at).join("store")).collect();
    stores.iter().try_for_each(|store| mount(store))?;
    cluster.begin(SIZES).await?;
    let host = cluster.settings("h1")?.host;
    let mut agent = AgentProcess::start(program, &cluster.plan.member_folder("h1").join("fleet.toml"))?;
    let add = |agent: &AgentProcess, range: std::ops::Range<u64>| {
        range.into_iter().try_for_each(|at| agent.exchange.add(at, &load::aggregate(&host, at % 10, at)))
    };
    add(&agent, 0..BEFORE)?;
    agent.until("through", |record| record.acknowledged == BEFORE).await?;
    let ballast = stores.iter().map(|store| fill_up(store)).collect::<Result<Vec<_>>>()?;
    add(&agent, BEFORE..NUMBER)?;
    let refused = agent.until("refused", |record| record.last_error.is_some() && record.backlog > 0).await?;
    ensure!(agent.exchange.backlog()?.0 > 0, "everything was taken by full disks");
    ballast.iter().try_for_each(std::fs::remove_file)?;
    let restarted = recovers(&mut cluster, &mut agent, NUMBER).await?;
    let record = agent.record();
    ensure!(record.refused == 0, "{} aggregates were set aside", record.refused);
    cluster.whole().await?;
    let stored = commands::streams(&cluster.bus(OPERATOR).await?).await?[0].messages;
    ensure!(stored == NUMBER, "{stored} of {NUMBER} are stored");
    Ok(format!(
        "full disks refused ({}); the outbox waited; with room again{} all {NUMBER} are stored once",
        refused.last_error.unwrap_or_default(),
        if restarted { " and the servers started again" } else { "" }
    ))
}

/// Whether the servers had to be started again: a server that cannot write switches JetStream off.
async fn recovers(cluster: &mut Cluster, agent: &mut AgentProcess, number: u64) -> Result<bool> {
    const ALONE: Duration = Duration::from_secs(20);
    let begin = Instant::now();
    while begin.elapsed() < ALONE {
        if agent.record().acknowledged == number {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // One alone finds no leader: the two others have switched it off, too.
    for at in 0..3 {
        cluster.kill(at)?;
        cluster.start_node(at)?;
    }
    cluster.healthy(&[0, 1, 2])?;
    agent.until("through", |record| record.acknowledged == number).await?;
    ensure!(begin.elapsed() < LONGEST_WAIT * 2, "too late");
    Ok(true)
}

fn mount(store: &Path) -> Result<()> {
    std::fs::create_dir_all(store)?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=8m", "imas-fleet-test"]).arg(store);
    ensure!(mount.status().context("mount")?.success(), "no file system can be mounted");
    Ok(())
}

/// Takes all room there is.
fn fill_up(store: &Path) -> Result<PathBuf> {
    let path = store.join("ballast");
    let mut file = File::create(&path)?;
    let block = vec![0; 64 << 10];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&block[..512]).is_ok() {}
    Ok(path)
}
