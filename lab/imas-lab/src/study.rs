// SPDX-License-Identifier: Apache-2.0
//! `imas-lab study`: the published experiments, run again; findings beside the printed ones, errors with their hints.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_cli::{output, table};
use imas_engine::context::Context;
use imas_engine::flags::Places;
use imas_study::{
    FitOptions, FreelistOptions, MobileOptions, Progress, SelectorOptions, Study, fit, freelist, mobile,
    selector,
};
use indicatif::ProgressBar;
use serde_json::json;

use crate::mobile::hinted;
use crate::study_args::{StudyArgs, StudyName};

pub(crate) fn run(args: &StudyArgs, places: &Places) -> Result<ExitCode> {
    match (args.name, args.data.is_empty()) {
        (StudyName::Selector, true) => {
            return Err(Hinted::error(
                "study selector needs raw runs",
                "make them with 'imas-lab suite run' or 'imas bench --export-runs', then give the files: --data FILE...",
            ));
        }
        (StudyName::Freelist | StudyName::Fit, false) => {
            return Err(Hinted::error(
                "--data is for 'study selector' and 'study mobile'",
                "the other studies make their own runs; leave it out",
            ));
        }
        _ => (),
    }
    refuse_strange_flags(args)?;
    let bar = ProgressBar::no_length();
    let shown = bar.clone();
    let progress = Progress::new(move |done, of| {
        shown.set_length(of);
        shown.set_position(done);
    });
    let study = study(args, places, progress)?;
    bar.finish_and_clear();
    let written = study.write(&args.out).map_err(hinted)?;
    if args.json.json {
        output::json(&json!({ "schema": 1, "study": study, "written": written }))?;
    } else {
        output::text(&page(&study))?;
        output::text(&format!("written: {}", args.out.join(format!("{}.html", study.id)).display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A flag of another study would do nothing.
fn refuse_strange_flags(args: &StudyArgs) -> Result<()> {
    let makes_runs = [StudyName::Mobile, StudyName::Replay].contains(&args.name);
    let strange = [
        (
            args.name != StudyName::Mobile && !args.mobile.is_untouched(),
            "--iterations and --parts are for 'study mobile'",
        ),
        (
            !makes_runs && !args.run.is_untouched(),
            "--rounds, --with, --resume and --install are for 'study mobile' and 'study replay'",
        ),
        (
            args.name != StudyName::Replay && !args.replay.is_untouched(),
            "--live, --only, --set, --limit, --replays, --note and --reliability are for 'study replay'",
        ),
    ];
    match strange.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(Hinted::error(what, "leave them out")),
        None => Ok(()),
    }
}

/// Runs the study that the arguments name. Studies that only read figures made before need no allocators.
fn study(args: &StudyArgs, places: &Places, progress: Progress) -> Result<Study> {
    let study = match args.name {
        StudyName::Freelist => {
            let default = FreelistOptions::new(&Context::new(places)?.lib_dir);
            freelist(&FreelistOptions { seeds: args.seeds.unwrap_or(default.seeds), progress, ..default })
        }
        StudyName::Fit => {
            let default = FitOptions::new(&Context::new(places)?.lib_dir);
            fit(&FitOptions { seeds: args.seeds.unwrap_or(default.seeds), progress, ..default })
        }
        StudyName::Selector => {
            let default = SelectorOptions::new(args.data.clone());
            selector(&SelectorOptions { splits: args.seeds.unwrap_or(default.splits), progress, ..default })
        }
        StudyName::Mobile if args.data.is_empty() => {
            mobile(&MobileOptions { data: vec![crate::mobile::run(args, &Context::new(places)?)?] })
        }
        StudyName::Replay => return crate::replay::study(args, places),
        StudyName::Mobile => mobile(&MobileOptions { data: args.data.clone() }),
    };
    study.map_err(hinted)
}

/// Tables that are the answer rather than the evidence.
const TOTALS: [&str; 9] = [
    "aims",
    "aims-everyday",
    "totals",
    "totals-everyday",
    "leads",
    "runtimes",
    "choices",
    "agreement",
    "reasons",
];

fn page(study: &Study) -> String {
    // The remarks are sentences: they are in the page and in the CSV, a terminal has no room for them.
    let rows = study
        .findings
        .iter()
        .map(|f| vec![f.claim.clone(), f.printed.clone(), f.ours.clone(), f.verdict.to_string()]);
    let mut text = format!("{}\n{}\n\n", study.title, study.paper);
    if !study.findings.is_empty() {
        text.push_str(&table::plain(&["finding", "printed", "ours", "verdict"], rows));
    }
    for shown in study.tables.iter().filter(|t| TOTALS.contains(&t.id.as_str())) {
        let columns: Vec<&str> = shown.columns.iter().map(String::as_str).collect();
        // The note beside a figure is for the page, as the remarks are.
        let width = columns.iter().position(|name| *name == "beside it").unwrap_or(columns.len());
        let rows = shown.rows.iter().map(|row| row[..width].to_vec());
        text.push_str(&format!("\n{}\n{}", shown.title, table::plain(&columns[..width], rows)));
    }
    text
}
