// SPDX-License-Identifier: Apache-2.0
//! Costs of very many programs for the servers: memory, disk, and the time of a restart.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use imas_exchange::FleetStatistics;
use imas_fleet::{BusError, FleetBus as _, StreamEntry, fold, merge};
use imas_fleet_agent::commands;
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::setup::StreamSizes;

use crate::cluster::{Cluster, SIZES};
use crate::cost;
use crate::load::{self, Tries};

/// Writes on the way at once.
const AT_ONCE: usize = 256;
/// Servers give memory back in this time: nothing is waited for.
const SETTLING: Duration = Duration::from_secs(60);
/// Reads after the restart.
const LOOKS: u64 = 1_000;

/// One aggregate and statistics of each of `number` programs. Then one server is killed and started again
/// with its data.
pub(crate) async fn programs(server: &Path, number: u64) -> Result<String> {
    let large =
        StreamSizes { stream_bytes: 2 << 30, most_aggregates: 1_000_000, bucket_bytes: 1 << 30, ..SIZES };
    let mut cluster = Cluster::start(server, &["h1"], &["m1"], large).await?;
    let (bus, merger) = (cluster.bus("h1").await?, cluster.bus("m1").await?);
    let host = cluster.settings("h1")?.host;
    let empty = resident(&cluster)?;
    let began = Instant::now();
    load::publish(&bus, &host, number, number, &Tries::default()).await?;
    let published = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let statistics = stream::iter(0..number).map(|program| write(&merger, &host, program));
    statistics.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let written = began.elapsed().as_secs_f64();
    cluster.whole().await?;
    let full = resident(&cluster)?;
    tokio::time::sleep(SETTLING).await;
    let settled = resident(&cluster)?;
    cluster.kill(0)?;
    let began = Instant::now();
    cluster.start_node(0)?;
    cluster.healthy(&[0])?;
    let healthy = began.elapsed().as_secs_f64();
    cluster.whole().await?;
    let whole = began.elapsed().as_secs_f64();
    check(&cluster, &merger, &host, number).await?;
    let restarted = of_one(&cluster, 0)?;
    tokio::time::sleep(SETTLING).await;
    Ok(format!(
        "{number} programs, each with one aggregate and statistics (published in {published:.0} s, written in {written:.0} s): most \
         resident memory of a server {empty:.0} MB empty, {full:.0} MB just after the writes, {settled:.0} MB a minute later; of one \
         that was killed and started again {restarted:.0} MB at once, {:.0} MB a minute later; it was healthy after {healthy:.1} s, and \
         no copy was behind after {whole:.1} s; {:.0} MB of disk each",
        of_one(&cluster, 0)?,
        cost::disk_bytes(&cluster.plan.server_folder(0).join("store"))? as f64 / 1e6,
    ))
}

/// Statistics that a merger would write, without reading the aggregate back: half a million reads show nothing of the
/// servers' memory.
async fn write(bus: &JetStreamBus, host: &str, program: u64) -> Result<()> {
    let one = load::aggregate(host, program, program);
    let subject = load::subject(&one);
    let before = FleetStatistics::new(one.program.clone(), one.environment.clone());
    let payload = serde_json::to_vec(&one)?;
    let (after, _) = fold(&before, &[StreamEntry { sequence: program + 1, at_unix_s: 0, payload }]);
    match bus.compare_and_set(&subject, 0, after.to_bytes()).await {
        // A time-out may have happened: the repetition is refused then, and it is there.
        Ok(_) | Err(BusError::Conflict) => Ok(()),
        Err(BusError::Timeout(_)) => Box::pin(write(bus, host, program)).await,
        Err(error) => Err(error.into()),
    }
}

/// Checks that all messages are there, that a thousand programs have their statistics, and that one more
/// aggregate is folded.
async fn check(cluster: &Cluster, merger: &JetStreamBus, host: &str, number: u64) -> Result<()> {
    let states = commands::streams(&cluster.bus(OPERATOR).await?).await?;
    ensure!(states.iter().all(|state| state.messages == number), "{states:?}");
    for look in 0..LOOKS {
        let subject = load::subject(&load::aggregate(host, look * number / LOOKS, 0));
        let value = merger.statistics(&subject).await?.map(|stored| stored.value).unwrap_or_default();
        ensure!(FleetStatistics::read_of(&subject, &value)?.folded == 1, "{subject}");
    }
    let one = load::aggregate(host, 0, number);
    let subject = load::subject(&one);
    cluster.bus("h1").await?.append(&subject, &one.id(), serde_json::to_vec(&one)?).await?;
    let counts = merge(merger, &subject).await?;
    ensure!(counts.folds.folded == 1, "{counts:?}");
    Ok(())
}

/// The most of the three servers, MB.
fn resident(cluster: &Cluster) -> Result<f64> {
    (0..3).try_fold(0.0_f64, |most, at| Ok(most.max(of_one(cluster, at)?)))
}

fn of_one(cluster: &Cluster, at: usize) -> Result<f64> {
    Ok(cluster.resident_bytes(at)? as f64 / 1e6)
}
