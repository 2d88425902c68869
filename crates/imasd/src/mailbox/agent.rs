// SPDX-License-Identifier: Apache-2.0
//! The agent's record of itself, `agent.json`. It is shown to people, so it is read as hostile bytes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use imas_core::printable;
use imas_exchange::exchange::Exchange;
use serde_json::{Map, Value};

/// Most keys that are shown.
const MOST_KEYS: usize = 32;
/// The agent writes its record each minute. Of an older one it is not known whether the agent still runs.
const OUTDATED: Duration = Duration::from_secs(300);
/// Most characters of a key or a text.
const MOST_CHARACTERS: usize = 300;

/// The agent's record as it was read last.
#[derive(Debug, Default)]
pub(crate) struct AgentReport {
    written: Option<SystemTime>,
    record: Option<Map<String, Value>>,
}

impl AgentReport {
    /// The record now. The file is opened only if it has changed.
    pub(crate) fn read(&mut self, exchange: &Exchange, folder: &Path) -> Option<Map<String, Value>> {
        let written = super::modified(&folder.join("agent.json"));
        if written.is_none() || written != self.written {
            let text = exchange.agent().ok().flatten();
            self.record = text.and_then(|text| serde_json::from_slice(&text).ok()).map(plain);
            self.written = written;
        }
        self.record.clone()
    }

    /// Whether the agent runs and is connected with the fleet, as far as it says so.
    pub(crate) fn is_connected(&self) -> bool {
        let is_outdated = |written: SystemTime| written.elapsed().is_ok_and(|age| age > OUTDATED);
        let since = self.record.as_ref().and_then(|record| record.get("connected_since_unix_s"));
        since.is_some_and(Value::is_number) && self.written.is_some_and(|written| !is_outdated(written))
    }
}

/// Plain values of the agent's record alone, without control characters.
fn plain(record: Map<String, Value>) -> Map<String, Value> {
    let cut = |text: &str| -> String {
        let text: String = text.chars().take(MOST_CHARACTERS).collect();
        printable::name(&text).into_owned()
    };
    let of = |(key, value): (String, Value)| {
        let value = match value {
            Value::String(text) => Value::String(cut(&text)),
            Value::Number(_) | Value::Bool(_) => value,
            _ => return None,
        };
        Some((cut(&key), value))
    };
    record.into_iter().filter_map(of).take(MOST_KEYS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_plain_values_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        let mut report = AgentReport::default();
        assert_eq!(report.read(&exchange, folder.path()), None);
        let values = json!({"acknowledged": 7, "last_error": "\u{1b}[2Jx", "list": [1], "none": null});
        std::fs::write(folder.path().join("agent.json"), values.to_string()).unwrap();
        let read = report.read(&exchange, folder.path()).unwrap();
        assert_eq!(Value::Object(read), json!({"acknowledged": 7, "last_error": "\\u{1b}[2Jx"}));
        assert!(!report.is_connected());
        let record = json!({"connected_since_unix_s": 7}).to_string();
        let file = folder.path().join("agent.json");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &record).unwrap();
        report.read(&exchange, folder.path()).unwrap();
        assert!(report.is_connected());
        let old = SystemTime::now() - 2 * OUTDATED;
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        report.read(&exchange, folder.path()).unwrap();
        assert!(!report.is_connected(), "the agent was killed");
        std::fs::remove_file(folder.path().join("agent.json")).unwrap();
        std::fs::write(folder.path().join("agent.json"), "7").unwrap();
        assert_eq!(report.read(&exchange, folder.path()), None);
    }
}
