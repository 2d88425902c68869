// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` into files, `-` is standard output; the check of `--fail-if` against an earlier result; and
//! the results of its rules as JUnit XML, which CI systems show.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;
use imas_cli::output::{self, is_stdout};
use imas_cli::output_file;
use imas_core::bench::{BaselineCheck, CandidateRuns, CheckStatus, check_against};
use imas_core::candidate::SYSTEM;
use imas_linux::host::Host;
use imas_report::bench::{BenchLayout, BenchReport, CandidateReport, check_text};
use imas_runs::journal::Journal;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::Value;

use crate::command_line::bench_args::BenchArgs;

/// Options and the files that they name.
fn named(args: &BenchArgs) -> impl Iterator<Item = (&'static str, &Path)> {
    let all = [
        ("--export-json", &args.exports.export_json),
        ("--export-csv", &args.exports.export_csv),
        ("--export-markdown", &args.exports.export_markdown),
        ("--export-runs", &args.exports.export_runs),
        ("--export-junit", &args.exports.export_junit),
    ];
    all.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?)))
}

/// Options that have standard output to themselves: nothing for people may be among it.
fn on_stdout(args: &BenchArgs) -> impl Iterator<Item = &'static str> {
    named(args).filter(|(_, file)| is_stdout(file)).map(|(option, _)| option)
}

/// Whether an option has standard output to itself.
pub(crate) fn takes_stdout(args: &BenchArgs) -> bool {
    on_stdout(args).next().is_some()
}

/// The file of raw runs, to which each run is appended.
pub(crate) fn journal(file: &Path) -> Result<Journal> {
    if is_stdout(file) {
        return Ok(Journal::stdout());
    }
    Journal::open(file).with_context(|| file.display().to_string())
}

/// Finds out before anything is measured whether the files can be written: the result of an hour must not be
/// lost at its end.
pub(crate) fn check(args: &BenchArgs) -> Result<()> {
    let others = [(args.json, "--json"), (args.show_output, "--show-output")];
    let others = others.into_iter().filter_map(|(is_given, option)| is_given.then_some(option));
    let writing: Vec<&str> = on_stdout(args).chain(others).collect();
    if takes_stdout(args) && writing.len() > 1 {
        return Err(Hinted::error(
            format!("{} would be mixed on standard output", writing.join(" and ")),
            "name a file in place of -, or leave the others out",
        ));
    }
    for (_, file) in named(args).filter(|(_, file)| !is_stdout(file)) {
        // A file that is there is opened; beside one that is not, nothing is left should the measuring be
        // interrupted.
        let tried = match std::fs::metadata(file) {
            Ok(_) => output_file::open_to_append(file).map(drop),
            Err(_) => tempfile::tempfile_in(folder_of(file)).map(drop),
        };
        tried.map_err(|error| cannot_write(file, &error))?;
    }
    Ok(())
}

/// The folder of a file that is named as the user typed it.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> anyhow::Error {
    Hinted::error(
        format!("{} cannot be written: {error}", file.display()),
        "name a file in a folder that is there and yours, or - for standard output",
    )
}

/// The JSON alone, of whatever report.
pub(crate) fn json(args: &BenchArgs, report: &impl serde::Serialize) -> Result<()> {
    match &args.exports.export_json {
        Some(file) if is_stdout(file) => output::json(report),
        Some(file) => to(file, &(serde_json::to_string_pretty(report)? + "\n")),
        None => Ok(()),
    }
}

/// The results of several commands as one document.
#[derive(serde::Serialize)]
struct Results<'a> {
    schema: u32,
    results: &'a [BenchReport<Host>],
}

/// Every export that was asked for, and the JSON on standard output.
pub(crate) fn write(args: &BenchArgs, reports: &[BenchReport<Host>]) -> Result<()> {
    match reports {
        [report] => as_json(args, report)?,
        results => as_json(args, &Results { schema: 1, results })?,
    }
    if let Some(file) = &args.exports.export_csv {
        to(file, &String::from_utf8(BenchReport::csv(reports)?)?)?;
    }
    if let Some(file) = &args.exports.export_markdown {
        let look = &args.look;
        let layout = BenchLayout { columns: look.columns.clone(), sort: look.sort, width: None };
        let sections: Vec<String> = reports.iter().map(|report| report.markdown(&layout)).collect();
        to(file, &sections.join("\n\n"))?;
    }
    Ok(())
}

fn as_json(args: &BenchArgs, value: &impl serde::Serialize) -> Result<()> {
    if args.json {
        output::json(value)?;
    }
    json(args, value)
}

pub(crate) fn to(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return output::text(text);
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    output_file::write(file, format!("{text}{end}").as_bytes()).map_err(|error| cannot_write(file, &error))
}

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

/// A suite for each command, a case for each rule and candidate.
pub(super) fn xml(reports: &[BenchReport<Host>]) -> Result<String> {
    let mut all = Report::new("imas bench");
    all.add_test_suites(reports.iter().map(suite));
    Ok(all.to_string()?)
}

fn suite(report: &BenchReport<Host>) -> TestSuite {
    let mut suite = TestSuite::new(report.command.join(" "));
    suite.add_test_cases(report.checks.iter().map(case));
    suite
}

fn case(check: &BaselineCheck) -> TestCase {
    let text = check_text(check);
    let status = match check.status {
        CheckStatus::Passed => TestCaseStatus::success(),
        CheckStatus::NotComparable => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_message(&text);
            skipped
        }
        CheckStatus::Failed => {
            let mut failed = TestCaseStatus::non_success(NonSuccessKind::Failure);
            failed.set_message(&text);
            failed
        }
    };
    let mut case = TestCase::new(format!("{} under {}", check.rule, check.candidate), status);
    case.set_classname("imas bench");
    case.set_system_out(text);
    case
}
