// SPDX-License-Identifier: Apache-2.0
//! The agent's loop: connect, work until the connection is given up, wait, again. It ends at SIGTERM and
//! SIGINT only; a fleet that is gone, or that refuses this host, is no reason.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use async_nats::Event;
use imas_cli::message;
use imas_cli::message::Hinted;
use imas_core::printable;
use imas_exchange::exchange::Exchange;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::connection::{Connection, pause};
use crate::inbox::Inbox;
use crate::jetstream::JetStreamBus;
use crate::journal::{AgentJournal, now_unix_s};
use crate::merger::Merger;
use crate::settings::FleetSettings;
use crate::{notify, outbox};

/// How often systemd hears that the loop turns, if it asks.
const ALIVE: Duration = Duration::from_secs(20);

/// One agent.
#[derive(Debug)]
pub struct Agent {
    settings: FleetSettings,
    exchange: Exchange,
    journal: AgentJournal,
}

/// Receivers that miss messages while there is no connection.
struct Stale<'a> {
    inbox: &'a Inbox,
    merger: Arc<Notify>,
}

async fn merge(merger: Merger, client: &async_nats::Client, sweep_s: [f64; 2]) -> anyhow::Error {
    merger.work(client, sweep_s).await.map_or_else(|error| error, |()| anyhow!("the merger ended"))
}

impl Agent {
    /// The agent of the host that the settings name.
    ///
    /// # Errors
    /// When the settings name no host, or the exchange folder cannot be made.
    pub fn new(settings: FleetSettings) -> Result<Self> {
        if settings.host.is_empty() {
            return Err(Hinted::error(
                "the settings do not name this host",
                "add host = \"...\": 'imas fleet init' prints it for each host",
            ));
        }
        let exchange = Exchange::new(&settings.exchange);
        exchange.prepare().with_context(|| settings.exchange.display().to_string())?;
        let journal = AgentJournal::new(settings.exchange.join("agent.json"));
        Ok(Self { settings, exchange, journal })
    }

    /// Works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When signals cannot be handled.
    pub async fn run(&self) -> Result<()> {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        notify::ready();
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
            () = self.journal.keep_written() => {}
            () = turn() => {}
            () = self.stay_connected() => {}
        }
        notify::stopping();
        self.journal.note(|record| record.connected_since_unix_s = None);
        self.journal.write();
        Ok(())
    }

    async fn stay_connected(&self) {
        let mut failures = 0;
        loop {
            let before = std::time::Instant::now();
            let error = self.session().await;
            self.journal.note(|record| record.connected_since_unix_s = None);
            self.journal.error(&format!("{error:#}"));
            notify::status(&format!("not connected: {error:#}"));
            failures = if before.elapsed() > Duration::from_secs(120) { 0 } else { failures + 1 };
            tokio::time::sleep(pause(failures)).await;
        }
    }

    /// Works over one connection. Returns why it was given up.
    async fn session(&self) -> anyhow::Error {
        let mut connection = match Connection::open(&self.settings).await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        let host = &self.settings.host;
        let bus = JetStreamBus::new(connection.jetstream(), host);
        let inbox = Inbox::new(self.exchange.clone(), self.journal.clone());
        let refresh_s = self.settings.refresh_minutes.map(|minutes| 60.0 * minutes);
        let client = connection.client.clone();
        let merger = Merger::new(bus.clone(), host, self.journal.clone());
        let stale = Stale { inbox: &inbox, merger: merger.reconnected() };
        tokio::select! {
            error = self.watch(&mut connection, &stale) => error,
            () = outbox::keep_empty(&self.exchange, &bus, host, &self.journal) => anyhow!("the outbox ended"),
            () = inbox.keep(&client, &bus, refresh_s) => anyhow!("the inbox ended"),
            error = merge(merger, &client, refresh_s), if self.settings.merge => error,
        }
    }

    /// Follows what happens to the connection. Returns why it is given up.
    async fn watch(&self, connection: &mut Connection, stale: &Stale<'_>) -> anyhow::Error {
        self.connected(connection);
        let mut is_noted = true;
        while let Some(event) = connection.events.recv().await {
            match event {
                // The client also reports the connection that it was opened with.
                Event::Connected if is_noted => is_noted = false,
                Event::Connected => {
                    if let Err(refused) = connection.check_version() {
                        return refused;
                    }
                    self.connected(connection);
                    stale.inbox.read_anew();
                    stale.merger.notify_one();
                }
                Event::Disconnected => {
                    self.journal.note(|record| record.connected_since_unix_s = None);
                    notify::status("not connected");
                }
                Event::Closed => break,
                Event::ServerError(error) => self.journal.error(&format!("server: {error}")),
                Event::ClientError(error) => self.journal.error(&format!("connection: {error}")),
                Event::SlowConsumer(_) => {
                    self.journal.error("messages came faster than they were read");
                    stale.merger.notify_one();
                }
                Event::LameDuckMode | Event::Draining => {}
            }
        }
        anyhow!("the connection was closed")
    }

    fn connected(&self, connection: &Connection) {
        let server = connection.client.server_info();
        notify::status(&format!("connected with {} {}", server.server_name, server.version));
        let mut is_first = false;
        self.journal.note(|record| {
            is_first = record.connections == 0;
            record.connections += 1;
            record.connected_since_unix_s = Some(now_unix_s());
            record.server.clone_from(&server.server_name);
            record.server_version.clone_from(&server.version);
        });
        if is_first {
            let name = format!("{} {}", server.server_name, server.version);
            message::say(&format!("imas fleet: connected with {}", printable::name(&name)));
        }
    }
}

async fn turn() {
    loop {
        notify::alive();
        tokio::time::sleep(ALIVE).await;
    }
}
