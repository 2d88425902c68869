// SPDX-License-Identifier: Apache-2.0
//! The check of `--fail-if` against an earlier result.

use std::path::{Path, PathBuf};

use anyhow::Result;
use imas_core::bench::{CandidateRuns, check_against};
use imas_core::candidate::SYSTEM;
use imas_linux::host::Host;
use imas_report::bench::{BenchReport, CandidateReport};
use serde_json::Value;

use crate::command_line::bench_args::BenchArgs;
use imas_cli::message::Hinted;

/// The results of `--baseline`.
pub(super) struct Baseline {
    file: PathBuf,
    results: Vec<BenchReport<Value>>,
}

impl Baseline {
    /// A file of `--export-json`, of one command or of several.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let named = |error: &dyn std::fmt::Display| {
            Hinted::error(
                format!("{}: {error}", file.display()),
                "--baseline names a file that 'imas bench --export-json' wrote; make one on the commit that is compared with",
            )
        };
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        let read = || -> serde_json::Result<Vec<BenchReport<Value>>> {
            let mut value: Value = serde_json::from_str(&text)?;
            match value.get_mut("results") {
                Some(results) => serde_json::from_value(results.take()),
                None => Ok(vec![serde_json::from_value(value)?]),
            }
        };
        Ok(Self { file: file.to_owned(), results: read().map_err(|error| named(&error))? })
    }

    /// The result of the command with these words.
    pub(super) fn of_command(&self, command: &[String]) -> Result<&BenchReport<Value>> {
        self.results.iter().find(|result| result.command == command).ok_or_else(|| {
            let there: Vec<String> = self.results.iter().map(|result| result.command.join(" ")).collect();
            Hinted::error(
                format!("{} has no result of this command", self.file.display()),
                format!("it is of: {}", there.join("; ")),
            )
        })
    }

    /// Applies the rules to the report.
    pub(super) fn check(&self, report: &mut BenchReport<Host>, args: &BenchArgs) -> Result<()> {
        let before = self.of_command(&report.command)?;
        let names = names(report, args);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let is_same = is_same_machine(&before.host, &report.host);
        if !is_same {
            report
                .notes
                .push("the baseline is of another machine: its times are not compared with these".to_owned());
        }
        report.checks = check_against(
            &runs(&before.candidates),
            &runs(&report.candidates),
            &names,
            &args.baseline.fail_if,
            is_same,
        );
        Ok(())
    }
}

/// `system`, and what `--with` names.
fn names(report: &BenchReport<Host>, args: &BenchArgs) -> Vec<String> {
    let is_default = args.with().is_empty();
    let is_checked = |one: &&CandidateReport| one.name == SYSTEM || (!is_default && one.available);
    report.candidates.iter().filter(is_checked).map(|one| one.name.clone()).collect()
}

fn runs(candidates: &[CandidateReport]) -> Vec<CandidateRuns> {
    candidates.iter().map(|one| CandidateRuns { name: one.name.clone(), runs: one.runs.clone() }).collect()
}

/// Whether the machine then had the same kind of CPU, and as many.
fn is_same_machine(before: &Value, now: &Host) -> bool {
    let now = serde_json::to_value(now).unwrap_or_default();
    ["machine", "cpu", "cpus"].into_iter().all(|key| before.get(key) == now.get(key))
}
