// SPDX-License-Identifier: Apache-2.0
//! Real hosts: three of them try a real program, the others start it on what these proved.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use imas_store::samples::StoredProgram;

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::imas_host::ImasHost;
use crate::network::LONGEST_WAIT;
use crate::network::{Network, Place, is_isolated};

/// Candidate that all but `system` lose against, for this program.
const PROVEN: &str = "mimalloc";
const HOSTS: [&str; 5] = ["h1", "h2", "h3", "h4", "h5"];

struct Fleet<'a> {
    cluster: Cluster,
    places: Vec<Place>,
    program: &'a Path,
}

/// Three hosts take turns; a fourth, which knows the program and has not tried it, and a fifth, which is new.
pub(crate) async fn end_to_end(server: &Path, program: &Path) -> Result<String> {
    let mut network = is_isolated().then(Network::new).transpose()?;
    let mut places = |number| network.as_mut().map_or(Ok(vec![]), |network| network.add_all(number));
    let servers = places(3)?;
    let mut fleet = Fleet {
        cluster: Cluster::planned(server, &HOSTS, &["m1"], servers)?,
        places: places(HOSTS.len() + 1)?,
        program,
    };
    fleet.cluster.begin(SIZES).await?;
    let settings = fleet.cluster.plan.member_folder("m1").join("fleet.toml");
    let mut merger = AgentProcess::start_by(fleet.agent(HOSTS.len()), &settings)?;
    merger.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
    let mut hosts = vec![];
    for at in 0..4 {
        hosts.push(fleet.host(at).await?);
    }
    let (trials, lag) = tokio::task::block_in_place(|| learn(&hosts))?;
    let known_after = fleet.newcomer().await?;
    let network = if network.is_some() { "network namespaces at one bridge" } else { "loopback" };
    Ok(format!(
        "trials of three hosts until the proof: {trials:?}; a fourth one had the proof {lag:.2} s after the trial that completed \
         it, and a fifth, new one {known_after:.2} s after it knew the program; both started it under {PROVEN} without a \
         trial ({network})"
    ))
}

impl Fleet<'_> {
    fn agent(&self, at: usize) -> Command {
        self.places.get(at).map_or_else(|| Command::new(self.program), |place| place.command(self.program))
    }

    async fn host(&self, at: usize) -> Result<ImasHost> {
        let settings = self.cluster.plan.member_folder(HOSTS[at]).join("fleet.toml");
        let imasd = self.program.with_file_name("imasd");
        let mut host = ImasHost::start(&imasd, self.agent(at), &settings)?;
        host.agent.until("connected", |record| record.connected_since_unix_s.is_some()).await?;
        Ok(host)
    }

    /// A host with an empty store. A program must have been started once for imasd to know it; how long it then takes
    /// until the next start is decided.
    async fn newcomer(&self) -> Result<f64> {
        let host = self.host(4).await?;
        tokio::task::block_in_place(|| {
            let program = host.notice()?;
            let began = Instant::now();
            host.wait("the fleet's proof arrives", || host.starts_under(&program, PROVEN))?;
            let known_after = began.elapsed().as_secs_f64();
            starts_proven(&host, &program)?;
            Ok(known_after)
        })
    }
}

/// Three hosts start the program and take the trials that they are offered, until the fourth has the proof: trials
/// of each, and seconds from the trial that completed the proof to the decision on the fourth.
fn learn(hosts: &[ImasHost]) -> Result<(Vec<usize>, f64)> {
    let (waiting, learning) = hosts.split_last().context("no hosts")?;
    let program = waiting.notice()?;
    let known = learning.iter().map(ImasHost::notice).collect::<Result<Vec<_>>>()?;
    let (mut stored, seen) = (vec![], OnceLock::new());
    let seen = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let is_over = || Ok(seen.get().is_some() || waiting.starts_under(&program, PROVEN)?);
            let waited = waiting.wait_for("the proof arrives", 10 * LONGEST_WAIT, is_over);
            waited.map(|()| *seen.get_or_init(Instant::now))
        });
        while !watch.is_finished() {
            if let Err(error) = try_all(learning, &known, &mut stored) {
                let _ = seen.set(Instant::now()); // ends the watch
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        watch.join().map_err(|_| anyhow::anyhow!("the watch panicked"))?
    })?;
    let last = stored.into_iter().rfind(|at| *at < seen).context("proven before any trial")?;
    starts_proven(waiting, &program)?;
    let trials = learning.iter().zip(&known).map(|(host, program)| host.trials(program));
    Ok((trials.collect::<Result<_>>()?, seen.duration_since(last).as_secs_f64()))
}

/// Each host starts the program if a trial is on offer. Notes when a trial was stored.
fn try_all(hosts: &[ImasHost], known: &[StoredProgram], stored: &mut Vec<Instant>) -> Result<()> {
    for (host, program) in hosts.iter().zip(known) {
        if host.tries(program)? {
            stored.push(Instant::now());
        }
    }
    Ok(())
}

/// The next start is a production start under the candidate, and the host has tried nothing.
fn starts_proven(host: &ImasHost, program: &StoredProgram) -> Result<()> {
    let printed = host.run()?;
    ensure!(
        printed.contains(&format!("lib{PROVEN}.so")) && printed.contains("libimas-guard.so"),
        "it was started with {printed}"
    );
    ensure!(!printed.contains("'libimas.so'"), "it was a trial: {printed}");
    ensure!(host.trials(program)? == 0, "the host has tried it");
    Ok(())
}
