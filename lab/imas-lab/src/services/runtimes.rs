// SPDX-License-Identifier: Apache-2.0
//! Services of language runtimes: what the picks gain on rounds that did not choose them, and each service under each
//! setting of its runtime.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::message::Hinted;
use imas_cli::table::Table;
use imas_cli::{format, output};
use imas_study::services::{JUDGED, RoundChanges, RuntimePicks, services_by_runtime};
use serde_json::json;

use super::journal::read_several;
use super::show::{compared, measured};

#[derive(Debug, Args)]
pub(super) struct RuntimesArgs {
    /// Journals, or files of 'imas bench --service FILE --export-runs'
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Print the tables as Markdown, as docs/runtimes.md has them
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON instead of the tables
    #[arg(long)]
    json: bool,
}

/// Prints what the picks gain for the services of each runtime.
pub(super) fn runtimes(args: &RuntimesArgs) -> Result<ExitCode> {
    let runs = read_several(&args.files)?.runs;
    let compared = compared(&runs, false);
    let services = measured(&compared, &runs);
    let tables = services_by_runtime(&services);
    if tables.is_empty() {
        return Err(Hinted::error(
            "no service of these files ran under settings of its language runtime",
            "'imas-lab services run --with settings' measures them",
        ));
    }
    let picks = RuntimePicks::all(&RoundChanges::of_all(&runs));
    if args.json {
        output::json(&json!({ "schema": 1, "picks": picks, "services": compared }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let form = |table: &Table| if args.markdown { table.markdown() } else { table.plain() };
    let of_runtimes = tables.iter().map(|(runtime, table)| format!("{}\n\n{}", runtime.name(), form(table)));
    let gained = match picks.is_empty() {
        true => "Nothing can be judged: no service has two rounds\n".to_owned(),
        false => format!("{}\n{}", aim(&picks), form(&RuntimePicks::table(&picks))),
    };
    let parts: Vec<String> = std::iter::once(gained).chain(of_runtimes).collect();
    output::text(&parts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Resources that the leanest picks of all services take, beside what they are to take.
fn aim(picks: &[RuntimePicks]) -> String {
    let all = picks.iter().filter(|one| one.runtime.is_none() && one.aim == "leanest" && !one.is_proven);
    let mean = |one: &RuntimePicks, figure: &str| {
        let at = JUDGED.iter().position(|judged| *judged == figure)?;
        // One service has no interval over the services.
        one.ratios[at].map(|ratio| match one.services {
            1 => format::percent(ratio.mid),
            _ => format::change(&ratio),
        })
    };
    let text = |one: &RuntimePicks| {
        let cpu = mean(one, "cpu").unwrap_or_else(|| "unknown".to_owned());
        Some(format!(
            "Leanest picks: memory {} (aim: -30 %), CPU {cpu} (aim: +5 % at most).\n",
            mean(one, "memory")?
        ))
    };
    all.filter_map(text).collect()
}
