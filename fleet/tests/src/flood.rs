// SPDX-License-Identifier: Apache-2.0
//! One member reports invented programs, thousands a second for minutes, while others report real ones.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use imas_exchange::FleetStatistics;
use imas_fleet::FleetBus as _;
use imas_fleet_agent::commands;
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::names;
use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::setup::StreamSizes;

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::cost;
use crate::load;
use crate::network::LONGEST_WAIT;

/// Aggregates of the flood at least, each about a program of its own: twice what the stream keeps.
const LEAST: u64 = 2 * SIZES.most_aggregates as u64;
/// Honest aggregates within the flood.
const HONEST: std::ops::Range<u64> = 2..8;
/// Seconds within which each honest aggregate is folded.
const SOON_S: f64 = 10.0;
/// Aggregates of the flood in a second: what three servers and a merger take on two CPUs beside the client. With the
/// CPUs to do so, one member can send more; nats-server has no limit for that.
const RATE: f64 = 5000.0;
/// Aggregates that the client sends before it waits until the server has them.
const PIECE: u64 = 1_000;
/// The first invented program; real ones have lower numbers.
const INVENTED: u64 = 1_000_000;

/// Most invented programs that may be folded.
const MOST_INVENTED: u64 = 4096;

/// Figures of one honest aggregate, and what the processes hold.
struct Observed {
    folded_s: f64,
    server_bytes: u64,
    merger_bytes: u64,
}

/// An honest aggregate without the flood, in it and after it.
pub(crate) async fn flood(server: &Path, program: &Path) -> Result<String> {
    let sizes = StreamSizes { replicas: 1, ..SIZES };
    let cluster = Cluster::start(server, &["liar", "h1"], &["m1"], sizes).await?;
    let mut merger = AgentProcess::start(program, &cluster.plan.member_folder("m1").join("fleet.toml"))?;
    merger.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
    let operator = cluster.bus(OPERATOR).await?;
    let leader = cluster.leader(&operator, names::STREAM).await?;
    let observe = async |program: u64| -> Result<Observed> {
        Ok(Observed {
            folded_s: honest(&cluster, &operator, program).await?,
            server_bytes: cluster.peak_bytes(leader)?,
            merger_bytes: cost::peak_bytes(merger.pid())?,
        })
    };
    let quiet = observe(1).await?;
    let liar = Connection::open(&cluster.settings("liar")?).await?;
    let host = cluster.settings("liar")?.host;
    let is_over = AtomicBool::new(false);
    let within = async {
        tokio::time::sleep(Duration::from_secs(3)).await; // the flood is under way
        let mut within = vec![];
        for program in HONEST {
            within.push(observe(program).await?);
        }
        is_over.store(true, Ordering::Relaxed);
        Ok::<_, anyhow::Error>(within)
    };
    let within = async { within.await.inspect_err(|_| is_over.store(true, Ordering::Relaxed)) };
    let (sent, within) = tokio::join!(invent(&liar, &host, &is_over), within);
    let (sent, took_s) = sent?;
    let said = || format!("{sent} sent in {took_s:.0} s; the merger says {:?}", merger.record());
    let (within, after) = (within.with_context(said)?, observe(HONEST.end).await.with_context(said)?);
    for program in 1..=HONEST.end {
        let kept = operator.aggregates(&load::subject(&load::aggregate("", program, 0)), 0, 9).await?;
        ensure!(kept.len() == 1, "the flood has displaced the honest aggregate {program}");
    }
    // A number that no sweep changes any more: the quota is for good.
    let invented = stored(&operator).await?.saturating_sub(HONEST.end);
    ensure!(invented <= MOST_INVENTED, "the bucket has statistics of {invented} invented programs");
    ensure!(after.merger_bytes <= 128 << 20, "the merger held {} MB", after.merger_bytes >> 20);
    let slowest_s = within.iter().map(|one| one.folded_s).fold(0.0, f64::max);
    ensure!(slowest_s <= SOON_S, "an honest aggregate was folded after {slowest_s:.1} s");
    let words = |name: &str, folded_s: f64, one: &Observed| {
        let [server, merger] = [one.server_bytes, one.merger_bytes].map(|bytes| bytes as f64 / 1e6);
        format!(
            "{name}: folded after {folded_s:.1} s, peak of the server {server:.0} MB, of the merger {merger:.0} MB"
        )
    };
    let last = within.last().unwrap_or(&after);
    Ok(format!(
        "{sent} aggregates about invented programs in {took_s:.0} s; an honest aggregate {}; {}; {}; none was displaced; \
         {invented} invented programs in the bucket",
        words("before", quiet.folded_s, &quiet),
        words("within (the slowest of all)", slowest_s, last),
        words("afterwards", after.folded_s, &after),
    ))
}

/// Publishes the flood as a client that waits for no acknowledgement, until it is over; the number, and the seconds.
async fn invent(liar: &Connection, host: &str, is_over: &AtomicBool) -> Result<(u64, f64)> {
    let began = Instant::now();
    let mut number = 0;
    while number < LEAST || !is_over.load(Ordering::Relaxed) {
        let one = load::aggregate(host, INVENTED + number, number);
        let subject = names::aggregate_subject(&load::subject(&one), host);
        liar.client.publish(subject, serde_json::to_vec(&one)?.into()).await?;
        number += 1;
        if number.is_multiple_of(PIECE) {
            liar.client.flush().await?;
            let ahead_s = number as f64 / RATE - began.elapsed().as_secs_f64();
            tokio::time::sleep(Duration::from_secs_f64(ahead_s.max(0.0))).await;
        }
    }
    liar.client.flush().await?;
    Ok((number, began.elapsed().as_secs_f64()))
}

/// Seconds until statistics have the aggregate of an honest host.
async fn honest(cluster: &Cluster, operator: &JetStreamBus, program: u64) -> Result<f64> {
    let host = cluster.settings("h1")?.host;
    let one = load::aggregate(&host, program, program);
    let subject = load::subject(&one);
    let began = Instant::now();
    let bus = cluster.bus("h1").await?;
    let payload = serde_json::to_vec(&one)?;
    while bus.append(&subject, &one.id(), payload.clone()).await.is_err() {
        ensure!(began.elapsed() < LONGEST_WAIT, "the honest aggregate cannot be published");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    loop {
        let stored = operator.statistics(&subject).await.ok().flatten();
        let read = stored.map(|stored| FleetStatistics::read_of(&subject, &stored.value)).transpose()?;
        if read.is_some_and(|read| read.folded > 0) {
            return Ok(began.elapsed().as_secs_f64());
        }
        ensure!(
            began.elapsed() < LONGEST_WAIT,
            "the honest aggregate {program} was not folded within {LONGEST_WAIT:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Programs with statistics, once no more come.
async fn stored(operator: &JetStreamBus) -> Result<u64> {
    let mut before = u64::MAX;
    loop {
        let states = commands::streams(operator).await?;
        let bucket = states.iter().find(|state| state.name == names::BUCKET_STREAM);
        let now = bucket.map_or(0, |state| state.messages);
        if now == before || now > 2 * MOST_INVENTED {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}
