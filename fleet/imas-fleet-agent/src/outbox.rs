// SPDX-License-Identifier: Apache-2.0
//! Aggregates leave the outbox only after the stream has them. Small files are read and removed in place: the
//! agent has nothing else to do meanwhile.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use imas_exchange::exchange::{Exchange, Waiting};
use imas_exchange::{Aggregate, key};

use crate::connection::pause;
use crate::jetstream::JetStreamBus;
use crate::journal::AgentJournal;
use crate::watch::FolderWatch;

/// Least time between two passes: what comes meanwhile is sent together.
const LOOK: Duration = Duration::from_millis(250);
/// Aggregates on the way at the same time.
const AT_ONCE: usize = 256;
/// Aggregates read from the folder at once.
const BATCH: usize = 1024;
/// Most aggregates that are kept aside for somebody to look at.
const MOST_ASIDE: usize = 64;

/// An aggregate, ready for the stream.
struct Letter {
    subject: String,
    id: String,
    payload: Vec<u8>,
}

/// Publishes what comes into the outbox, for ever.
pub async fn keep_empty(exchange: &Exchange, bus: &JetStreamBus, host: &str, journal: &AgentJournal) {
    let mut watch = FolderWatch::new(exchange.outbox());
    let mut failures = 0;
    loop {
        let outcome = empty_once(exchange, bus, host, journal).await;
        match outcome.inspect_err(|error| journal.error(&format!("the outbox cannot be read: {error}"))) {
            Ok(Outcome { sent, left: 0 }) => {
                failures = 0;
                tokio::time::sleep(LOOK).await;
                if sent < BATCH {
                    watch.changed().await;
                }
            }
            Ok(Outcome { sent, .. }) if sent > 0 => failures = 0,
            Ok(_) | Err(_) => {
                failures += 1;
                tokio::time::sleep(pause(failures)).await;
            }
        }
    }
}

/// Counts of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Aggregates that left the outbox.
    pub sent: usize,
    /// Aggregates that were read and are still in the outbox.
    pub left: usize,
}

/// One pass over the oldest aggregates.
///
/// # Errors
/// When the folder cannot be read or changed.
pub async fn empty_once(
    exchange: &Exchange,
    bus: &JetStreamBus,
    host: &str,
    journal: &AgentJournal,
) -> io::Result<Outcome> {
    let waiting = exchange.waiting(BATCH)?;
    let backlog = if waiting.len() < BATCH { waiting.len() } else { exchange.backlog()?.0 };
    journal.note(|record| record.backlog = backlog as u64);
    let read = waiting.len();
    let passed = stream::iter(waiting).map(|one| send(exchange, bus, host, journal, one));
    let sent = passed.buffer_unordered(AT_ONCE).filter(|gone| std::future::ready(*gone)).count().await;
    journal.note(|record| record.backlog = (backlog - sent) as u64);
    Ok(Outcome { sent, left: read - sent })
}

/// Sends an aggregate. Returns whether it has left the outbox.
async fn send(
    exchange: &Exchange,
    bus: &JetStreamBus,
    host: &str,
    journal: &AgentJournal,
    waiting: Waiting,
) -> bool {
    let letter = match letter(&waiting.bytes, host) {
        Ok(letter) => letter,
        Err(why) => return put_aside(exchange, journal, &waiting, &why),
    };
    journal.note(|record| record.published += 1);
    match bus.append(&letter.subject, &letter.id, letter.payload).await {
        Ok(was_there) => {
            journal.note(|record| {
                record.acknowledged += 1;
                record.duplicates += u64::from(was_there);
            });
            remove(exchange, journal, &waiting)
        }
        Err(failure) if failure.is_for_ever => {
            put_aside(exchange, journal, &waiting, &failure.error.to_string())
        }
        Err(failure) => {
            journal.error(&format!("an aggregate waits: {}", failure.error));
            false
        }
    }
}

/// Removes an aggregate from the outbox. If that fails, it is sent again, and the stream knows its id for
/// some time.
fn remove(exchange: &Exchange, journal: &AgentJournal, waiting: &Waiting) -> bool {
    exchange.acknowledged(waiting).map_err(|error| cannot_change(journal, &error)).is_ok()
}

fn cannot_change(journal: &AgentJournal, error: &io::Error) {
    journal.error(&format!("the outbox cannot be changed: {error}"));
}

/// Reads an aggregate, and puts this host's name into it: the server lets it use no other.
fn letter(bytes: &[u8], host: &str) -> Result<Letter, String> {
    let mut aggregate: Aggregate = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    host.clone_into(&mut aggregate.host);
    let payload = serde_json::to_vec(&aggregate).map_err(|error| error.to_string())?;
    // An aggregate that readers would reject need not be sent.
    let aggregate = Aggregate::read(&payload).map_err(|error| error.to_string())?;
    let subject = key::subject(&aggregate.program, &aggregate.environment);
    Ok(Letter { subject, id: aggregate.id(), payload })
}

/// Out of the way of the others, kept for somebody to look at.
fn put_aside(exchange: &Exchange, journal: &AgentJournal, waiting: &Waiting, why: &str) -> bool {
    let name = waiting.file.file_name().unwrap_or_default();
    journal.note(|record| record.refused += 1);
    journal.error(&format!("{} is set aside: {why}", name.display()));
    let folder = exchange.outbox().with_file_name("refused");
    let moved = std::fs::create_dir_all(&folder).and_then(|()| {
        drop_oldest(&folder)?;
        std::fs::rename(&waiting.file, folder.join(name))
    });
    moved.or_else(|_| exchange.acknowledged(waiting)).map_err(|error| cannot_change(journal, &error)).is_ok()
}

fn drop_oldest(folder: &Path) -> io::Result<()> {
    let mut files =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(MOST_ASIDE);
    files.iter().take(surplus).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::host_token;

    fn text(change: &str, to: &str) -> String {
        let program = host_token("p");
        format!(
            r#"{{"v":1,"host":"aaaaaaaaaaaaaaaaaaaaaaaaaa","boot":"b-7","batch":3,"program":"{program}",
            "environment":{{"architecture":"x86_64","page_bytes":4096,"huge_pages":"never","cpus":2}},
            "candidates":{{}},"residual":{},"freedom":0.0}}"#,
            serde_json::to_string(&imas_core::stats::Moments::default()).unwrap()
        )
        .replace(change, to)
    }

    #[test]
    fn a_letter_is_of_this_host_whatever_the_file_says() {
        let host = host_token("web-1");
        let letter = letter(text("", "").as_bytes(), &host).unwrap();
        assert_eq!(letter.id, format!("{host}/b-7/3"));
        assert!(String::from_utf8(letter.payload).unwrap().contains(&host));
        assert!(crate::names::is_plain_subject(&letter.subject));
    }

    #[test]
    fn what_would_be_refused_each_time_is_known_beforehand() {
        for (change, to) in [
            ("\"v\":1", "\"v\":9"),
            ("b-7", "b\\r\\nX: y"),
            ("b-7", ""),
            ("\"batch\":3", "\"batch\":-3"),
            ("4096", "4096,"),
        ] {
            assert!(letter(text(change, to).as_bytes(), &host_token("h")).is_err(), "{to}");
        }
    }

    #[test]
    fn only_some_are_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        exchange.prepare().unwrap();
        let journal = AgentJournal::new(folder.path().join("agent.json"));
        for order in 0..MOST_ASIDE + 9 {
            let file = exchange.outbox().join(format!("{order:020}.json"));
            std::fs::write(&file, "x").unwrap();
            assert!(put_aside(&exchange, &journal, &Waiting { file, bytes: vec![] }, "no reason"));
        }
        let kept = std::fs::read_dir(folder.path().join("refused")).unwrap().count();
        assert_eq!((kept, exchange.backlog().unwrap().0), (MOST_ASIDE, 0));
        assert_eq!(journal.now().refused, MOST_ASIDE as u64 + 9);
    }
}
