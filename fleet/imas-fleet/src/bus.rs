// SPDX-License-Identifier: Apache-2.0
//! Operations that the fleet needs of a message system. JetStream is behind them in `imas-fleet`; a double in
//! memory here, for tests of logic only.

use std::future::Future;

/// Revision of a stored value; 0: there is none yet.
pub type Revision = u64;

/// A value of the bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Bytes of the value.
    pub value: Vec<u8>,
    /// Revision of the value, to be named by the next [`FleetBus::compare_and_set`].
    pub revision: Revision,
}

/// An aggregate as the stream has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEntry {
    /// Number of the aggregate in the stream.
    pub sequence: u64,
    /// Time at which the stream took the aggregate, by the clock of its server: seconds since 1970. All
    /// copies have the same time.
    pub at_unix_s: u64,
    /// Bytes of the aggregate.
    pub payload: Vec<u8>,
}

/// Why a call did not succeed.
#[derive(thiserror::Error, Debug)]
pub enum BusError {
    /// Another merger was first: read again.
    #[error("the value was changed meanwhile")]
    Conflict,
    /// Nobody answered in time. What was asked for may have happened.
    #[error("no answer in time: {0}")]
    Timeout(String),
    /// The bus is not connected, or the connection ended.
    #[error("not connected: {0}")]
    Disconnected(String),
    /// The server refuses it for this host: permissions, size, a full stream.
    #[error("refused: {0}")]
    Refused(String),
}

/// The stream of aggregates and the bucket of statistics. `subject` is `<program>.<environment>` as
/// [`imas_exchange::Environment`] names itself.
pub trait FleetBus {
    /// Publishes an aggregate. Returns when the stream has it on disk. `id` makes a repetition harmless.
    fn publish(
        &self,
        subject: &str,
        id: &str,
        payload: Vec<u8>,
    ) -> impl Future<Output = Result<(), BusError>> + Send;

    /// Aggregates of the subject behind sequence number `after`, oldest first, at most `most`.
    fn aggregates(
        &self,
        subject: &str,
        after: u64,
        most: usize,
    ) -> impl Future<Output = Result<Vec<StreamEntry>, BusError>> + Send;

    /// The statistics of the subject.
    fn statistics(&self, subject: &str) -> impl Future<Output = Result<Option<Stored>, BusError>> + Send;

    /// Replaces the statistics if their revision is still `revision` (0: there are none).
    fn compare_and_set(
        &self,
        subject: &str,
        revision: Revision,
        value: Vec<u8>,
    ) -> impl Future<Output = Result<Revision, BusError>> + Send;
}
