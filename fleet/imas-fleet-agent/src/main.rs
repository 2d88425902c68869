// SPDX-License-Identifier: Apache-2.0
//! `imas-fleet`, which `imas fleet` runs.

mod cli;
mod init;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};
use imas_cli::{manual, message, output, table};
use imas_engine::entry;
use imas_exchange::AgentRecord;
use imas_exchange::exchange::Exchange;
use imas_fleet_agent::agent::Agent;
use imas_fleet_agent::commands::{self, CandidateUse, FleetProgram, StreamState};
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::doctor::{self, FleetCheck, FleetFinding};
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::journal::AgentJournal;
use imas_fleet_agent::merger::Merger;
use imas_fleet_agent::rights::{FleetRights, FleetRole};
use imas_fleet_agent::server_files::full_name;
use imas_fleet_agent::settings::FleetSettings;
use serde::Serialize;

use crate::cli::{Cli, RightsArgs, Verb};

fn main() -> ExitCode {
    let read = || {
        manual::answer_completion(Cli::command);
        Cli::try_parse()
    };
    entry::main_of(read, |cli| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(2).build()?.block_on(run(cli))
    })
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let settings = || FleetSettings::read(&cli.settings);
    match &cli.verb {
        Verb::Completions { shell } => manual::completions(Cli::command(), *shell)?,
        Verb::Manpages { folder } => manual::manpages(Cli::command(), folder)?,
        Verb::Init(args) => init::run(args, &cli.settings).await?,
        Verb::Agent(args) => {
            let mut settings = settings()?;
            settings.exchange = args.exchange.clone().unwrap_or(settings.exchange);
            Agent::new(settings)?.run().await?;
        }
        Verb::Doctor(args) => return show_checks(&doctor::examine(&settings()?).await, args.json),
        Verb::Rights(args) => show_rights(args)?,
        Verb::Status(args) => status(&settings()?, args.json).await?,
        Verb::Programs(args) => {
            show_programs(&commands::programs(&bus(&settings()?).await?).await?, args.json)?
        }
        Verb::Unnecessary(args) => {
            let programs = commands::programs(&bus(&settings()?).await?).await?;
            show_uses(&programs, args.margin, args.json)?;
        }
        Verb::Forget { program } => {
            let gone = commands::forget(&bus(&settings()?).await?, program).await?;
            output::text(&format!("forgotten: {gone} aggregates, and the statistics"))?;
        }
        Verb::Merge(args) => return merge(&settings()?, args.json).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn bus(settings: &FleetSettings) -> Result<JetStreamBus> {
    Ok(JetStreamBus::new(Connection::open(settings).await?.jetstream(), &settings.host))
}

/// Report of `imas fleet status`.
#[derive(Serialize)]
struct FleetStatus {
    agent: Option<AgentRecord>,
    streams: Vec<StreamState>,
}

async fn status(settings: &FleetSettings, is_json: bool) -> Result<()> {
    let agent = Exchange::new(&settings.exchange).agent().ok().flatten();
    let agent: Option<AgentRecord> = agent.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let streams = match bus(settings).await {
        Ok(bus) => commands::streams(&bus).await.unwrap_or_else(|error| {
            message::warning(&format!("{error:#} (hosts may not ask this, the operator may)"));
            vec![]
        }),
        Err(error) => {
            message::warning(&format!("{error:#}"));
            vec![]
        }
    };
    if is_json {
        return output::json(&FleetStatus { agent, streams });
    }
    show_agent(agent.as_ref())?;
    let rows = streams.iter().map(|one| {
        let behind = if one.behind.is_empty() { "none".to_owned() } else { one.behind.join(", ") };
        let leader = one.leader.clone().unwrap_or_default();
        vec![
            one.name.clone(),
            one.messages.to_string(),
            format!("{} of {}", one.bytes, one.max_bytes),
            one.replicas.to_string(),
            leader,
            behind,
        ]
    });
    output::text(&table::plain(&["stream", "messages", "bytes", "copies", "leader", "behind"], rows))
}

fn show_agent(agent: Option<&AgentRecord>) -> Result<()> {
    let Some(agent) = agent else { return output::text("no agent has worked in this exchange folder") };
    let connected = if agent.connected_since_unix_s.is_some() { "connected" } else { "not connected" };
    let last = agent.last_error.as_ref().map(|error| format!("; last error: {error}")).unwrap_or_default();
    output::text(&format!(
        "agent: {connected} ({} {}); acknowledged {}, waiting {}, refused {}; received {}; folded {}, conflicts {}, \
         rejected {}, excessive {}{last}",
        agent.server,
        agent.server_version,
        agent.acknowledged,
        agent.backlog,
        agent.refused,
        agent.received,
        agent.folded,
        agent.conflicts,
        agent.rejected,
        agent.excessive,
    ))
}

fn show_rights(args: &RightsArgs) -> Result<()> {
    let role = match (args.operator, args.merger) {
        (true, _) => FleetRole::Operator,
        (false, true) => FleetRole::Merger,
        (false, false) => FleetRole::Host,
    };
    let rights = FleetRights::of(&full_name(&args.name, &args.tenant), role);
    if args.json {
        return output::json(&rights);
    }
    let FleetRights { host, publish, subscribe } = rights;
    output::text(&format!(
        "fleet.toml:  host = \"{host}\"\npublish:     {}\nsubscribe:   {}\n\nnsc add user --account {tenant} --name {name} \
         --allow-pub '{}' --allow-sub '{}'",
        publish.join("\n             "),
        subscribe.join("\n             "),
        publish.join(","),
        subscribe.join(","),
        tenant = args.tenant,
        name = args.name,
    ))
}

fn show_checks(checks: &[FleetCheck], is_json: bool) -> Result<ExitCode> {
    let rows = checks.iter().map(|one| {
        let finding = match one.finding {
            FleetFinding::Good => "good",
            FleetFinding::Warning => "WARNING",
            FleetFinding::Bad => "BAD",
        };
        vec![finding.to_owned(), one.name.to_owned(), one.text.clone()]
    });
    output::json_or(is_json, &checks, || table::plain(&["", "what", "found"], rows))?;
    let is_bad = checks.iter().any(|one| one.finding == FleetFinding::Bad);
    Ok(ExitCode::from(u8::from(is_bad)))
}

fn show_programs(programs: &[FleetProgram], is_json: bool) -> Result<()> {
    let ratio = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.3}"));
    let rows = programs.iter().flat_map(|program| {
        program.candidates.iter().map(move |one| {
            vec![
                program.subject.clone(),
                program.folded.to_string(),
                format!("{} {}", one.name, one.version),
                one.groups.to_string(),
                ratio(one.cpu),
                ratio(one.memory),
                one.crashed.to_string(),
            ]
        })
    });
    let titles = ["program", "aggregates", "candidate", "groups", "CPU", "memory", "crashed"];
    output::json_or(is_json, &programs, || table::plain(&titles, rows))
}

fn show_uses(programs: &[FleetProgram], margin: f64, is_json: bool) -> Result<()> {
    let is_used = |one: &CandidateUse| one.fastest + one.leanest > 0;
    let uses: Vec<CandidateUse> =
        commands::uses(programs, margin).into_iter().filter(|one| !is_used(one)).collect();
    let rows = uses.iter().map(|one| {
        vec![one.name.clone(), one.measured.to_string(), one.crashed.to_string(), programs.len().to_string()]
    });
    let titles = ["never the best", "measured for", "crashed", "programs"];
    output::json_or(is_json, &uses, || table::plain(&titles, rows))
}

async fn merge(settings: &FleetSettings, is_json: bool) -> Result<ExitCode> {
    let journal = AgentJournal::new(settings.exchange.join("merge.json"));
    Merger::new(bus(settings).await?, &settings.host, journal.clone()).sweep().await;
    let done = journal.now();
    output::json_or(is_json, &done, || {
        let AgentRecord { folded, conflicts, rejected, excessive, .. } = &done;
        format!("folded {folded}, conflicts {conflicts}, rejected {rejected}, excessive {excessive}")
    })?;
    Ok(ExitCode::from(u8::from(done.last_error.is_some())))
}
