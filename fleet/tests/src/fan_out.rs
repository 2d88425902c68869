// SPDX-License-Identifier: Apache-2.0
//! How fast what one host proved reaches the others.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::StreamExt as _;
use futures_util::stream;
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::{commands, names};

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::load;

/// Times from a file in one host's outbox to the file in another host's inbox: agents as processes, one of
/// them merges.
pub(crate) async fn hosts(server: &Path, program: &Path) -> Result<String> {
    let cluster = Cluster::start(server, &["h1", "h2"], &["m1"], SIZES).await?;
    let start =
        |name: &str| AgentProcess::start(program, &cluster.plan.member_folder(name).join("fleet.toml"));
    let (mut sender, mut receiver, mut merger) = (start("h1")?, start("h2")?, start("m1")?);
    let host = cluster.settings("h1")?.host;
    let subject = load::subject(&load::aggregate("", 0, 0));
    receiver.exchange.want(&imas_exchange::exchange::Wanted { subjects: vec![subject.clone()] })?;
    for agent in [&mut sender, &mut receiver, &mut merger] {
        agent.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
    }
    let mut times = vec![];
    for number in 0..20 {
        let began = Instant::now();
        sender.exchange.add(number, &load::aggregate(&host, 0, number))?;
        loop {
            let bytes = receiver.exchange.delivered(&subject)?.unwrap_or_default();
            let known =
                imas_exchange::FleetStatistics::read_of(&subject, &bytes).map_or(0, |known| known.folded);
            if known > number {
                break;
            }
            ensure!(began.elapsed() < Duration::from_secs(60), "aggregate {number} did not arrive");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(format!(
        "outbox of one host to inbox of another: median {:.2} s, longest of 20 {:.2} s",
        times[10], times[19]
    ))
}

/// One change, seen by `number` connections.
pub(crate) async fn connections(server: &Path, number: usize) -> Result<String> {
    let cluster = Cluster::start(server, &["h1"], &["m1"], SIZES).await?;
    let settings = cluster.settings("h1")?;
    let one = load::aggregate(&settings.host, 0, 0);
    let subject = load::subject(&one);
    cluster.bus("h1").await?.append(&subject, &one.id(), serde_json::to_vec(&one)?).await?;
    let began = Instant::now();
    let connect = |_| async {
        let connection = Connection::open(&settings).await?;
        let subscriber = connection.client.subscribe(format!("{}.{subject}", names::DECISIONS)).await?;
        connection.client.flush().await?;
        anyhow::Ok((connection, subscriber))
    };
    let mut all = vec![];
    let mut connected = stream::iter(0..number).map(connect).buffer_unordered(64);
    while let Some(one) = connected.next().await {
        all.push(one?);
    }
    drop(connected);
    let set_up = began.elapsed().as_secs_f64();
    let merger = cluster.bus("m1").await?;
    let began = Instant::now();
    let seen = all.iter_mut().map(|(_, subscriber)| async {
        subscriber.next().await;
        began.elapsed().as_secs_f64()
    });
    let (merged, seen) = tokio::join!(
        imas_fleet::merge(&merger, &subject),
        tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(seen))
    );
    merged?;
    let last = seen?.into_iter().fold(0.0, f64::max);
    let states = commands::streams(&cluster.bus(OPERATOR).await?).await?;
    let consumers: usize = states.iter().map(|state| state.consumers).sum();
    ensure!(consumers == 0, "{consumers} consumers");
    Ok(format!(
        "{number} TLS connections ({set_up:.0} s to make), 0 consumers: the last one saw a change after {last:.2} s"
    ))
}
