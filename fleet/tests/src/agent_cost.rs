// SPDX-License-Identifier: Apache-2.0
//! Costs of the agent of one host.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use imas_exchange::exchange::Wanted;
use imas_fleet::{FleetBus as _, merge};

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::{cost, load};

/// Programs of the host.
const PROGRAMS: u64 = 300;
/// Length of a measurement.
const WINDOW: Duration = Duration::from_secs(60);
const MOST_BYTES: u64 = 25_000_000;
/// Share of a core while nothing happens.
const MOST_SHARE: f64 = 0.002;

/// Memory and CPU of an agent that keeps 300 programs up to date: while nothing happens, and while each second an
/// aggregate is published and the statistics of another program arrive.
pub(crate) async fn agent(server: &Path, program: &Path) -> Result<String> {
    let cluster = Cluster::start(server, &["h1", "h2"], &["m1"], SIZES).await?;
    let (other, merger) = (cluster.bus("h2").await?, cluster.bus("m1").await?);
    let host = cluster.settings("h2")?.host;
    let subjects: Vec<String> =
        (0..PROGRAMS).map(|program| load::subject(&load::aggregate("", program, 0))).collect();
    load::publish(&other, &host, PROGRAMS, PROGRAMS, &load::Tries::default()).await?;
    for subject in &subjects {
        merge(&merger, subject).await?;
    }
    let mut agent = AgentProcess::start(program, &cluster.plan.member_folder("h1").join("fleet.toml"))?;
    agent.exchange.want(&Wanted { subjects: subjects.clone() })?;
    agent.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
    let end = Instant::now() + WINDOW;
    while !subjects.iter().all(|subject| agent.exchange.delivered(subject).is_ok_and(|bytes| bytes.is_some()))
    {
        ensure!(Instant::now() < end, "not all statistics were delivered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let idle = share(&agent, async {
        tokio::time::sleep(WINDOW).await;
        Ok(())
    })
    .await?;
    let own = cluster.settings("h1")?.host;
    let busy = share(&agent, async {
        for at in 0..WINDOW.as_secs() {
            let next = tokio::time::sleep(Duration::from_secs(1));
            agent.exchange.add(at, &load::aggregate(&own, at, at))?;
            let new = load::aggregate(&host, at, PROGRAMS + at);
            other.append(&subjects[usize::try_from(at)?], &new.id(), serde_json::to_vec(&new)?).await?;
            merge(&merger, &subjects[usize::try_from(at)?]).await?;
            next.await;
        }
        Ok(())
    })
    .await?;
    let resident = cost::resident_bytes(agent.pid())?;
    ensure!(merger.statistics(&subjects[0]).await?.is_some(), "nothing was merged");
    ensure!(resident <= MOST_BYTES, "{resident} bytes resident");
    ensure!(idle <= MOST_SHARE, "{idle} of a core while nothing happens");
    Ok(format!(
        "agent of a host with {PROGRAMS} programs: {:.1} MB resident, {:.3} % of a core while nothing happens, {:.3} % while it \
         publishes an aggregate and receives statistics each second",
        resident as f64 / 1e6,
        100.0 * idle,
        100.0 * busy,
    ))
}

/// Share of a core that the agent uses meanwhile.
async fn share(agent: &AgentProcess, meanwhile: impl Future<Output = Result<()>>) -> Result<f64> {
    let (began, before) = (Instant::now(), cost::cpu_s(agent.pid())?);
    meanwhile.await?;
    Ok((cost::cpu_s(agent.pid())? - before) / began.elapsed().as_secs_f64())
}
