// SPDX-License-Identifier: Apache-2.0
//! Programs that nobody is to change unasked: `packaging/exclusions.toml`, each row with its reason and its
//! evidence.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The list that this build carries.
const DEFAULT: &str = include_str!("../../../packaging/exclusions.toml");
/// Rows that the machine's operator adds.
const ADDED: &str = "/etc/imas/exclusions.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default)]
    exclude: Vec<Row>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// File names of executables; `*` at the end or the beginning stands for anything.
    names: Vec<String>,
    /// Why these executables are left alone.
    reason: String,
    /// Where that is known from; for people.
    #[serde(rename = "evidence")]
    _evidence: String,
}

/// The rows, ready to be asked.
#[derive(Debug)]
pub struct Exclusions {
    rows: Vec<Row>,
}

impl Exclusions {
    /// The built-in list and what the operator added.
    ///
    /// # Errors
    /// When the operator's file cannot be read or is no list of exclusions.
    pub fn read() -> Result<Self> {
        let mut rows = parse(DEFAULT).context("the built-in exclusions")?;
        match std::fs::read_to_string(ADDED) {
            Ok(text) => rows.extend(parse(&text).context(ADDED)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(ADDED),
        }
        Ok(Self { rows })
    }

    /// Why the executable is left alone.
    #[must_use]
    pub fn reason(&self, executable: &Path) -> Option<&str> {
        let name = executable.file_name()?.to_str()?;
        let row = self.rows.iter().find(|row| row.names.iter().any(|pattern| matches(pattern, name)))?;
        Some(&row.reason)
    }
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let file: File = toml::from_str(text)?;
    anyhow::ensure!(file.schema == 1, "schema {} is not known, only 1 is", file.schema);
    Ok(file.exclude)
}

fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) if pattern.len() >= 2 => name.contains(&pattern[1..pattern.len() - 1]),
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_sound_and_gives_reasons() {
        let exclusions = Exclusions { rows: parse(DEFAULT).unwrap() };
        for left_alone in
            ["/usr/lib/systemd/systemd-journald", "/usr/bin/dpkg", "/usr/sbin/sshd", "/usr/bin/su"]
        {
            assert!(exclusions.reason(Path::new(left_alone)).is_some(), "{left_alone}");
        }
        for served in [
            "/usr/bin/python3.11",
            "/usr/bin/sqlite3",
            "/usr/sbin/nginx",
            "/usr/lib/postgresql/15/bin/postgres",
        ] {
            assert_eq!(exclusions.reason(Path::new(served)), None, "{served}");
        }
        assert!(exclusions.rows.iter().all(|row| row.reason.len() > 10 && row._evidence.len() > 3));
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(
            matches("a*", "abc") && matches("*c", "abc") && matches("*b*", "abc") && matches("abc", "abc")
        );
        assert!(!matches("b*", "abc") && !matches("*b", "abc") && !matches("ab", "abc"));
    }
}
