// SPDX-License-Identifier: Apache-2.0
//! What the agent says of itself in `agent.json`. It is shown to people, so it is read as hostile bytes.

use std::path::Path;
use std::time::SystemTime;

use imas_core::printable;
use imas_fleet::exchange::Exchange;
use serde_json::{Map, Value};

/// Most keys that are shown.
const MOST_KEYS: usize = 32;
/// Most characters of a key or a text.
const MOST_CHARACTERS: usize = 300;

/// The agent's words as they were read last.
#[derive(Debug, Default)]
pub(crate) struct AgentWords {
    written: Option<SystemTime>,
    words: Option<Map<String, Value>>,
}

impl AgentWords {
    /// What it says now. The file is opened only if it has changed.
    pub(crate) fn read(&mut self, exchange: &Exchange, folder: &Path) -> Option<Map<String, Value>> {
        let written = super::modified(&folder.join("agent.json"));
        if written.is_none() || written != self.written {
            let text = exchange.agent().ok().flatten();
            self.words = text.and_then(|text| serde_json::from_slice(&text).ok()).map(plain);
            self.written = written;
        }
        self.words.clone()
    }
}

/// Its plain values alone, without control characters.
fn plain(words: Map<String, Value>) -> Map<String, Value> {
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
    words.into_iter().filter_map(of).take(MOST_KEYS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_plain_words_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        let mut words = AgentWords::default();
        assert_eq!(words.read(&exchange, folder.path()), None);
        let said = json!({"acknowledged": 7, "last_error": "\u{1b}[2Jx", "list": [1], "none": null});
        std::fs::write(folder.path().join("agent.json"), said.to_string()).unwrap();
        let read = words.read(&exchange, folder.path()).unwrap();
        assert_eq!(Value::Object(read), json!({"acknowledged": 7, "last_error": "\\u{1b}[2Jx"}));
        std::fs::remove_file(folder.path().join("agent.json")).unwrap();
        std::fs::write(folder.path().join("agent.json"), "7").unwrap();
        assert_eq!(words.read(&exchange, folder.path()), None);
    }
}
