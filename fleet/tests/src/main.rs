// SPDX-License-Identifier: Apache-2.0
//! Tests of a fleet with real servers on loopback ports: `make fleet-test`. Each case has servers of its own, and
//! prints what it found.
//!
//! `imas-fleet-test NATS OLD_NATS IMAS_FLEET [CASE...]`

mod agent;
mod agent_cost;
mod cluster;
mod commands_case;
mod cost;
mod credentials_case;
mod disk;
mod end_to_end;
mod fan_out;
mod flood;
mod folds;
mod full;
mod imas_host;
mod isolated;
mod load;
mod network;
mod partition;
mod programs;
mod publishes;
mod running;
mod security;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

const CASES: [&str; 18] = [
    "end-to-end",
    "commands",
    "folds",
    "publishes",
    "offline",
    "security",
    "credentials",
    "versions",
    "full",
    "disk",
    "partition",
    "empty",
    "flood",
    "hosts",
    "agent",
    "connections-1000",
    "connections-8000",
    "programs-500000",
];

/// Cases that need a network or mounts of their own.
const ISOLATED: [&str; 3] = ["end-to-end", "disk", "partition"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, old, program, cases @ ..] = words.as_slice() else {
        bail!("usage: imas-fleet-test NATS OLD_NATS IMAS_FLEET [CASE...]");
    };
    let [server, old, program] = [server, old, program].map(PathBuf::from);
    let cases = if cases.is_empty() { CASES.map(str::to_owned).to_vec() } else { cases.to_vec() };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in &cases {
        let began = Instant::now();
        let line = match run(case, &server, &old, &program).await {
            Ok(Some(found)) => {
                passed += 1;
                format!("ok {case}: {found}")
            }
            Ok(None) => {
                skipped += 1;
                format!("SKIPPED {case}: network and mount namespaces cannot be made here")
            }
            Err(error) => {
                failed += 1;
                format!("FAILED {case}: {error:#}")
            }
        };
        writeln!(std::io::stdout(), "{line} ({:.0} s in all)", began.elapsed().as_secs_f64())?;
    }
    writeln!(std::io::stdout(), "{passed} passed, {failed} failed, {skipped} skipped")?;
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Finding of the case; `None` where it cannot run here.
async fn run(case: &str, server: &Path, old: &Path, program: &Path) -> Result<Option<String>> {
    if ISOLATED.contains(&case) && !network::is_isolated() {
        if isolated::is_possible() {
            return isolated::run(case).map(Some);
        }
        if case != "end-to-end" {
            return Ok(None);
        }
    }
    run_here(case, server, old, program).await.map(Some)
}

async fn run_here(case: &str, server: &Path, old: &Path, program: &Path) -> Result<String> {
    match case {
        "end-to-end" => end_to_end::end_to_end(server, program).await,
        "commands" => commands_case::commands(server, program).await,
        "disk" => disk::disk(server, program).await,
        "partition" => partition::partition(server, program).await,
        "empty" => partition::empty(server).await,
        "folds" => folds::folds(server).await,
        "publishes" => publishes::publishes(server).await,
        "offline" => publishes::offline(server, program).await,
        "security" => security::security(server).await,
        "credentials" => credentials_case::credentials(server, program).await,
        "versions" => security::versions(old, program).await,
        "full" => full::full(server).await,
        "flood" => flood::flood(server, program).await,
        "hosts" => fan_out::hosts(server, program).await,
        "agent" => agent_cost::agent(server, program).await,
        "connections-1000" => fan_out::connections(server, 1000).await,
        "connections-8000" => fan_out::connections(server, 8000).await,
        "programs-500000" => programs::programs(server, 500_000).await,
        _ => bail!("there is no such case; there are {}", CASES.join(", ")),
    }
}
