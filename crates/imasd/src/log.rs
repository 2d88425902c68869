// SPDX-License-Identifier: Apache-2.0
//! Where log lines go: the journal with their fields when systemd runs us, else standard error.

use std::io::IsTerminal;

use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// Sets it up, once, before anything is logged.
pub(crate) fn start() {
    let level = LevelFilter::INFO;
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    let set = match journal {
        Some(journal) => {
            let journal = journal.with_field_prefix(Some("IMAS".to_owned()));
            tracing::subscriber::set_global_default(Registry::default().with(level).with(journal))
        }
        None => {
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::stderr().is_terminal())
                .with_target(false)
                .without_time();
            tracing::subscriber::set_global_default(Registry::default().with(level).with(lines))
        }
    };
    // Only a second call can fail, and then somebody listens already.
    let _ = set;
}
