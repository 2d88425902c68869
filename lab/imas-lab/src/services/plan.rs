// SPDX-License-Identifier: Apache-2.0
//! How long the rounds take that are missing, service by service.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::{output, table};

use super::rounds::ServicePlan;

/// Prints the plan.
pub(super) fn print(plan: &[ServicePlan]) -> Result<ExitCode> {
    output::text(&text(plan))?;
    Ok(ExitCode::SUCCESS)
}

fn text(plan: &[ServicePlan]) -> String {
    let minutes = |one: &ServicePlan| one.runs.map(|runs| f64::from(runs) * one.run_s / 60.0);
    let row = |one: &ServicePlan| {
        let seconds = format!("{:.0}{}", one.run_s, if one.is_known { "" } else { " (assumed)" });
        let own = [one.service.clone(), seconds, one.rounds.to_string()];
        let runs = one.runs.map(|runs| runs.to_string());
        own.into_iter().chain(runs).chain(minutes(one).map(|minutes| format!("{minutes:.0}"))).collect()
    };
    let heads = ["service", "s/run", "rounds left", "runs, fewest", "most", "minutes, fewest", "most"];
    let hours = plan.iter().map(minutes).fold([0.0, 0.0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    format!(
        "{}\n{}: {:.1} to {:.1} hours. Fewest: every candidate but those for all leaves after two rounds. Sets-up \
         are not counted.\n",
        table::plain(&heads, plan.iter().map(row)),
        counted(plan.len(), "service"),
        hours[0] / 60.0,
        hours[1] / 60.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_added_up() {
        let one = |service: &str, run_s, is_known| ServicePlan {
            service: service.to_owned(),
            run_s,
            is_known,
            rounds: 6,
            runs: [30, 60],
        };
        let text = text(&[one("web", 40.0, true), one("db", 60.0, false)]);
        assert!(text.contains("2 services: 0.8 to 1.7 hours") && text.contains("60 (assumed)"), "{text}");
    }
}
