// SPDX-License-Identifier: Apache-2.0
//! The operator's commands, each as a process against real servers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use imas_core::stats::Moments;
use imas_exchange::exchange::Wanted;
use imas_exchange::{Aggregate, CandidateAggregate};
use imas_fleet_agent::server_files::OPERATOR;
use serde_json::Value;

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES};
use crate::load;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

struct Operator<'a> {
    program: &'a Path,
    settings: PathBuf,
}

/// Two programs: one that gains by jemalloc and loses by hoard on three hosts, and one that hoard crashes on one.
pub(crate) async fn commands(server: &Path, program: &Path) -> Result<String> {
    let cluster = Cluster::start(server, &HOSTS, &["m1"], SIZES).await?;
    let settings = cluster.plan.member_folder(OPERATOR).join("fleet.toml");
    let operator = Operator { program, settings };
    ensure!(operator.json(&["programs"])? == serde_json::json!([]), "an empty fleet knows programs");
    let (gains, crashes) = publish(&cluster).await?;
    cluster.whole().await?; // any server may answer a read, and one may be behind
    let mut agent = AgentProcess::start(program, &cluster.plan.member_folder("h1").join("fleet.toml"))?;
    agent.exchange.want(&Wanted { subjects: vec![gains.clone(), crashes.clone()] })?;
    operator.merges()?;
    cluster.whole().await?;
    operator.again()?;
    operator.lists(&gains, &crashes)?;
    operator.status()?;
    let delivered = |subject: &str| agent.exchange.delivered(subject);
    let end = std::time::Instant::now() + crate::network::LONGEST_WAIT;
    while delivered(&gains)?.is_none() || delivered(&crashes)?.is_none() {
        ensure!(std::time::Instant::now() < end, "statistics do not arrive");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    operator.forgets(&gains)?;
    cluster.whole().await?;
    operator.has_forgotten(&gains)?;
    agent.until("aware that a program is forgotten", |record| record.forgotten == 1).await?;
    ensure!(agent.exchange.delivered(&gains)?.is_none(), "the inbox still has it");
    ensure!(agent.exchange.delivered(&crashes)?.is_some(), "the inbox lost another program");
    as_host(&cluster, program)?;
    Ok("merge, programs, unnecessary, status, forget: figures as published, text and JSON; a host drops what is \
        forgotten, and may ask for none of it"
        .to_owned())
}

/// The subjects of both programs.
async fn publish(cluster: &Cluster) -> Result<(String, String)> {
    let mut subjects = (String::new(), String::new());
    for (number, name) in (0..).zip(HOSTS) {
        let (bus, host) = (cluster.bus(name).await?, cluster.settings(name)?.host);
        let mut gains = load::aggregate(&host, 1, number);
        let worse =
            CandidateAggregate { pairs: Moments::of(0.3, 0.1), ..gains.candidates["jemalloc"].clone() };
        gains.candidates.insert("hoard".to_owned(), worse.clone());
        let mut crashes = load::aggregate(&host, 2, 10 + number);
        let crashed = CandidateAggregate { pairs: Moments::default(), crashes: 1, ..worse };
        crashes.candidates = if number == 0 { [("hoard".to_owned(), crashed)].into() } else { [].into() };
        let send = async |one: &Aggregate| {
            bus.append(&load::subject(one), &one.id(), serde_json::to_vec(one)?).await?;
            anyhow::Ok(())
        };
        send(&gains).await?;
        send(&crashes).await?;
        subjects = (load::subject(&gains), load::subject(&crashes));
    }
    Ok(subjects)
}

/// A host may ask only how its own agent is.
fn as_host(cluster: &Cluster, program: &Path) -> Result<()> {
    let host = Operator { program, settings: cluster.plan.member_folder("h1").join("fleet.toml") };
    let status = host.run(&["status"])?;
    ensure!(status.status.success(), "status of a host: {status:?}");
    for words in [&["programs"][..], &["unnecessary"], &["forget", "abcdefghijklmnopqrstuvwxyz"]] {
        let output = host.run(words)?;
        ensure!(output.status.code() == Some(2), "{words:?} is allowed to a host: {output:?}");
    }
    Ok(())
}

impl Operator<'_> {
    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.program);
        command.args(words).arg("--settings").arg(&self.settings).stdin(Stdio::null());
        command.output().context("imas-fleet")
    }

    fn text(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        ensure!(output.status.success(), "{words:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.text(&[words, &["--json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("{words:?}: {text}"))
    }

    fn merges(&self) -> Result<()> {
        let first = self.json(&["merge"])?;
        ensure!(first["folded"] == 6 && first["rejected"] == 0, "merge: {first}");
        Ok(())
    }

    fn again(&self) -> Result<()> {
        let again = self.text(&["merge"])?;
        ensure!(again.trim() == "folded 0, conflicts 0, rejected 0, excessive 0", "merge: {again}");
        Ok(())
    }

    fn lists(&self, gains: &str, crashes: &str) -> Result<()> {
        let programs = self.json(&["programs"])?;
        let of = |subject: &str| {
            let all = programs.as_array().into_iter().flatten();
            all.into_iter().find(|one| one["subject"] == subject).cloned().unwrap_or_default()
        };
        let (gains, crashes) = (of(gains), of(crashes));
        ensure!(gains["folded"] == 3 && crashes["folded"] == 3, "programs: {programs}");
        let jemalloc = &gains["candidates"][1];
        let is_near =
            |figure: &Value, log: f64| figure.as_f64().is_some_and(|it| (it - log.exp()).abs() < 1e-3);
        ensure!(jemalloc["name"] == "jemalloc" && jemalloc["groups"] == 3, "programs: {programs}");
        ensure!(is_near(&jemalloc["cpu"], -0.1) && is_near(&jemalloc["memory"], -0.2), "{jemalloc}");
        ensure!(crashes["candidates"][0]["crashed"] == 1, "programs: {programs}");
        let text = self.text(&["programs"])?;
        ensure!(text.lines().count() >= 4 && text.contains("jemalloc 1") && text.contains("0.905"), "{text}");
        let unnecessary = self.json(&["unnecessary"])?;
        ensure!(unnecessary.as_array().is_some_and(|all| all.len() == 1), "{unnecessary}");
        let hoard = &unnecessary[0];
        ensure!(hoard["name"] == "hoard" && hoard["measured"] == 1 && hoard["crashed"] == 1, "{hoard}");
        let text = self.text(&["unnecessary"])?;
        ensure!(text.contains("hoard") && !text.contains("jemalloc"), "{text}");
        let text = self.text(&["unnecessary", "--margin", "0.5"])?;
        ensure!(text.contains("jemalloc"), "no gain is above this margin: {text}");
        Ok(())
    }

    fn status(&self) -> Result<()> {
        let status = self.json(&["status"])?;
        let [stream, bucket] = [&status["streams"][0], &status["streams"][1]];
        ensure!(stream["messages"] == 6 && bucket["messages"] == 2, "status: {status}");
        ensure!(stream["replicas"] == 3 && stream["consumers"] == 0, "status: {status}");
        let text = self.text(&["status"])?;
        ensure!(text.contains("IMAS_AGGREGATES") && text.contains("KV_IMAS_STATISTICS"), "{text}");
        Ok(())
    }

    fn forgets(&self, subject: &str) -> Result<()> {
        let text = self.text(&["forget", subject])?;
        ensure!(text.contains("3 aggregates"), "forget: {text}");
        Ok(())
    }

    fn has_forgotten(&self, subject: &str) -> Result<()> {
        let left = self.json(&["programs"])?;
        ensure!(left.as_array().is_some_and(|all| all.len() == 1 && all[0]["subject"] != subject), "{left}");
        ensure!(self.json(&["merge"])?["folded"] == 0, "what is forgotten was folded again");
        let wrong = self.run(&["forget", "no-key"])?;
        let why = String::from_utf8_lossy(&wrong.stderr).into_owned();
        ensure!(wrong.status.code() == Some(2) && why.contains("imas fleet programs"), "forget: {why}");
        Ok(())
    }
}
