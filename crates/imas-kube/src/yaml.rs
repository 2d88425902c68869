// SPDX-License-Identifier: Apache-2.0
//! Objects of a cluster, printed as YAML documents.

use std::borrow::Cow;

use anyhow::{Context as _, Result};
use imas_cli::output;
use imas_core::printable;
use serde_json::Value;

/// Prints the objects, each a document, below a comment of one line a sentence.
pub(crate) fn print(comment: &str, objects: &[Value]) -> Result<()> {
    let mut text: String = comment.lines().map(|line| format!("# {line}\n")).collect();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&document(object)?);
    }
    output::text(&text)
}

/// One object as a document. kubectl reads YAML 1.1, so words such as `on` are quoted. Where a sign steers a terminal the
/// document is JSON, which is YAML too: its escapes mean the same sign to every reader.
pub(crate) fn document(object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).context("an object of the cluster as YAML")?;
    let is_printable = matches!(printable::text(&text), Cow::Borrowed(_));
    if is_printable {
        return Ok(text);
    }
    Ok(format!("{}\n", printable::json(&serde_json::to_string_pretty(object)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sign_that_steers_a_terminal_is_printed_so_that_it_is_read_again() {
        for (value, steers) in
            [("on", false), ("a: b", false), ("line\nend", false), ("\u{1b}[2J", false), ("x\u{202e}y", true)]
        {
            let object = json!({ "data": { "web": value } });
            let text = document(&object).unwrap();
            assert_eq!(printable::text(&text), text);
            let as_json = serde_json::from_str::<Value>(&text).ok();
            assert!(!steers || as_json == Some(object), "{text}");
        }
    }
}
