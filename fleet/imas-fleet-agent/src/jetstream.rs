// SPDX-License-Identifier: Apache-2.0
//! The fleet's bus over NATS JetStream. Traps that it knows are listed in docs/fleet.md.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::jetstream;
use async_nats::jetstream::context::{Context, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    DirectGetError, DirectGetErrorKind, RawMessageError, RawMessageErrorKind, Stream,
};
use async_nats::{HeaderMap, StatusCode};
use imas_fleet::{BusError, FleetBus, Revision, Stored, StreamEntry};
use serde::Deserialize;

use crate::connection::with_causes;
use crate::names;

/// A replicated server's error where one server alone gives 10071: another writer was first.
const WRONG_LAST_SEQUENCE_OF_CLUSTER: u64 = 10164;
const WRONG_LAST_SEQUENCE: u64 = 10071;
/// Messages and headers that no repetition makes smaller.
const TOO_LARGE: [u64; 2] = [10054, 10097];

/// The stream and the bucket of one fleet.
#[derive(Clone, Debug)]
pub struct JetStreamBus {
    context: Context,
    host: String,
    /// Subjects whose last write was refused or not answered: the next read asks the leader, since another
    /// replica may still give the value that was refused.
    in_doubt: Arc<Mutex<HashSet<String>>>,
    rejected: Arc<AtomicU64>,
}

/// Why an aggregate was not published.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PublishFailure {
    /// Error of the bus.
    pub error: BusError,
    /// Whether the same aggregate will be refused each time.
    pub is_for_ever: bool,
}

/// The part of an aggregate that names its sender.
#[derive(Deserialize)]
struct Sender {
    host: String,
}

impl JetStreamBus {
    /// The bus, as the host with this token.
    #[must_use]
    pub fn new(context: Context, host: impl Into<String>) -> Self {
        Self { context, host: host.into(), in_doubt: Arc::default(), rejected: Arc::default() }
    }

    /// JetStream below this bus.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Aggregates that were passed over because another host sent them than they name.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Publishes an aggregate; true where the stream had it already.
    ///
    /// # Errors
    /// When it is not known to be on disk.
    pub async fn append(&self, subject: &str, id: &str, payload: Vec<u8>) -> Result<bool, PublishFailure> {
        let subject = names::aggregate_subject(subject, &self.host);
        let message =
            PublishMessage::build().payload(payload.into()).message_id(id).expected_stream(names::STREAM);
        let sent = self.context.send_publish(subject, message).await.map_err(failure)?;
        Ok(sent.await.map_err(failure)?.duplicate)
    }

    /// Removes every aggregate of a host from the stream; how many there were. A merger may do that.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn remove_aggregates_of(&self, host: &str) -> Result<u64, BusError> {
        let removed = self.stream(names::STREAM).await?.purge().filter(names::subjects_of_host(host)).await;
        removed.map(|removed| removed.purged).map_err(|error| BusError::Refused(with_causes(&error)))
    }

    async fn next_aggregate(
        &self,
        stream: &Stream<()>,
        subject: &str,
        after: u64,
    ) -> Result<Option<StreamEntry>, BusError> {
        let filter = format!("{}.{subject}.*", names::AGGREGATES);
        match stream.direct_get_next_for_subject(filter, Some(after + 1)).await {
            Ok(message) => Ok(Some(StreamEntry {
                sequence: message.sequence,
                at_unix_s: u64::try_from(message.time.unix_timestamp()).unwrap_or(0),
                payload: self.proven(&message),
            })),
            Err(error) => direct_error(error).map_or(Ok(None), Err),
        }
    }

    /// Payload of an aggregate, empty where its sender is not the host that it names: the fold passes over
    /// it.
    fn proven(&self, message: &StreamMessage) -> Vec<u8> {
        let from = message.subject.rsplit('.').next();
        let named: Option<Sender> = serde_json::from_slice(&message.payload).ok();
        if named.is_some_and(|named| Some(named.host.as_str()) == from) {
            return message.payload.to_vec();
        }
        self.rejected.fetch_add(1, Ordering::Relaxed);
        vec![]
    }

    async fn stream(&self, name: &str) -> Result<Stream<()>, BusError> {
        self.context.get_stream_no_info(name).await.map_err(|error| BusError::Refused(error.to_string()))
    }

    fn doubt(&self, subject: &str) {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner).insert(subject.to_owned());
    }

    fn was_in_doubt(&self, subject: &str) -> bool {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner).remove(subject)
    }
}

impl FleetBus for JetStreamBus {
    async fn publish(&self, subject: &str, id: &str, payload: Vec<u8>) -> Result<(), BusError> {
        self.append(subject, id, payload).await.map(|_| ()).map_err(|failure| failure.error)
    }

    async fn aggregates(&self, subject: &str, after: u64, most: usize) -> Result<Vec<StreamEntry>, BusError> {
        let stream = self.stream(names::STREAM).await?;
        let mut found = vec![];
        let mut after = after;
        while found.len() < most {
            let Some(entry) = self.next_aggregate(&stream, subject, after).await? else { break };
            after = entry.sequence;
            found.push(entry);
        }
        Ok(found)
    }

    async fn statistics(&self, subject: &str) -> Result<Option<Stored>, BusError> {
        let stream = self.stream(names::BUCKET_STREAM).await?;
        let key = names::statistics_subject(subject);
        let answer = if self.was_in_doubt(subject) {
            stream.get_last_raw_message_by_subject(&key).await.map_err(raw_error)
        } else {
            stream.direct_get_last_for_subject(key).await.map_err(direct_error)
        };
        match answer {
            Ok(message) if is_removal(&message.headers) => {
                Ok(Some(Stored { value: vec![], revision: message.sequence }))
            }
            Ok(message) => Ok(Some(Stored { value: message.payload.to_vec(), revision: message.sequence })),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    async fn compare_and_set(
        &self,
        subject: &str,
        revision: Revision,
        value: Vec<u8>,
    ) -> Result<Revision, BusError> {
        let message = PublishMessage::build().payload(value.into()).expected_last_subject_sequence(revision);
        let key = names::statistics_subject(subject);
        let answer = match self.context.send_publish(key, message).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        answer.map(|acknowledged| acknowledged.sequence).map_err(|error| {
            self.doubt(subject);
            failure(error).error
        })
    }
}

/// Whether the value was removed by a tool for key-value buckets.
fn is_removal(headers: &HeaderMap) -> bool {
    headers.get("KV-Operation").is_some_and(|operation| ["DEL", "PURGE"].contains(&operation.as_str()))
}

fn failure(error: PublishError) -> PublishFailure {
    let why = with_causes(&error);
    let lasting = |error| PublishFailure { error, is_for_ever: true };
    let passing = |error| PublishFailure { error, is_for_ever: false };
    match error.kind() {
        PublishErrorKind::WrongLastSequence => passing(BusError::Conflict),
        PublishErrorKind::TimedOut => passing(BusError::Timeout(why)),
        PublishErrorKind::MaxPayloadExceeded => lasting(BusError::Refused(why)),
        PublishErrorKind::Other => match code(&error) {
            Some(WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_OF_CLUSTER) => passing(BusError::Conflict),
            Some(code) if TOO_LARGE.contains(&code) => lasting(BusError::Refused(why)),
            Some(_) => passing(BusError::Refused(why)),
            None => passing(BusError::Disconnected(why)),
        },
        _ => passing(BusError::Disconnected(why)),
    }
}

/// The server's number for the error.
fn code(error: &PublishError) -> Option<u64> {
    let source = std::error::Error::source(error)?;
    let refusal: &jetstream::Error = source.downcast_ref()?;
    Some(refusal.error_code().0)
}

/// `None`: there is no such message.
fn direct_error(error: DirectGetError) -> Option<BusError> {
    let why = with_causes(&error);
    match error.kind() {
        DirectGetErrorKind::NotFound => None,
        DirectGetErrorKind::TimedOut => Some(BusError::Timeout(why)),
        // Nobody has the stream now: its servers are away, or it was not made yet.
        DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _) => Some(BusError::Disconnected(why)),
        DirectGetErrorKind::InvalidSubject | DirectGetErrorKind::ErrorResponse(..) => {
            Some(BusError::Refused(why))
        }
        DirectGetErrorKind::Request | DirectGetErrorKind::Other => Some(BusError::Disconnected(why)),
    }
}

fn raw_error(error: RawMessageError) -> Option<BusError> {
    match error.kind() {
        RawMessageErrorKind::NoMessageFound => None,
        RawMessageErrorKind::JetStream(refusal) => Some(BusError::Refused(refusal.to_string())),
        _ => Some(BusError::Disconnected(with_causes(&error))),
    }
}
