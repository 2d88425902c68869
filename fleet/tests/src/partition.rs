// SPDX-License-Identifier: Apache-2.0
//! A host and a server that nobody reaches for some time; a server that comes back without its data.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use imas_fleet::FleetBus as _;

use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::{commands, names};

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::load::{self, Tries};
use crate::network::LONGEST_WAIT;
use crate::network::Network;

const PROGRAMS: u64 = 10;
const NUMBER: u64 = 500;

/// The stream's leader and one host lose their network; another host goes on with the two other servers.
pub(crate) async fn partition(server: &Path, program: &Path) -> Result<String> {
    let mut network = Network::new()?;
    let servers = network.add_all(3)?;
    let hosts = network.add_all(3)?;
    let mut cluster = Cluster::planned(server, &["h1", "h2"], &["m1"], servers.clone())?;
    cluster.begin(SIZES).await?;
    let mut agents = vec![];
    for (name, place) in ["h1", "h2", "m1"].into_iter().zip(&hosts) {
        let settings = cluster.plan.member_folder(name).join("fleet.toml");
        let mut agent = AgentProcess::start_by(place.command(program), &settings)?;
        agent.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
        agents.push(agent);
    }
    let leader = cluster.leader(&cluster.bus(OPERATOR).await?, names::STREAM).await?;
    servers[leader].cut_off()?;
    hosts[0].cut_off()?;
    let began = Instant::now();
    fill(&cluster, &agents[0], "h1")?;
    fill(&cluster, &agents[1], "h2")?;
    agents[1].until("through", |record| record.acknowledged == NUMBER).await?;
    let through = began.elapsed().as_secs_f64();
    ensure!(agents[0].exchange.backlog()?.0 as u64 == NUMBER, "something came through the cut");
    servers[leader].connect()?;
    hosts[0].connect()?;
    let began = Instant::now();
    agents[0].until("through", |record| record.acknowledged == NUMBER).await?;
    let healed = began.elapsed().as_secs_f64();
    cluster.whole().await?;
    folded_by_agent(&cluster, 2 * NUMBER).await?;
    counted(&cluster, 2 * NUMBER).await?;
    Ok(format!(
        "stream's leader and one host cut off: {NUMBER} aggregates of another host through after {through:.0} s; \
         connected again, those of the host {healed:.0} s later; {} of {} stored, and folded once",
        2 * NUMBER,
        2 * NUMBER
    ))
}

fn fill(cluster: &Cluster, agent: &AgentProcess, name: &str) -> Result<()> {
    let host = cluster.settings(name)?.host;
    for at in 0..NUMBER {
        agent.exchange.add(at, &load::aggregate(&host, at % PROGRAMS, at))?;
    }
    Ok(())
}

/// Waits for the merger. What its record counts is less where a write was made and its answer was cut off.
async fn folded_by_agent(cluster: &Cluster, number: u64) -> Result<()> {
    let end = Instant::now() + LONGEST_WAIT;
    loop {
        let folded = folded(cluster).await.unwrap_or(0);
        if folded >= number {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{folded} of {number} are folded");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Aggregates that the statistics of all programs contain.
async fn folded(cluster: &Cluster) -> Result<u64> {
    let merger = cluster.bus("m1").await?;
    let mut folded = 0;
    for program in 0..PROGRAMS {
        let subject = load::subject(&load::aggregate("", program, 0));
        let value = merger.statistics(&subject).await?.map(|stored| stored.value).unwrap_or_default();
        folded += imas_exchange::FleetStatistics::read_of(&subject, &value)?.folded;
    }
    Ok(folded)
}

/// Checks that `number` aggregates are in the stream, and in the statistics of all programs together.
async fn counted(cluster: &Cluster, number: u64) -> Result<()> {
    let stored = commands::streams(&cluster.bus(OPERATOR).await?).await?[0].messages;
    ensure!(stored == number, "{stored} of {number} are stored");
    let folded = folded(cluster).await?;
    ensure!(folded == number, "{folded} of {number} are folded");
    Ok(())
}

/// A server loses its disk and comes back empty. When it has copied all, the others may go: one after the other is
/// emptied, so that in the end nothing is left of what was first written but copies of copies.
pub(crate) async fn empty(server: &Path) -> Result<String> {
    const MESSAGES: u64 = 5_000;
    let mut cluster = Cluster::start(server, &["h1"], &["m1"], SIZES).await?;
    let host = cluster.settings("h1")?.host;
    load::publish(&cluster.bus("h1").await?, &host, MESSAGES, PROGRAMS, &Tries::default()).await?;
    let merger = cluster.bus("m1").await?;
    for program in 0..PROGRAMS {
        imas_fleet::merge(&merger, &load::subject(&load::aggregate("", program, 0))).await?;
    }
    drop(merger);
    let mut times = vec![];
    for at in 0..3 {
        cluster.kill(at)?;
        std::fs::remove_dir_all(cluster.plan.server_folder(at).join("store"))?;
        let began = Instant::now();
        cluster.start_node(at)?;
        cluster.healthy(&[at])?;
        has_copied(&cluster, at).await?;
        times.push(began.elapsed().as_secs_f64());
    }
    counted(&cluster, MESSAGES).await?;
    let longest = times.into_iter().fold(0.0, f64::max);
    Ok(format!(
        "each of three servers lost its disk in turn and copied {MESSAGES} aggregates and {PROGRAMS} statistics from the others, \
         the slowest in {longest:.1} s; nothing is missing"
    ))
}

/// Waits until the other servers see the copies of this server as current, for long enough that they do not
/// report the state of before its loss.
async fn has_copied(cluster: &Cluster, at: usize) -> Result<()> {
    let store = cluster.plan.server_folder(at).join("store/jetstream/imas/streams");
    let end = Instant::now() + LONGEST_WAIT;
    let is_there =
        |name: &str| store.join(name).join("msgs").read_dir().is_ok_and(|mut all| all.next().is_some());
    while !(is_there(names::STREAM) && is_there(names::BUCKET_STREAM)) {
        ensure!(Instant::now() < end, "nothing is copied into {}", store.display());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.whole().await
}
