// SPDX-License-Identifier: Apache-2.0
//! Stream and bucket of a fleet.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Compression, Config, DiscardPolicy, Republish, StorageType};
use imas_exchange::{aggregate, statistics};

use crate::names::{AGGREGATES, BUCKET, BUCKET_STREAM, DECISIONS, STREAM};

/// A day.
const DAY: Duration = Duration::from_secs(86_400);
/// The server knows a message's id for this time: an acknowledgement that was lost is asked for again long
/// before.
const KNOWN_IDS: Duration = Duration::from_secs(2 * 3600);
/// Most aggregates of one host and program: as many as wait in an outbox.
const MOST_OF_HOST: i64 = 4096;
/// Bytes of a message beside its payload: subject, headers.
const HEADERS: usize = 1024;

/// Sizes of stream and bucket.
#[derive(Debug, Clone, Copy)]
pub struct StreamSizes {
    /// Copies.
    pub replicas: usize,
    /// Days that an aggregate is kept.
    pub days: u32,
    /// Most bytes of the stream; the oldest aggregates go first.
    pub stream_bytes: i64,
    /// Most aggregates of the stream; the oldest go first.
    pub most_aggregates: i64,
    /// Most bytes of the bucket; what is beyond is refused.
    pub bucket_bytes: i64,
}

/// Makes stream and bucket, or changes them to these sizes. Repeating it is harmless.
///
/// # Errors
/// When the server refuses.
pub async fn make(context: &Context, sizes: StreamSizes) -> Result<()> {
    let stream = context.create_or_update_stream(aggregates(sizes)).await;
    stream.with_context(|| format!("the stream {STREAM} cannot be made"))?;
    let bucket = context.create_or_update_stream(bucket(sizes)).await;
    bucket.with_context(|| format!("the bucket {BUCKET} cannot be made"))?;
    Ok(())
}

fn aggregates(sizes: StreamSizes) -> Config {
    Config {
        name: STREAM.to_owned(),
        description: Some("IMAS: what hosts measured".to_owned()),
        subjects: vec![format!("{AGGREGATES}.*.*.*")],
        storage: StorageType::File,
        num_replicas: sizes.replicas,
        max_age: DAY * sizes.days,
        max_bytes: sizes.stream_bytes,
        max_messages: sizes.most_aggregates,
        max_messages_per_subject: MOST_OF_HOST,
        max_message_size: i32::try_from(aggregate::MAX_BYTES + HEADERS).unwrap_or(i32::MAX),
        discard: DiscardPolicy::Old,
        duplicate_window: KNOWN_IDS,
        allow_direct: true,
        deny_delete: true,
        compression: Some(Compression::S2),
        ..Config::default()
    }
}

/// Configuration of the bucket, as every tool for key-value buckets expects it.
fn bucket(sizes: StreamSizes) -> Config {
    Config {
        name: BUCKET_STREAM.to_owned(),
        description: Some("IMAS: what the fleet knows of each program".to_owned()),
        subjects: vec![format!("$KV.{BUCKET}.>")],
        storage: StorageType::File,
        num_replicas: sizes.replicas,
        max_messages_per_subject: 1,
        max_bytes: sizes.bucket_bytes,
        max_message_size: i32::try_from(statistics::MAX_BYTES + HEADERS).unwrap_or(i32::MAX),
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: true,
        deny_delete: true,
        republish: Some(Republish {
            source: format!("$KV.{BUCKET}.>"),
            destination: format!("{DECISIONS}.>"),
            headers_only: false,
        }),
        ..Config::default()
    }
}
