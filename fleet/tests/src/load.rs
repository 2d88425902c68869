// SPDX-License-Identifier: Apache-2.0
//! Aggregates as hosts would make them, and their way into the stream through everything that goes wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt as _, stream};
use imas_core::stats::Moments;
use imas_exchange::aggregate::VERSION;
use imas_exchange::{Aggregate, CandidateAggregate, Environment, ProgramKey, ThreadsClass, key};
use imas_fleet_agent::jetstream::JetStreamBus;

/// Numbers of aggregates that were published, of repetitions, and of aggregates that the stream had already.
#[derive(Default)]
pub(crate) struct Tries {
    pub(crate) done: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) duplicates: AtomicU64,
}

/// The `number`-th aggregate of a host about the `program`-th program.
pub(crate) fn aggregate(host: &str, program: u64, number: u64) -> Aggregate {
    let environment = Environment {
        architecture: "x86_64".into(),
        page_bytes: 4096,
        huge_pages: "madvise".into(),
        cpus: 2,
        threads: Some(ThreadsClass::Few),
    };
    let pairs = Moments::of(-0.1 - number as f64 / 1e6, -0.2);
    let candidate = CandidateAggregate { version: "1".into(), pairs, void: 0, crashes: 0 };
    Aggregate {
        v: VERSION,
        host: host.to_owned(),
        boot: "test".to_owned(),
        batch: number,
        program: ProgramKey::new("build-id", &[&program.to_string()]),
        environment,
        candidates: [("jemalloc".to_owned(), candidate)].into(),
        residual: Moments::default(),
        freedom: 0.0,
    }
}

/// Subject of an aggregate.
pub(crate) fn subject(one: &Aggregate) -> String {
    key::subject(&one.program, &one.environment)
}

/// Publishes aggregates `0..number` of `programs` programs, 256 on the way at once, each until it is
/// acknowledged.
pub(crate) async fn publish(
    bus: &JetStreamBus,
    host: &str,
    number: u64,
    programs: u64,
    tries: &Tries,
) -> Result<()> {
    let one = |at: u64| async move {
        let aggregate = aggregate(host, at % programs, at);
        let payload = serde_json::to_vec(&aggregate)?;
        loop {
            match bus.append(&subject(&aggregate), &aggregate.id(), payload.clone()).await {
                Ok(was_there) => {
                    tries.duplicates.fetch_add(u64::from(was_there), Ordering::Relaxed);
                    tries.done.fetch_add(1, Ordering::Relaxed);
                    return anyhow::Ok(());
                }
                Err(failure) if failure.is_for_ever => return Err(failure.into()),
                Err(_) => {
                    tries.repeated.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    let mut all = stream::iter(0..number).map(one).buffer_unordered(256);
    while let Some(result) = all.next().await {
        result?;
    }
    Ok(())
}

/// Waits until `number` aggregates are published.
pub(crate) async fn reached(tries: &Tries, number: u64) {
    while tries.done.load(Ordering::Relaxed) < number {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
