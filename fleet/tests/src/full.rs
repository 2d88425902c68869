// SPDX-License-Identifier: Apache-2.0
//! No room on the servers.

use std::path::Path;

use anyhow::{Result, ensure};
use imas_fleet::FleetBus as _;
use imas_fleet_agent::commands;
use imas_fleet_agent::server_files::OPERATOR;
use imas_fleet_agent::setup::StreamSizes;

use crate::cluster::{Cluster, SIZES};
use crate::load::{self, Tries};

/// A full stream drops its oldest; a full bucket refuses, and is right again once it is larger.
pub(crate) async fn full(server: &Path) -> Result<String> {
    const NUMBER: u64 = 3_000;
    const PROGRAMS: u64 = 50;
    let small = StreamSizes { stream_bytes: 1 << 20, bucket_bytes: 4 << 10, ..SIZES };
    let cluster = Cluster::start(server, &["h1"], &["m1"], small).await?;
    let (bus, operator) = (cluster.bus("h1").await?, cluster.bus(OPERATOR).await?);
    let host = cluster.settings("h1")?.host;
    load::publish(&bus, &host, NUMBER, PROGRAMS, &Tries::default()).await?;
    let state = commands::streams(&operator).await?.remove(0);
    ensure!(state.messages < NUMBER && state.last_sequence == NUMBER, "{state:?}");
    ensure!(state.bytes <= 1 << 20, "{state:?}");
    let merger = cluster.bus("m1").await?;
    let subjects: Vec<String> =
        (0..PROGRAMS).map(|program| load::subject(&load::aggregate("", program, 0))).collect();
    let mut refused = 0;
    for subject in &subjects {
        refused += u32::from(imas_fleet::merge(&merger, subject).await.is_err());
    }
    ensure!(refused > 0, "the bucket took everything");
    cluster.make(SIZES).await?;
    for subject in &subjects {
        imas_fleet::merge(&merger, subject).await?;
    }
    cluster.whole().await?; // any server may answer a read, and one may be behind
    let mut folded = 0;
    for subject in &subjects {
        let stored = merger.statistics(subject).await?.map(|stored| stored.value).unwrap_or_default();
        folded += imas_exchange::FleetStatistics::read_of(subject, &stored)?.folded;
    }
    ensure!(folded == state.messages, "{folded} of {} folded", state.messages);
    Ok(format!(
        "stream of 1 MiB kept the newest {} of {NUMBER}; a full bucket refused {refused} of {PROGRAMS} programs and had all \
         after it was enlarged",
        state.messages
    ))
}
