// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` of a server: a table for people, JSON for the rest; with what a reader of the figures should
//! know, and how the pick is used.

use std::path::Path;

use anyhow::{Context as _, Result};
use imas_cli::format::{self, counted};
use imas_cli::{message, output, table};
use imas_core::compare::NoiseFloor;
use imas_core::run::RawRun;
use imas_core::server_bench::{ComparedFigure, GuardRail, ServiceComparison};
use imas_core::server_run::CpuShare;
use imas_engine::compared::ComparedCandidate;
use imas_engine::inline_candidate::TRIMS;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::{self, Host};
use imas_report::bench::{RoundsEnd, RoundsMade};
use imas_report::service::{self, MeasuredService, value};
use imas_runs::service::{Service, ServiceExecutor};
use serde::Serialize;

use super::service_definition::hinted;
use super::shown::{self, pinnable};
use crate::command_line::bench_args::{BenchArgs, OneCpuName};

/// The jemalloc that shows its own functions to the program.
const DISTRO_JEMALLOC: &str = "distro-jemalloc";

/// The shape of `--json` and `--export-json`.
#[derive(Debug, Serialize)]
pub(super) struct ServiceReport {
    pub(super) schema: u32,
    pub(super) kind: &'static str,
    pub(super) service: Service,
    pub(super) command: Vec<String>,
    pub(super) began_unix_s: f64,
    pub(super) seed: u64,
    pub(super) host: Host,
    pub(super) cpus: CpuShare,
    pub(super) at_most: Vec<GuardRail>,
    /// Worth of 1 % of CPU time in per cent of memory.
    pub(super) worth_of_cpu: f64,
    pub(super) comparison: ServiceComparison,
    /// Result in words.
    pub(super) sentence: String,
    pub(super) rounds: RoundsMade,
    /// Candidates that could not be used, and why.
    pub(super) unusable: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    pub(super) runs: Vec<RawRun>,
}

impl ServiceReport {
    /// A row for each candidate.
    pub(super) fn table(&self, width: usize) -> String {
        service::terminal_table(&self.comparison, &self.unusable, width)
    }

    /// How far two runs under `system` in one round differ: what the bench cannot see. None where there is one such run
    /// a round.
    pub(super) fn noise(&self) -> Option<String> {
        let one =
            |(figure, floor): (&String, &NoiseFloor)| format!("{figure} {:.1} %", floor.deviation * 100.0);
        let all: Vec<String> = self.comparison.noise.iter().map(one).collect();
        (!all.is_empty()).then(|| {
            format!("two runs under system in one round differ by (standard deviation): {}", all.join(", "))
        })
    }

    /// The report as a page for a browser.
    pub(super) fn html(&self) -> String {
        let service = MeasuredService {
            name: &self.service.name,
            comparison: &self.comparison,
            runs: self.runs.iter().collect(),
        };
        let command = format!("Command: {}", self.command.join(" "));
        let notes = std::iter::once(command).chain(self.noise()).chain(self.notes.iter().cloned());
        let notes: Vec<String> = notes.collect();
        service::page(&self.service.name, &[service], &notes).render()
    }

    /// All figures of `system` and of the pick.
    pub(super) fn figures(&self) -> String {
        let of = |name: &str| self.comparison.named(name);
        let Some(system) = of(imas_core::SYSTEM).filter(|one| !one.figures.is_empty()) else {
            return String::new();
        };
        let pick = of(self.comparison.pick()).filter(|one| one.name != system.name);
        let mut head = vec!["figure", "system"];
        head.extend(pick.map(|pick| [pick.name.as_str(), "vs system"]).into_iter().flatten());
        let rows = system.figures.iter().map(|(name, figure)| {
            let mut row = vec![name.clone(), value(figure)];
            let other = pick.map(|pick| pick.figures.get(name));
            row.extend(
                other.into_iter().flat_map(|other| [other.map(value).unwrap_or_default(), change(other)]),
            );
            row
        });
        table::plain(&head, rows)
    }
}

fn change(figure: Option<&ComparedFigure>) -> String {
    let ratio = figure.and_then(|figure| figure.ratio);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format::change(&ratio))
}

/// A session whose result is shown.
pub(super) struct ShownSession<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) chosen: &'a [ComparedCandidate<'a>],
    pub(super) executor: &'a ServiceExecutor,
    /// The machine's load before the first run, where it was busy.
    pub(super) busy: Option<f64>,
}

impl ShownSession<'_> {
    /// Writes the files, and prints the result.
    pub(super) fn write(&self, report: &ServiceReport) -> Result<()> {
        crate::measure::bench::export::json(self.args, report)?;
        if let Some(file) = &self.args.server.html {
            imas_cli::output_file::write(file, report.html().as_bytes())
                .with_context(|| file.display().to_string())?;
        }
        if self.args.json {
            return output::json(report);
        }
        let seen = imas_report::service::could_have_seen(&report.comparison);
        let held = imas_report::service::where_memory_is(&report.runs);
        let below: String = seen.into_iter().chain(held).map(|line| format!("{line}\n")).collect();
        let text = format!(
            "\n{}\n{}\n{below}\n{}\n{}",
            report.table(shown::width(self.args)),
            report.sentence,
            report.figures(),
            self.how_to_use(report)?
        );
        match crate::measure::bench::export::takes_stdout(self.args) {
            true => message::say(text.trim_end_matches('\n')),
            false => output::text(&text)?,
        }
        let told = report.rounds.note().filter(|_| report.rounds.ended == RoundsEnd::Interrupted);
        let notes = match self.args.look.verbose {
            true => report.noise().into_iter().chain(report.notes.iter().cloned()).collect(),
            false => told.into_iter().chain(self.noise_line(report)).collect::<Vec<_>>(),
        };
        notes.iter().for_each(|note| message::say(&format!("imas: note: {note}")));
        Ok(())
    }

    /// Load and noise, as one line.
    fn noise_line(&self, report: &ServiceReport) -> Option<String> {
        let load = self.busy.map(|load| format!("load {load:.0} on {}", counted(host::cpus(), "CPU")));
        let floor = |figure: &str| {
            let floor = report.comparison.noise.get(figure)?;
            Some(format!("{figure} +-{:.0} %", floor.deviation * 100.0))
        };
        let parts: Vec<String> =
            load.into_iter().chain(["memory", "cpu", "p99"].into_iter().filter_map(floor)).collect();
        (!parts.is_empty())
            .then(|| format!("noise between two runs of system: {}; -v explains", parts.join(", ")))
    }

    /// The candidates that are one variable of the environment each, with it.
    pub(super) fn single_variables(&self) -> Vec<(String, String)> {
        let all = self.chosen.iter().map(|one| one.candidate);
        all.filter_map(|one| Some((one.name.clone(), single_variable(one)?))).collect()
    }

    /// Line that an image needs for the pick, or the command that prints its lines.
    fn for_an_image(&self, pick: &str) -> String {
        let chosen = self.chosen.iter().map(|one| one.candidate).find(|one| one.name == pick);
        match chosen.and_then(single_variable) {
            Some(variable) => format!("ENV {variable}"),
            None => format!("imas env --candidate {pick} --bundle /opt/imas --format dockerfile"),
        }
    }

    fn how_to_use(&self, report: &ServiceReport) -> Result<String> {
        let pick = report.comparison.pick();
        if pick == imas_core::SYSTEM {
            return Ok(String::new());
        }
        let words = shell_words::join(&report.command);
        let program = pinnable(&self.executor.command().map_err(hinted)?);
        let program = shell_words::quote(&program);
        let set = self.set_by_hand(&report.command);
        if let Some(plain) = pick.strip_suffix(TRIMS) {
            let unit = match plain == imas_core::SYSTEM {
                true => "imas trim UNIT --every 1m --write      (UNIT: its systemd service; no restart)"
                    .to_owned(),
                false => {
                    format!("imas apply UNIT --candidate {pick} --write      (UNIT: its systemd service)")
                }
            };
            return Ok(format!(
                "to use it:  {unit}\n\
                 by hand:    {set}imas run --follow --candidate {pick} -- {words}\n"
            ));
        }
        Ok(format!(
            "to use it:  imas apply UNIT --candidate {pick} --write      (UNIT: its systemd service)\n\
             by hand:    {set}imas run --follow --candidate {pick} -- {words}\n\
             in images:  {}\n\
             for good:   imas pin {program} {pick}      (for every start of it on this machine, not for this service alone)\n",
            self.for_an_image(pick)
        ))
    }

    /// The variables that the bench sets for the command, as they are written before it.
    fn set_by_hand(&self, words: &[String]) -> String {
        let is_named = |name: &str| {
            let forms = [format!("${name}"), format!("${{{name}}}")];
            words.iter().any(|word| forms.iter().any(|form| word.contains(form)))
        };
        let own =
            self.executor.service().environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        let folder =
            self.args.server.service.as_deref().and_then(Path::parent).and_then(|at| at.canonicalize().ok());
        let folder = folder.filter(|_| is_named("SERVICE_DIR"));
        let port = is_named("PORT").then(|| ("PORT".to_owned(), "8080".to_owned()));
        let work = is_named("WORK").then(|| ("WORK".to_owned(), "/tmp".to_owned()));
        let folder = folder.map(|at| ("SERVICE_DIR".to_owned(), at.to_string_lossy().into_owned()));
        let all: Vec<(String, String)> = port.into_iter().chain(work).chain(folder).collect();
        let set = |(name, value): &(String, String)| format!("export {name}={}; ", shell_words::quote(value));
        own.chain(all).collect::<Vec<_>>().iter().map(set).collect()
    }

    /// Note on which jemalloc was measured, where that makes a difference to the server.
    fn which_jemalloc(&self, runs: &[RawRun]) -> Option<String> {
        let ours = self.chosen.iter().find(|one| one.candidate.allocator == "jemalloc")?.candidate;
        let has =
            |name: &str| self.chosen.iter().any(|one| one.candidate.name == name && one.obstacle.is_none());
        let asking = runs.iter().find_map(|run| run.of_server().looks_for_jemalloc.clone())?;
        let version = ours.version.as_deref().unwrap_or_default();
        let other = if has(DISTRO_JEMALLOC) {
            "was measured beside it"
        } else {
            "is measured by '--with distro-jemalloc' (package libjemalloc2)"
        };
        Some(format!(
            "{asking} looks for jemalloc's mallctl; jemalloc {version} here is the one that IMAS builds, which shows none, so the server does what it does under glibc; the distribution's shows it, and {other}"
        ))
    }

    /// Notes on what a reader of the figures should know beyond them.
    pub(super) fn notes(&self, runs: &[RawRun], comparison: &ServiceComparison) -> Vec<String> {
        let confidence = comparison.confidence;
        let cpus = if self.args.one_cpu == OneCpuName::Always && !self.executor.cpus().is_apart() {
            "server and load shared the only CPU".to_owned()
        } else if self.executor.cpus().is_apart() {
            format!(
                "the server had the CPUs {:?}, the load {:?}",
                self.executor.cpus().server,
                self.executor.cpus().load
            )
        } else {
            "server and load shared all CPUs: with fewer than four none is set apart for the load".to_owned()
        };
        let tree = "no control group (version 2) could be made, so the server's processes were found by their parents: the CPU time of helpers without a waiting parent is missing";
        let clock = "the load ends by the clock, so a faster server got more work: CPU is not comparable, its limit is one of the rate of requests, and memory may be that of less work; use a number or a rate of requests";
        let few = format!(
            "an interval of so few rounds has a confidence of at most {:.0} %, of six 95 %; a proof takes a test besides",
            confidence * 100.0
        );
        let busy =
            self.busy.map(|load| format!("the machine was busy before the first run (load {load:.1})"));
        let own = runs
            .iter()
            .flat_map(|run| run.of_server().notes.iter().map(|note| format!("{}: {note}", run.candidate)));
        let mut notes = vec![cpus];
        notes
            .extend(runs.iter().any(|run| !run.of_server().control_group && run.ok).then(|| tree.to_owned()));
        let by_clock = runs.iter().any(|run| run.of_server().by_clock);
        notes.extend(by_clock.then(|| clock.to_owned()));
        notes.extend((confidence < 0.95).then_some(few));
        let untested = comparison.untested.iter();
        notes.extend(untested.map(|rail| format!("no run has the figure of {rail}: it is not tested")));
        notes.extend(busy);
        notes.extend(self.which_jemalloc(runs));
        notes.extend(own);
        notes
    }
}

/// The setting of malloc that is all of a candidate, as a variable that each version of glibc reads. None for a candidate
/// that has more.
fn single_variable(candidate: &CatalogueCandidate) -> Option<String> {
    let is_trimmed = candidate.name.ends_with(TRIMS);
    let is_bare = candidate.library.is_none() && !is_trimmed && candidate.runtime.is_none();
    let mut variables = candidate.environment.iter().filter(|_| is_bare);
    let (name, value) = variables.next().filter(|_| candidate.environment.len() == 1)?;
    match value.strip_prefix("glibc.malloc.arena_max=") {
        Some(arenas) if !arenas.contains(':') => Some(format!("MALLOC_ARENA_MAX={arenas}")),
        _ => (!value.contains(':')).then(|| format!("{name}={value}")),
    }
}
