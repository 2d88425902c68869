// SPDX-License-Identifier: Apache-2.0
//! Runs against the runs of an earlier benchmark of the same command, for a check in CI.
//!
//! A rule fails where the whole interval ([`ratio_after`]) lies beyond its limit. All checks of one benchmark share
//! the error of 5 %.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::eligibility::{CandidateRuns, prepare};
use crate::compare::ratio_after;
use crate::run::RawRun;
use crate::stats::Interval;

/// Figure that a rule is about.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum BaselineFigure {
    /// Elapsed time.
    Wall,
    /// User and system CPU time, normalised where the pace is known.
    Cpu,
    /// Peak of resident anonymous memory.
    Peak,
    /// Mean of resident anonymous memory.
    Mean,
}

const FIGURES: [(&str, BaselineFigure); 4] = [
    ("wall", BaselineFigure::Wall),
    ("cpu", BaselineFigure::Cpu),
    ("peak", BaselineFigure::Peak),
    ("mean", BaselineFigure::Mean),
];

impl BaselineFigure {
    fn of(self, run: &RawRun) -> f64 {
        match self {
            Self::Wall => run.wall_s,
            Self::Cpu => run.compared_cpu_s(),
            Self::Peak => run.peak_bytes as f64,
            Self::Mean => run.mean_bytes as f64,
        }
    }

    /// Whether the figure depends on how fast the machine is.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Wall | Self::Cpu)
    }
}

/// Rule like `cpu>3%`: it fails when the figure has grown by more than that.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct FailRule {
    /// The figure that may not grow.
    pub figure: BaselineFigure,
    /// Fraction by which it may grow (0.03 = 3 %).
    pub most: f64,
}

impl FromStr for FailRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write a figure (wall, cpu, peak, mean), '>' and per cent, such as 'cpu>3%'".to_owned();
        let (figure, limit) = text.split_once('>').ok_or_else(form)?;
        let figure = FIGURES.iter().find(|(name, _)| *name == figure.trim()).ok_or_else(form)?.1;
        let percent = limit.trim().strip_suffix('%').ok_or_else(form)?.trim();
        let percent: f64 = percent.parse().map_err(|_| form())?;
        if !(0.0..=1000.0).contains(&percent) {
            return Err("the limit is from 0 % to 1000 %".to_owned());
        }
        Ok(Self { figure, most: percent / 100.0 })
    }
}

impl std::fmt::Display for FailRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = FIGURES.iter().find(|(_, figure)| *figure == self.figure).map_or("", |(name, _)| name);
        let percent = (self.most * 1e6).round() / 1e4;
        f.pad(&format!("{name}>{percent}%"))
    }
}

/// Result of one rule for one candidate.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStatus {
    /// The figure has grown by more than the rule allows, beyond the noise.
    Failed,
    /// The figure is not shown to have grown by more than the rule allows.
    Passed,
    /// The figure cannot be compared with the baseline.
    NotComparable,
}

/// One rule, applied to one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct BaselineCheck {
    /// The candidate that it is about.
    pub candidate: String,
    /// The rule.
    pub rule: FailRule,
    /// The figure by the baseline's.
    pub ratio: Option<Interval>,
    /// Result of the rule.
    pub status: CheckStatus,
}

/// Applies every rule to these candidates. `is_same_machine`: whether times may be compared.
pub fn check_against(
    before: &[CandidateRuns],
    now: &[CandidateRuns],
    candidates: &[&str],
    rules: &[FailRule],
    is_same_machine: bool,
) -> Vec<BaselineCheck> {
    let (before, now) = prepared_together(before, now);
    let checks = candidates.len() * rules.len();
    let of = |runs: &[CandidateRuns], name: &str, figure| {
        runs.iter().find(|one| one.name == name).map(|one| logarithms(one, figure)).unwrap_or_default()
    };
    let check = |name: &str, rule: FailRule| {
        let may_compare = is_same_machine || !rule.figure.is_time();
        let ratio = ratio_after(&of(&before, name, rule.figure), &of(&now, name, rule.figure), checks);
        let ratio = ratio.filter(|_| may_compare);
        let status = match ratio {
            None => CheckStatus::NotComparable,
            Some(ratio) if ratio.lo > 1.0 + rule.most => CheckStatus::Failed,
            Some(_) => CheckStatus::Passed,
        };
        BaselineCheck { candidate: name.to_owned(), rule, ratio, status }
    };
    candidates
        .iter()
        .flat_map(|name| rules.iter().map(move |rule| (name, rule)))
        .map(|(n, r)| check(n, *r))
        .collect()
}

/// CPU times of both at the same pace of the CPU.
fn prepared_together(
    before: &[CandidateRuns],
    now: &[CandidateRuns],
) -> (Vec<CandidateRuns>, Vec<CandidateRuns>) {
    let mut all: Vec<CandidateRuns> = before.iter().chain(now).cloned().collect();
    prepare(&mut all);
    let now = all.split_off(before.len());
    (all, now)
}

fn logarithms(runs: &CandidateRuns, figure: BaselineFigure) -> Vec<f64> {
    let succeeded = runs.runs.iter().filter(|run| run.exit == 0);
    succeeded.map(|run| figure.of(run)).filter(|figure| *figure > 0.0).map(f64::ln).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, cpu: &[f64]) -> CandidateRuns {
        let run = |&user_s: &f64| RawRun { user_s, peak_bytes: 1 << 20, ..RawRun::default() };
        CandidateRuns { name: name.into(), runs: cpu.iter().map(run).collect() }
    }

    fn status(before: &[f64], now: &[f64], rule: &str) -> CheckStatus {
        let rules = [rule.parse().unwrap()];
        check_against(&[runs("system", before)], &[runs("system", now)], &["system"], &rules, true)[0].status
    }

    #[test]
    fn a_rule_fails_only_where_the_interval_proves_it() {
        let before = [1.00, 1.01, 0.99, 1.00, 1.01];
        assert_eq!(status(&before, &[1.20, 1.21, 1.19, 1.20, 1.22], "cpu>3%"), CheckStatus::Failed);
        assert_eq!(status(&before, &[1.20, 1.21, 1.19, 1.20, 1.22], "cpu>25%"), CheckStatus::Passed);
        assert_eq!(status(&before, &[0.9, 1.5, 1.0, 1.4, 1.1], "cpu>3%"), CheckStatus::Passed, "noise");
        assert_eq!(status(&before, &[1.5, 1.5], "cpu>3%"), CheckStatus::NotComparable, "too few");
        assert_eq!(status(&before, &before, "peak>0%"), CheckStatus::Passed);
        assert_eq!(status(&before, &before, "wall>0%"), CheckStatus::NotComparable, "was not measured");
    }

    #[test]
    fn another_machine_has_other_times_and_the_same_memory() {
        let rules = ["cpu>3%", "peak>3%"].map(|rule| rule.parse().unwrap());
        let (before, now) = ([runs("system", &[1.0; 4])], [runs("system", &[2.0; 4])]);
        let checks = check_against(&before, &now, &["system"], &rules, false);
        let status: Vec<CheckStatus> = checks.iter().map(|check| check.status).collect();
        assert_eq!(status, [CheckStatus::NotComparable, CheckStatus::Passed]);
    }

    #[test]
    fn rules_are_read_and_written() {
        assert_eq!("peak > 2.5 %".parse::<FailRule>().unwrap().to_string(), "peak>2.5%");
        for wrong in ["", "cpu", "cpu>3", "cpu<3%", "speed>3%", "cpu>x%", "cpu>-1%", "cpu>NaN%"] {
            assert!(wrong.parse::<FailRule>().is_err(), "{wrong}");
        }
    }
}
