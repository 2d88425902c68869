// SPDX-License-Identifier: Apache-2.0
//! Who is refused: wrong certificates, other tenants, hosts that do what only others may, old servers.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::Event;
use imas_fleet::FleetBus as _;
use imas_fleet_agent::certificates::{Authority, Validity};
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::server_files::{FleetPlan, OPERATOR, full_name};
use imas_fleet_agent::{commands, names};

use crate::agent::AgentProcess;
use crate::cluster::{Cluster, SIZES, free_ports};
use crate::load;
use crate::network::LONGEST_WAIT;
use crate::running::Running;

/// Certificates and rights.
pub(crate) async fn security(server: &Path) -> Result<String> {
    let mut cluster = Cluster::start(server, &["h1", "h2"], &["m1"], SIZES).await?;
    certificates(&cluster).await?;
    rights(&cluster).await?;
    tenant(&mut cluster).await?;
    Ok("refused: no, a strange, an expired certificate, one without a user; publishing as another host, writing \
        statistics, removing the stream, reading others' aggregates; a flood of one host; another tenant sees nothing"
        .to_owned())
}

async fn certificates(cluster: &Cluster) -> Result<()> {
    let good = cluster.settings("h1")?;
    Connection::open(&good).await.context("the good one")?;
    let folder = tempfile::tempdir()?;
    let refused = async |what: &str, authority: &Path, name: &str, validity: Validity| {
        let to = folder.path().join(what);
        std::fs::create_dir_all(authority)?;
        Authority::in_folder(authority)?.sign(&[full_name(name, "imas")], false, validity, &to)?;
        let mut settings = good.clone();
        settings.certificate = Some(to.join("certificate.pem"));
        settings.key = Some(to.join("key.pem"));
        ensure!(Connection::open(&settings).await.is_err(), "{what}: not refused");
        anyhow::Ok(())
    };
    let own = &cluster.plan.folder;
    refused("strange", &folder.path().join("ca"), "h1", Validity::days(10)).await?;
    refused("expired", own, "h1", Validity { from: -20, until: -10 }).await?;
    refused("future", own, "h1", Validity { from: 10, until: 20 }).await?;
    refused("unknown", own, "h9", Validity::days(10)).await?;
    let mut without = good.clone();
    (without.certificate, without.key) = (None, None);
    ensure!(Connection::open(&without).await.is_err(), "no certificate: not refused");
    Ok(())
}

async fn rights(cluster: &Cluster) -> Result<()> {
    let settings = cluster.settings("h1")?;
    let mut connection = Connection::open(&settings).await?;
    let client = connection.client.clone();
    let other = cluster.settings("h2")?.host;
    let subject = load::subject(&load::aggregate("", 1, 0));
    for forbidden in [
        names::aggregate_subject(&subject, &other),
        names::statistics_subject(&subject),
        format!("{}.{subject}", names::DECISIONS),
        format!("$JS.API.STREAM.DELETE.{}", names::STREAM),
        format!("$JS.API.STREAM.PURGE.{}", names::STREAM),
        format!("$JS.API.STREAM.UPDATE.{}", names::BUCKET_STREAM),
        format!("$JS.API.DIRECT.GET.{}", names::STREAM),
        format!("$JS.API.CONSUMER.CREATE.{}", names::STREAM),
        format!("{}.{other}", names::MERGERS),
    ] {
        client.publish(forbidden.clone(), "{}".into()).await?;
        violation(&mut connection, &forbidden).await?;
    }
    for forbidden in [format!("{}.>", names::AGGREGATES), "_INBOX.>".to_owned(), ">".to_owned()] {
        let subscription = client.subscribe(forbidden.clone()).await?;
        violation(&mut connection, &forbidden).await?;
        drop(subscription);
    }
    let states = commands::streams(&cluster.bus(OPERATOR).await?).await?;
    ensure!(states.iter().all(|state| state.messages == 0), "something was written");
    lie(cluster, &other, &subject).await?;
    misdirect(cluster).await?;
    flood(cluster).await
}

/// A server sends its acknowledgement wherever the message says, whatever the rights of the sender. One in the place of
/// statistics cannot be read, and the next merge makes them anew.
async fn misdirect(cluster: &Cluster) -> Result<()> {
    let settings = cluster.settings("h1")?;
    let client = Connection::open(&settings).await?.client;
    let [one, two] = [0, 1].map(|number| load::aggregate(&settings.host, 9, number));
    let subject = load::subject(&one);
    cluster.bus("h1").await?.append(&subject, &one.id(), serde_json::to_vec(&one)?).await?;
    cluster.whole().await?;
    let merger = cluster.bus("m1").await?;
    imas_fleet::merge(&merger, &subject).await?;
    cluster.whole().await?;
    let (to, answer) =
        (names::aggregate_subject(&subject, &settings.host), names::statistics_subject(&subject));
    client.publish_with_reply(to, answer, serde_json::to_vec(&two)?.into()).await?;
    let end = std::time::Instant::now() + LONGEST_WAIT;
    loop {
        imas_fleet::merge(&merger, &subject).await?;
        let stored = merger.statistics(&subject).await?.context("no statistics")?;
        let folded = imas_exchange::FleetStatistics::read_of(&subject, &stored.value).map(|read| read.folded);
        if matches!(folded, Ok(2)) {
            return Ok(());
        }
        ensure!(std::time::Instant::now() < end, "{folded:?} of 2 are folded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// More of one host in a day than it can measure is dropped, by the stream's clock. At midnight two days get through.
async fn flood(cluster: &Cluster) -> Result<()> {
    const NUMBER: u64 = 2 * imas_exchange::rate::MOST_OF_DAY as u64 + 100;
    let (host, bus) = (cluster.settings("h2")?.host, cluster.bus("h2").await?);
    load::publish(&bus, &host, NUMBER, 1, &load::Tries::default()).await?;
    cluster.whole().await?;
    let subject = load::subject(&load::aggregate("", 0, 0));
    let folds = imas_fleet::merge(&cluster.bus("m1").await?, &subject).await?.folds;
    ensure!(folds.folded + folds.excessive == NUMBER && folds.excessive >= 100, "{folds:?}");
    Ok(())
}

/// A payload in another host's name, sent as itself, is passed over by mergers.
async fn lie(cluster: &Cluster, other: &str, subject: &str) -> Result<()> {
    let liar = cluster.bus("h1").await?;
    let lie = load::aggregate(other, 1, 0);
    liar.append(subject, "lie", serde_json::to_vec(&lie)?).await?;
    cluster.whole().await?; // any server may answer a read, and one may be behind
    let merger = cluster.bus("m1").await?;
    let counts = imas_fleet::merge(&merger, subject).await?;
    ensure!(counts.folds.folded == 0 && counts.folds.rejected == 1 && merger.rejected() == 1, "{counts:?}");
    Ok(())
}

async fn violation(connection: &mut Connection, subject: &str) -> Result<()> {
    let refused = async {
        while let Some(event) = connection.events.recv().await {
            if matches!(&event, Event::ServerError(error) if error.to_string().contains("ermissions")) {
                return Ok(());
            }
        }
        bail!("disconnected")
    };
    tokio::time::timeout(Duration::from_secs(20), refused)
        .await
        .with_context(|| format!("{subject}: allowed"))?
}

/// A host of another tenant, known to the same servers, is in a world of its own.
async fn tenant(cluster: &mut Cluster) -> Result<()> {
    let plan = FleetPlan {
        servers: vec![],
        tenant: "other".to_owned(),
        hosts: vec!["h1".to_owned()],
        mergers: vec![],
        ..cluster.plan.clone()
    };
    plan.write()?;
    // New accounts reach servers that run by a reload, which SIGHUP is.
    (0..3).try_for_each(|at| cluster.signal(at, rustix::process::Signal::HUP))?;
    let settings =
        imas_fleet_agent::settings::FleetSettings::read(&plan.member_folder("h1").join("fleet.toml"))?;
    let end = std::time::Instant::now() + LONGEST_WAIT;
    let connection = loop {
        match Connection::open(&settings).await {
            Ok(connection) => break connection,
            Err(error) if std::time::Instant::now() > end => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    };
    let bus = JetStreamBus::new(connection.jetstream(), &settings.host);
    let one = load::aggregate(&settings.host, 1, 0);
    ensure!(
        bus.append(&load::subject(&one), "x", vec![]).await.is_err(),
        "another tenant reached the stream"
    );
    ensure!(bus.statistics(&load::subject(&one)).await.is_err(), "another tenant read statistics");
    Ok(())
}

/// An old server is refused by doctor and by the agent, which lives on.
pub(crate) async fn versions(old: &Path, program: &Path) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let port = free_ports()?;
    let child = Command::new(old)
        .args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let _server = Running(child);
    refused(program, folder.path(), port).await
}

async fn refused(program: &Path, folder: &Path, port: u16) -> Result<String> {
    let settings = folder.join("fleet.toml");
    let host = names::host_token("h");
    let text = format!(
        "servers = ['nats://127.0.0.1:{port}']\nhost = '{host}'\nexchange = '{}'\n",
        folder.join("exchange").display()
    );
    std::fs::write(&settings, text)?;
    let end = std::time::Instant::now() + LONGEST_WAIT;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(std::time::Instant::now() < end, "the old server does not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let doctor = Command::new(program).args(["doctor", "--json", "--settings"]).arg(&settings).output()?;
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    ensure!(doctor.status.code() == Some(1) && found.contains("2.9."), "doctor: {found}");
    let mut agent = AgentProcess::start(program, &settings)?;
    agent.exchange.add(1, &load::aggregate(&host, 1, 1))?;
    let is_refused = |error: &String| error.contains("2.9.") && error.contains("loses");
    let record = agent.until("refusing", |record| record.last_error.as_ref().is_some_and(is_refused)).await?;
    ensure!(record.published == 0 && agent.exchange.backlog()?.0 == 1, "{record:?}");
    ensure!(agent.end()?, "the agent did not end well");
    Ok(format!("refused by doctor and agent: {}", record.last_error.unwrap_or_default()))
}
