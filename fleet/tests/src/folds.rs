// SPDX-License-Identifier: Apache-2.0
//! Aggregates are folded once each, whatever happens to servers meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use imas_exchange::{FleetStatistics, key};
use imas_fleet::{FleetBus as _, MergeCounts, fold, merge};
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::names;
use imas_fleet_agent::server_files::OPERATOR;
use rustix::process::Signal;

use crate::cluster::{Cluster, SIZES};
use crate::load::{self, Tries};

const NUMBER: u64 = 40_000;
const PROGRAMS: u64 = 100;
const MERGERS: [&str; 6] = ["m1", "m2", "m3", "m4", "m5", "m6"];

/// 40,000 aggregates, six mergers without any order among them; the stream's leader is killed and the bucket's
/// leader is stopped for 5 s.
pub(crate) async fn folds(server: &Path) -> Result<String> {
    let mut cluster = Cluster::start(server, &["h1"], &MERGERS, SIZES).await?;
    let (bus, operator) = (cluster.bus("h1").await?, cluster.bus(OPERATOR).await?);
    let host = cluster.settings("h1")?.host;
    let (tries, all_sent) = (Tries::default(), AtomicBool::new(false));
    let mut mergers = vec![];
    for name in MERGERS {
        mergers.push(cluster.bus(name).await?);
    }
    let began = Instant::now();
    let published = async {
        let result = load::publish(&bus, &host, NUMBER, PROGRAMS, &tries).await;
        all_sent.store(true, Ordering::SeqCst);
        result
    };
    let merged = futures_util::future::join_all(
        mergers.iter().enumerate().map(|(at, bus)| merger(bus, at, &all_sent)),
    );
    let ((), counts, ()) = tokio::try_join!(
        published,
        async { merged.await.into_iter().collect::<Result<Vec<_>>>() },
        trouble(&mut cluster, &operator, &tries)
    )?;
    let took = began.elapsed().as_secs_f64();
    cluster.whole().await?; // any server may answer a read, and one may be behind
    check(&operator).await?;
    let sum = |of: fn(&MergeCounts) -> u64| counts.iter().map(of).sum::<u64>();
    Ok(format!(
        "{NUMBER} of {NUMBER} folded, once, equal to one fold of the whole stream; {took:.0} s; publisher's repetitions {}, \
         duplicates absorbed {}; commits {}, conflicts {}, time-outs {}",
        tries.repeated.load(Ordering::Relaxed),
        tries.duplicates.load(Ordering::Relaxed),
        sum(|one| one.commits),
        sum(|one| one.conflicts),
        sum(|one| one.timeouts),
    ))
}

async fn trouble(cluster: &mut Cluster, bus: &JetStreamBus, tries: &Tries) -> Result<()> {
    load::reached(tries, NUMBER / 5).await;
    let leader = cluster.leader(bus, names::STREAM).await?;
    cluster.kill(leader)?;
    tokio::time::sleep(Duration::from_secs(4)).await; // the outage itself, nothing is waited for
    cluster.start_node(leader)?;
    cluster.healthy(&[leader])?;
    load::reached(tries, NUMBER * 3 / 5).await;
    let leader = cluster.leader(bus, names::BUCKET_STREAM).await?;
    cluster.signal(leader, Signal::STOP)?;
    tokio::time::sleep(Duration::from_secs(5)).await; // the outage itself
    cluster.signal(leader, Signal::CONT)
}

/// Folds all programs in an order of its own, until a round after the last aggregate finds nothing.
async fn merger(bus: &JetStreamBus, at: usize, all_sent: &AtomicBool) -> Result<MergeCounts> {
    let mut sum = MergeCounts::default();
    let end = Instant::now() + Duration::from_secs(300);
    let mut quiet = 0;
    while quiet < 2 {
        let is_last = all_sent.load(Ordering::SeqCst);
        let before = sum;
        let mut failed = false;
        for step in 0..PROGRAMS {
            let program = (step * 7 + at as u64 * 17) % PROGRAMS;
            match merge(bus, &load::subject(&load::aggregate("", program, 0))).await {
                Ok(counts) => add(&mut sum, counts),
                Err(_) => failed = true, // servers are away: the next round repeats it
            }
        }
        quiet = if is_last && !failed && before == sum { quiet + 1 } else { 0 };
        if Instant::now() > end {
            bail!("a merger does not come to an end");
        }
    }
    Ok(sum)
}

fn add(sum: &mut MergeCounts, counts: MergeCounts) {
    sum.folds.folded += counts.folds.folded;
    sum.commits += counts.commits;
    sum.conflicts += counts.conflicts;
    sum.timeouts += counts.timeouts;
}

/// Checks that each statistic is the fold of all that the stream has, and that together they have everything.
async fn check(bus: &JetStreamBus) -> Result<()> {
    let mut sum = 0;
    let mut wrong = BTreeMap::new();
    for program in 0..PROGRAMS {
        let subject = load::subject(&load::aggregate("", program, 0));
        let all = bus.aggregates(&subject, 0, usize::MAX).await?;
        let Some((of, environment)) = key::of_subject(&subject) else { bail!("{subject}") };
        let (expected, _) = fold(&FleetStatistics::new(of, environment), &all);
        let stored = bus.statistics(&subject).await?.map(|stored| stored.value).unwrap_or_default();
        sum += FleetStatistics::read_of(&subject, &stored)?.folded;
        if stored != expected.to_bytes() {
            wrong.insert(subject, expected.folded);
        }
    }
    ensure!(wrong.is_empty(), "not the fold of the stream: {wrong:?}");
    ensure!(sum == NUMBER, "{sum} folded");
    Ok(())
}
