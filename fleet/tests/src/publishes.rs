// SPDX-License-Identifier: Apache-2.0
//! Nothing that was acknowledged is lost, nothing is doubled.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::{commands, names};

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::load::{self, Tries};

/// 100,000 publishes; whichever server leads the stream is killed, twice.
pub(crate) async fn publishes(server: &Path) -> Result<String> {
    const NUMBER: u64 = 100_000;
    let mut cluster = Cluster::start(server, &["h1"], &[], SIZES).await?;
    let (bus, operator) = (cluster.bus("h1").await?, cluster.bus(OPERATOR).await?);
    let host = cluster.settings("h1")?.host;
    let tries = Tries::default();
    let began = Instant::now();
    let kills = async {
        for part in [3, 6] {
            load::reached(&tries, NUMBER * part / 10).await;
            let leader = cluster.leader(&operator, names::STREAM).await?;
            cluster.kill(leader)?;
            tokio::time::sleep(Duration::from_secs(3)).await; // the outage itself
            cluster.start_node(leader)?;
            cluster.healthy(&[leader])?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(load::publish(&bus, &host, NUMBER, 100, &tries), kills)?;
    let took = began.elapsed().as_secs_f64();
    let stored = commands::streams(&operator).await?[0].messages;
    ensure!(stored == NUMBER, "{stored} are stored");
    Ok(format!(
        "{stored} of {NUMBER} stored; {took:.0} s, two kills; repetitions {}, duplicates absorbed {}",
        tries.repeated.load(Ordering::Relaxed),
        tries.duplicates.load(Ordering::Relaxed)
    ))
}

/// A host's agent works without any server; then the servers are there.
pub(crate) async fn offline(server: &Path, program: &Path) -> Result<String> {
    const NUMBER: u64 = 2_000;
    let mut cluster = Cluster::start(server, &["h1"], &["m1"], SIZES).await?;
    (0..3).try_for_each(|at| cluster.kill(at))?;
    let settings = |name: &str| cluster.plan.member_folder(name).join("fleet.toml");
    let mut agent = AgentProcess::start(program, &settings("h1"))?;
    let mut merger = AgentProcess::start(program, &settings("m1"))?;
    let host = cluster.settings("h1")?.host;
    for at in 0..NUMBER {
        agent.exchange.add(at, &load::aggregate(&host, at % 10, at))?;
    }
    std::fs::write(agent.exchange.outbox().join("99999999999999999999.json"), "{\"v\":1}")?;
    let subject = load::subject(&load::aggregate("", 3, 0));
    agent.exchange.want(&imas_exchange::exchange::Wanted { subjects: vec![subject.clone()] })?;
    agent.until("aware that nobody is there", |record| record.last_error.is_some()).await?;
    ensure!(agent.exchange.backlog()?.0 as u64 == NUMBER + 1, "something left the outbox");
    let began = Instant::now();
    for at in 0..3 {
        cluster.start_node(at)?;
    }
    cluster.healthy(&[0, 1, 2])?;
    agent.until("empty", |record| record.acknowledged == NUMBER && record.refused == 1).await?;
    let emptied = began.elapsed().as_secs_f64();
    ensure!(agent.exchange.backlog()?.0 == 0 && agent.file("refused/99999999999999999999.json").exists());
    merger.until("folded", |record| record.folded == NUMBER).await?;
    agent.until("received", |record| record.received > 0).await?;
    let stored = commands::streams(&cluster.bus(OPERATOR).await?).await?[0].messages;
    ensure!(stored == NUMBER, "{stored} are stored");
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let inbox = agent.exchange.delivered(&subject)?.unwrap_or_default();
        let known = imas_exchange::FleetStatistics::read_of(&subject, &inbox).map_or(0, |known| known.folded);
        if known == NUMBER / 10 {
            break;
        }
        ensure!(Instant::now() < end, "{known} of {} arrived", NUMBER / 10);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(agent.end()? && merger.end()?, "an agent did not end well at SIGTERM");
    Ok(format!(
        "{NUMBER} of {NUMBER} arrived and were folded, 1 unreadable one set aside; outbox empty {emptied:.1} s after the \
         servers' start"
    ))
}
