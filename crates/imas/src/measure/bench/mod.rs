// SPDX-License-Identifier: Apache-2.0
//! `imas bench`: runs a command under every candidate, interleaved, and compares the runs.

mod collected;
pub(crate) mod export;
mod least_memory;
mod least_report;
pub(crate) mod progress;
mod result;
mod service;
mod service_definition;
mod service_report;
mod service_rounds;
mod session;
mod shown;
mod variant;

use std::process::ExitCode;

use anyhow::Result;
use imas_engine::compared::{ComparedCandidate, DefaultComparison, compared_with_inline};
use imas_engine::entry;
use imas_engine::inline_candidate::inline_candidates;
use imas_linux::host::Host;
use imas_linux::program::CommandError;
use imas_report::bench::BenchReport;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_store::Store;

use crate::command_line::bench_args::BenchArgs;
use export::Baseline;
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;
use session::{CommandSession, SessionOutcome};
use variant::{Input, variants};

/// Exit status when the program itself fails under `system`, or a figure has grown beyond its limit.
const NO: u8 = 1;

pub(crate) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode> {
    // A command that cannot be started ends as with env(1) and `imas run`.
    bench(args, context).or_else(|error| error.downcast::<CommandError>().map(entry::exit_status))
}

fn bench(args: &BenchArgs, context: &Context) -> Result<ExitCode> {
    args.look.style.choose_colours();
    variant::refuse_late_options(args)?;
    if args.server.is_given() {
        return service::run(args, context);
    }
    if let Some(option) = args.server.stray() {
        return Err(Hinted::error(
            format!("{option} is for a server, and none is described"),
            "give --ready and --load, or --service FILE.toml; docs/services.md shows how",
        ));
    }
    check_files(args)?;
    // A store is welcome (it remembers probes and crashes) but not needed.
    let store = context.open_store().inspect_err(message::error).ok();
    let with = args.with();
    let inline = inline_candidates(&with, context)?;
    if let Some(trimmed) = inline.iter().find(|candidate| candidate.trims) {
        return Err(Hinted::error(
            format!("{}: trims are for servers, and this is a command that ends", trimmed.name),
            "describe a server with --ready and --load; docs/services.md shows how",
        ));
    }
    let compared =
        compared_with_inline(&with, &inline, DefaultComparison::DefaultSet, context, store.as_ref())?;
    let bench = Bench {
        args,
        context,
        store: store.as_ref(),
        compared: &compared,
        baseline: args.baseline.baseline.as_deref().map(Baseline::read).transpose()?,
        input: Input::of(args.input.as_deref())?,
    };
    bench.run()
}

/// The files that the user named must not fail when half is measured.
fn check_files(args: &BenchArgs) -> Result<()> {
    if let Some(input) = &args.input {
        std::fs::File::open(input).map_err(|error| {
            Hinted::error(
                format!("{} cannot be read: {error}", input.display()),
                "--input names the file that the command reads as its standard input",
            )
        })?;
    }
    export::check(args)
}

/// All commands of one call.
struct Bench<'a> {
    args: &'a BenchArgs,
    context: &'a Context,
    store: Option<&'a Store>,
    compared: &'a [ComparedCandidate<'a>],
    baseline: Option<Baseline>,
    input: Input,
}

impl Bench<'_> {
    fn run(&self) -> Result<ExitCode> {
        let variants = variants(self.args)?;
        let mut sessions = vec![];
        for variant in &variants {
            let session = CommandSession::new(self.args, self.context, self.store, variant, &self.input)?;
            if let Some(baseline) = &self.baseline {
                baseline.of_command(&session.words())?;
            }
            sessions.push(session);
        }
        let interruption = Interruption::watch()?;
        let mut reports: Vec<BenchReport<Host>> = vec![];
        let mut early = None;
        for session in &sessions {
            match session.run(self.compared, &interruption)? {
                SessionOutcome::Stopped(code) => early = Some(code),
                SessionOutcome::Measured { mut report, signal } => {
                    if let Some(baseline) = &self.baseline {
                        baseline.check(&mut report, self.args)?;
                    }
                    shown::show(self.args, &report, session)?;
                    reports.push(*report);
                    early = signal.map(|signal| ExitCode::from(InterruptedBy(signal).exit_status()));
                }
            }
            if early.is_some() {
                break;
            }
        }
        self.finish(&reports)?;
        Ok(early.unwrap_or_else(|| exit_code(&reports)))
    }

    /// Writes what was measured, however the bench ended.
    fn finish(&self, reports: &[BenchReport<Host>]) -> Result<()> {
        if reports.is_empty() {
            return Ok(());
        }
        if reports.len() > 1 {
            shown::overview(self.args, reports)?;
        }
        if let Some(file) = &self.args.exports.export_junit {
            export::to(file, &export::xml(reports)?)?;
        }
        export::write(self.args, reports)
    }
}

fn exit_code(reports: &[BenchReport<Host>]) -> ExitCode {
    if reports.iter().any(BenchReport::has_failed) { ExitCode::from(NO) } else { ExitCode::SUCCESS }
}
