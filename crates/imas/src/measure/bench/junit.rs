// SPDX-License-Identifier: Apache-2.0
//! Results of the rules as JUnit XML, which CI systems show.

use anyhow::Result;
use imas_core::bench::{BaselineCheck, CheckStatus};
use imas_linux::host::Host;
use imas_report::bench::{BenchReport, check_text};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

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
