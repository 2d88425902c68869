// SPDX-License-Identifier: Apache-2.0
//! One connection to the fleet's servers.

use std::time::Duration;

use anyhow::{Result, anyhow};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{AuthError, Client, ConnectErrorKind, ConnectOptions, Event, jetstream};
use imas_cli::message::Hinted;
use rand::RngExt as _;
use tokio::sync::mpsc;

use crate::credentials::Credentials;
use crate::settings::FleetSettings;
use crate::version::{VersionVerdict, verdict};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A connection, and what happens to it.
#[derive(Debug)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Events since the connection was made.
    pub events: mpsc::UnboundedReceiver<Event>,
}

impl Connection {
    /// Connects, and refuses a server whose version loses data. Later it reconnects by itself.
    ///
    /// # Errors
    /// When no server answers, or it refuses this host, or its version is refused.
    pub async fn open(settings: &FleetSettings) -> Result<Self> {
        let connection = Self::open_any_version(settings).await?;
        connection.check_version()?;
        Ok(connection)
    }

    /// Connects to a server of any version.
    ///
    /// # Errors
    /// When no server answers, or it refuses this host, or there are credentials that cannot be used.
    pub async fn open_any_version(settings: &FleetSettings) -> Result<Self> {
        settings.credentials.as_deref().map(Credentials::read).transpose()?;
        let (sender, events) = mpsc::unbounded_channel();
        let options = options(settings).event_callback(move |event| {
            let _ = sender.send(event); // there is no receiver any more when the connection is given up
            std::future::ready(())
        });
        let client = options.connect(&settings.servers).await.map_err(|error| explained(&error, settings))?;
        Ok(Self { client, events })
    }

    /// Refuses a version that loses data: of the server that it is connected with now.
    ///
    /// # Errors
    /// When the version is refused.
    pub fn check_version(&self) -> Result<()> {
        match verdict(&self.client.server_info().version) {
            VersionVerdict::Refused(why) => Err(Hinted::error(
                why,
                "use nats-server 2.14 or newer: go install github.com/nats-io/nats-server/v2@latest",
            )),
            VersionVerdict::Supported | VersionVerdict::Old(_) => Ok(()),
        }
    }

    /// JetStream over this connection.
    #[must_use]
    pub fn jetstream(&self) -> jetstream::Context {
        let builder = ContextBuilder::new().timeout(REQUEST).ack_timeout(REQUEST).max_ack_inflight(4096);
        builder.build(self.client.clone())
    }
}

/// Options with the credentials, which are read at each attempt: new ones are used when the server ends the
/// connection because the old ones have expired.
fn authentication(settings: &FleetSettings) -> ConnectOptions {
    let Some(file) = settings.credentials.clone() else { return ConnectOptions::new() };
    ConnectOptions::with_auth_callback(move |nonce| {
        let answer = Credentials::read(&file)
            .map_err(|error| AuthError::new(format!("{error:#}")))
            .and_then(|credentials| credentials.answer(&nonce));
        std::future::ready(answer)
    })
}

fn options(settings: &FleetSettings) -> ConnectOptions {
    let mut options = authentication(settings)
        .name("imas-fleet")
        .connection_timeout(CONNECT)
        .request_timeout(Some(REQUEST))
        .ping_interval(Duration::from_secs(20))
        .max_reconnects(None)
        .reconnect_delay_callback(pause)
        .require_tls(settings.has_tls());
    if !settings.host.is_empty() {
        // Answers to this host's requests are for it alone: the server lets no other host subscribe there.
        options = options.custom_inbox_prefix(inbox_prefix(&settings.host));
    }
    if let Some(ca) = &settings.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options
}

/// Prefix of the subjects at which answers for a host arrive.
#[must_use]
pub fn inbox_prefix(host: &str) -> String {
    format!("_INBOX_{host}")
}

/// How long to wait before attempt `attempt`: doubled each time up to a minute, and a random half of it, so
/// that hosts that lost one server do not come back at the same moment.
#[must_use]
pub fn pause(attempt: usize) -> Duration {
    let doubled = Duration::from_millis(200 << attempt.min(12));
    doubled.min(LONGEST_PAUSE).mul_f64(rand::rng().random_range(0.5..1.0))
}

fn explained(error: &async_nats::ConnectError, settings: &FleetSettings) -> anyhow::Error {
    let servers = settings.servers.join(", ");
    let what = format!("{servers}: {}", with_causes(error));
    let hint = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
            if settings.credentials.is_some() =>
        {
            "the server does not accept the credentials: 'imas fleet doctor' shows their dates; are they of an account of \
             this server, and not revoked?"
        }
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            "the server does not know this host: is its certificate's name in the server's configuration?"
        }
        ConnectErrorKind::Tls => "'imas fleet doctor' checks certificates and their dates",
        ConnectErrorKind::Io if what.contains("certificate") || what.contains("alert") => {
            "'imas fleet doctor' checks certificates and their dates"
        }
        ConnectErrorKind::ServerParse | ConnectErrorKind::Dns => "check `servers` in the settings",
        _ => return anyhow!(what),
    };
    Hinted::error(what, hint)
}

/// An error with its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_differ() {
        let longest = (0..100).map(pause).max().unwrap();
        assert!(longest <= LONGEST_PAUSE && pause(0) < Duration::from_millis(200));
        assert!(pause(1000) >= LONGEST_PAUSE / 2);
        assert!((0..20).any(|_| pause(20) != pause(20)));
    }
}
