// SPDX-License-Identifier: Apache-2.0
//! `imas status`: the daemon's state, its programs, and the allocators that serve the running processes.
//!
//! imasd's fleet in `imas status`: what waits, and what the agent has done since it started.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::{counted, when};
use imas_cli::output;
use imas_core::printable;
use imas_core::quarantine::Quarantine;
use imas_engine::context::Context;
use imas_engine::daemon_status::{ACCOUNTED, DaemonStatus, FleetState, IneligibleProgram, LeftAloneProcess};
use imas_engine::fleet_turn::TrialSharing;
use imas_engine::live::lost::{LostCandidate, lost_candidates};
use imas_engine::picks::trial_count;
use imas_engine::program_view;
use imas_exchange::AgentRecord;
use imas_linux::catalogue::SYSTEM;
use imas_linux::host::now_unix_s;
use imas_linux::process;
use imas_linux::serving::{LibraryNames, ProcessCensus, Serving};
use imas_store::Store;
use imas_store::daemon::Disabled;
use serde::Serialize;
use serde_json::{Value, json};

use crate::apply::watch::WatchRecord;
use crate::command_line::cli::{RulesArgs, StatusArgs};

/// Exit status for "the daemon does not run".
const NOT_RUNNING: u8 = 1;

/// One known program, as it is decided now.
#[derive(Debug, Serialize)]
struct Line {
    number: i64,
    program: String,
    domain: String,
    trials: usize,
    /// Candidate of the next start that is no trial.
    next: String,
    /// Candidate of the trial on offer.
    trial: Option<String>,
    quarantined: Vec<String>,
    /// Quarantined candidates under which the program hung.
    hung: Vec<String>,
    reason: String,
    /// The fleet's sharing of the program's trials, where imasd takes part in a fleet.
    sharing: Option<TrialSharing>,
}

impl Line {
    /// A quarantined candidate, with the reason where it is not a crash.
    fn remark(&self, name: &String) -> String {
        if self.hung.contains(name) { format!("{name} (hung)") } else { name.clone() }
    }
}

/// Everything that the page and the JSON show.
struct Report {
    daemon: Option<DaemonStatus>,
    /// Why no program goes by the index.
    ineffective: Option<String>,
    programs: Vec<Line>,
    disabled: Vec<Disabled>,
    /// Allocators that really serve, from /proc.
    serving: Vec<Serving>,
    ineligible: Vec<IneligibleProgram>,
    /// Services that `imas apply --watch` changed.
    watched: Vec<WatchRecord>,
    /// Processes that lack the candidate they should have.
    lost: Vec<LostCandidate>,
}

pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<ExitCode> {
    let report = Report::now(args, context)?;
    output::json_or(args.json.json, &report.as_json(), || report.page())?;
    Ok(if report.daemon.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOT_RUNNING) })
}

fn lines(
    context: &Context,
    store: &Store,
    published: &BTreeMap<u64, (String, Option<String>)>,
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for program in store.programs()? {
        let state = imas_engine::program_view::state(context, store, program, &RulesArgs::of_environment())?;
        let program = &state.known.program;
        let entry = u64::try_from(program.id).ok().and_then(|id| published.get(&id));
        let quarantined = state.profile.candidates.iter().filter(|view| view.quarantine.is_some());
        lines.push(Line {
            number: program.id,
            program: program.to_string(),
            domain: program.domain.word(),
            trials: trial_count(&state),
            next: entry.map_or_else(|| "system".to_owned(), |(next, _)| next.clone()),
            trial: entry.and_then(|(_, trial)| trial.clone()),
            hung: quarantined
                .clone()
                .filter(|view| view.quarantine.as_ref().is_some_and(Quarantine::is_hang))
                .map(|view| view.name.clone())
                .collect(),
            quarantined: quarantined.map(|view| view.name.clone()).collect(),
            reason: state.decision.reason.id().to_owned(),
            sharing: state.sharing,
        });
    }
    Ok(lines)
}

impl Report {
    fn now(args: &StatusArgs, context: &Context) -> Result<Self> {
        let store = Store::open_read_only(&context.store_path).ok();
        let published = imas_engine::daemon_status::published(&args.run_dir);
        Ok(Self {
            daemon: DaemonStatus::read(&args.run_dir),
            ineffective: imas_engine::daemon_status::ineffective(&args.run_dir),
            programs: store.as_ref().map_or_else(|| Ok(vec![]), |store| lines(context, store, &published))?,
            disabled: store.as_ref().map_or_else(|| Ok(vec![]), Store::disabled)?,
            serving: ProcessCensus::now(&LibraryNames::of(context.catalogue.candidates()), SYSTEM).serving,
            ineligible: IneligibleProgram::read_all(&args.run_dir),
            watched: crate::apply::watch::records(),
            lost: lost_candidates(),
        })
    }

    fn as_json(&self) -> Value {
        json!({
            "schema": 1,
            "running": self.daemon.is_some(),
            "daemon": self.daemon,
            "standing_aside": self.ineffective,
            "programs": self.programs,
            "disabled": self.disabled,
            "serving": self.serving,
            "ineligible": self.ineligible,
            "watched": self.watched,
            "lost": self.lost,
        })
    }

    fn page(&self) -> String {
        let mut text = match &self.daemon {
            None => "imasd does not run: what the system starts, starts as last decided; 'imas run' learns without it.\n\
                 to start it: systemctl start imasd"
                .to_owned(),
            Some(status) => headline(status),
        };
        if let Some(why) = &self.ineffective {
            text.push_str(&format!("\nEvery program starts untouched: {why}"));
        }
        for disabled in &self.disabled {
            text.push_str(&format!(
                "\n{} is disabled everywhere: {}\n  to give it back: sudo imas unblock {}",
                disabled.allocator, disabled.why, disabled.allocator
            ));
        }
        text + &program_table(&self.programs)
            + &serving_table(&self.serving)
            + &lost_table(&self.lost)
            + &watched_table(&self.watched)
            + &ineligible_table(&self.ineligible)
    }
}

/// A table after an empty line; nothing where it has no rows.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("\n\n{}", imas_cli::table::plain(head, rows.into_iter()))
}

fn program_table(programs: &[Line]) -> String {
    let is_in_fleet = programs.iter().any(|line| line.sharing.is_some());
    let rows = programs.iter().map(|line| {
        let trial = line.trial.as_ref().map(|trial| format!("trial of {trial}"));
        let mut row = vec![
            line.number.to_string(),
            line.program.clone(),
            line.trials.to_string(),
            line.next.clone(),
            trial.unwrap_or_default(),
            line.quarantined.iter().map(|name| line.remark(name)).collect::<Vec<_>>().join(", "),
        ];
        row.extend(
            is_in_fleet.then(|| line.sharing.as_ref().map_or_else(String::new, program_view::sharing_short)),
        );
        row
    });
    let mut head = vec!["number", "program", "trials", "starts under", "on offer", "quarantined"];
    head.extend(is_in_fleet.then_some("trials of the fleet"));
    table(&head, rows.collect())
}

fn serving_table(serving: &[Serving]) -> String {
    let rows = serving.iter().map(|serving| {
        let kind = if serving.trial { "trial" } else { "production" };
        vec![
            serving.executable.display().to_string(),
            serving.allocator.clone(),
            kind.to_owned(),
            serving.processes.to_string(),
        ]
    });
    table(&["running now", "served by", "", "processes"], rows.collect())
}

fn lost_table(lost: &[LostCandidate]) -> String {
    let rows = lost.iter().map(|one| {
        let process = format!("{} ({})", one.pid, printable::name(&one.program));
        vec![printable::name(&one.candidate).into_owned(), one.unit.clone().unwrap_or_default(), process]
    });
    let table = table(&["does not serve", "service", "process"], rows.collect());
    if table.is_empty() {
        table
    } else {
        table + "\nit was lost, or never there: 'imas explain --pid PID' says what serves"
    }
}

fn watched_table(watched: &[WatchRecord]) -> String {
    let rows = watched.iter().map(|record| {
        let state = record.state(now_unix_s());
        vec![record.unit.clone(), record.candidate.clone(), when(record.begun_unix_s), state]
    });
    table(&["service", "applied", "since", "state"], rows.collect())
}

fn ineligible_table(ineligible: &[IneligibleProgram]) -> String {
    let rows = ineligible.iter().map(|one| vec![one.path.clone(), one.domain.clone(), one.reason.clone()]);
    table(&["left alone", "of", "because"], rows.collect())
}

/// A process that is not trimmed for a while. Its name is read now: imasd keeps none.
fn left_alone(process: &LeftAloneProcess) -> String {
    let LeftAloneProcess { pid, returned_mib, came_back_mib, pause_s } = process;
    let name = process::stat(*pid).map(|stat| format!(" ({})", printable::name(&stat.comm)));
    format!(
        "\nnot trimmed for {} min: process {pid}{} took {came_back_mib} of {returned_mib} MiB back within minutes",
        pause_s.div_ceil(60),
        name.unwrap_or_default()
    )
}

fn headline(status: &DaemonStatus) -> String {
    let mut text = format!(
        "imasd runs (process {}): {}, {} on offer, {} under way, {} watched.",
        status.pid,
        counted(status.programs, "program"),
        counted(status.trials_offered, "trial"),
        status.trials_running,
        counted(status.flights_watched, "placed process")
    );
    if let Some(why) = &status.emergency {
        text.push_str(&format!(
            "\nEMERGENCY: {}; every program starts untouched. To end it: imas system enable",
            why.trim_end()
        ));
    }
    match status.accounts.as_str() {
        "" => {}
        ACCOUNTED => text.push_str("\nPrograms without a hook are measured from outside."),
        why => {
            let why = printable::name(why);
            text.push_str(&format!("\nPrograms without a hook are not measured from outside: {why}."));
        }
    }
    let numbers = status.counters.counted().into_iter();
    let numbers: Vec<_> =
        numbers.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    if !numbers.is_empty() {
        text.push_str(&format!("\nsince its start: {}", numbers.join(", ")));
    }
    for trouble in &status.work_troubles {
        let (program, why) = (printable::name(&trouble.program), printable::name(&trouble.why));
        text.push_str(&format!("\nwork of {program} is not counted: {why}; its samples count without"));
    }
    text.extend(status.trims_left_alone.iter().map(left_alone));
    text.extend(status.fleet.as_ref().map(fleet_lines));
    text
}

/// Lines about the fleet, each after a line break.
fn fleet_lines(fleet: &FleetState) -> String {
    let mut lines = vec![connection(fleet)];
    lines.push(format!(
        "  outbox: {} ({} bytes); statistics are wanted of {}",
        counted(fleet.waiting, "message"),
        fleet.waiting_bytes,
        counted(fleet.wanted, "program")
    ));
    if fleet.unwritten > 0 {
        lines.push(format!("  {} in the store are not written yet", counted(fleet.unwritten, "message")));
    }
    if let Some(agent) = fleet.agent_record() {
        lines.extend(work(&agent));
    }
    lines.extend(fleet.trouble.as_ref().map(|trouble| format!("  {trouble}")));
    lines.iter().map(|line| format!("\n{line}")).collect()
}

fn connection(fleet: &FleetState) -> String {
    let agent = fleet.agent_record();
    let since = agent.as_ref().and_then(|agent| agent.connected_since_unix_s);
    match (fleet.connected, agent, since) {
        (true, Some(agent), Some(since)) => {
            format!("fleet: connected with {} since {}, as {}", agent.server, time(since), fleet.host)
        }
        (_, Some(_), _) => format!("fleet: not connected, as {}: see imas fleet doctor", fleet.host),
        (_, None, _) => {
            format!("fleet: its agent does not run (systemctl start imas-fleet), as {}", fleet.host)
        }
    }
}

fn work(agent: &AgentRecord) -> Vec<String> {
    let AgentRecord { acknowledged, refused, received, folded, conflicts, rejected, excessive, .. } = agent;
    let passed_over = rejected + excessive;
    let mut lines =
        vec![format!("  agent: {acknowledged} acknowledged, {refused} refused, {received} received")];
    if folded + conflicts + passed_over > 0 {
        lines.push(format!("  merges: {folded} folded, {conflicts} conflicts, {passed_over} passed over"));
    }
    if let (Some(error), Some(at)) = (&agent.last_error, agent.last_error_unix_s) {
        lines.push(format!("  last error, {}: {error}", time(at)));
    }
    lines
}

fn time(unix_s: u64) -> String {
    when(unix_s as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(connected: bool, agent: Option<serde_json::Value>) -> FleetState {
        let agent = agent.and_then(|agent| agent.as_object().cloned());
        FleetState {
            host: "abc".into(),
            waiting: 2,
            waiting_bytes: 900,
            wanted: 1,
            connected,
            agent,
            ..FleetState::default()
        }
    }

    #[test]
    fn the_connection_and_the_work_of_the_agent_are_shown() {
        let record =
            json!({"connected_since_unix_s": 60, "server": "fleet-1", "acknowledged": 7, "folded": 3});
        let text = fleet_lines(&state(true, Some(record.clone())));
        for part in [
            "connected with fleet-1 since 1970-",
            "outbox: 2 messages (900 bytes)",
            "7 acknowledged",
            "3 folded",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let ended = fleet_lines(&state(false, Some(record)));
        assert!(ended.contains("fleet: not connected") && ended.contains("7 acknowledged"), "{ended}");
        assert!(fleet_lines(&state(false, None)).contains("its agent does not run"));
        let absurd = fleet_lines(&state(true, Some(json!({"acknowledged": "many"}))));
        assert!(absurd.contains("its agent does not run"), "a record that no agent writes: {absurd}");
    }
}
