// SPDX-License-Identifier: Apache-2.0
//! Objects of a cluster, printed as YAML documents.

use anyhow::{Context as _, Result};
use imas_cli::output;
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

/// One object as a document. kubectl reads YAML 1.1, so words such as `on` are quoted.
pub(crate) fn document(object: &Value) -> Result<String> {
    serde_saphyr::to_string(object).context("an object of the cluster as YAML")
}
