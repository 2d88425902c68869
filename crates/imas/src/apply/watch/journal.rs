// SPDX-License-Identifier: Apache-2.0
//! Failures of a unit, from the journal. What ends because an operator stops or restarts the unit is no
//! failure, whatever its exit status: Java ends with 143 then.

use std::collections::HashSet;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// "Failed with result ..." (`SD_MESSAGE_UNIT_FAILURE_RESULT`), which exists for every unit.
const FAILED: &str = "d9b373ed55a64feb8242e02dbe79a49c";
/// "Stopping ..." (`SD_MESSAGE_UNIT_STOPPING`): a job stops the unit. A crash has no such message.
const STOPPING: &str = "de5b426a63be47a7b6ac3eaac82e2f6f";

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "MESSAGE_ID", default)]
    message_id: String,
    #[serde(rename = "INVOCATION_ID", default)]
    life: String,
}

/// Failures of the unit since that time, without those of the life that the change replaced. None without a
/// journal.
pub(super) fn failures(unit: &str, since_unix_s: f64, replaced: &str) -> Option<u32> {
    Some(count(&read(unit, since_unix_s)?, replaced))
}

/// Whether a job stopped this life of the unit.
pub(super) fn was_stopped(unit: &str, since_unix_s: f64, life: &str) -> bool {
    let text = read(unit, since_unix_s).unwrap_or_default();
    entries(&text).any(|entry| entry.message_id == STOPPING && entry.life == life)
}

fn read(unit: &str, since_unix_s: f64) -> Option<String> {
    let output = Command::new("journalctl")
        .args(["--quiet", "--no-pager", "--output=json", "--output-fields=MESSAGE_ID,INVOCATION_ID"])
        .args(["--since", &format!("@{since_unix_s:.6}"), &format!("UNIT={unit}")])
        .args([format!("MESSAGE_ID={FAILED}"), format!("MESSAGE_ID={STOPPING}")])
        .stdin(Stdio::null())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn entries(text: &str) -> impl Iterator<Item = Entry> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn count(text: &str, replaced: &str) -> u32 {
    let mut stopped = HashSet::from([replaced.to_owned()]);
    let mut failures = 0;
    for entry in entries(text) {
        // systemd of an older version names no life: then the next failure is that of the stop.
        if entry.message_id == STOPPING {
            stopped.insert(entry.life);
        } else if entry.life.is_empty() {
            failures += u32::from(!stopped.remove(""));
        } else {
            failures += u32::from(!stopped.contains(&entry.life));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, life: &str) -> String {
        format!("{{\"MESSAGE_ID\":\"{id}\",\"INVOCATION_ID\":\"{life}\",\"__CURSOR\":\"s=1\"}}\n")
    }

    #[test]
    fn the_end_of_what_was_stopped_is_no_failure() {
        assert_eq!(count(&line(FAILED, "a"), "x"), 1);
        assert_eq!(count(&line(FAILED, "a"), "a"), 0, "the change replaced it");
        assert_eq!(count(&(line(STOPPING, "b") + &line(FAILED, "b")), "a"), 0, "an operator restarted it");
        assert_eq!(count(&(line(FAILED, "b") + &line(STOPPING, "b")), "a"), 1, "it failed before");
        assert_eq!(count(&(line(STOPPING, "b") + &line(FAILED, "c")), "a"), 1, "another life failed");
        assert_eq!(count("", "a"), 0);
    }

    #[test]
    fn a_journal_that_names_no_life_pairs_each_stop_with_one_failure() {
        let bare = |id: &str| format!("{{\"MESSAGE_ID\":\"{id}\"}}\n");
        assert_eq!(count(&(bare(STOPPING) + &bare(FAILED) + &bare(FAILED)), "a"), 1);
    }
}
