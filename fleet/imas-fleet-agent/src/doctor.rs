// SPDX-License-Identifier: Apache-2.0
//! `imas fleet doctor`: what this host needs for the fleet, each thing tried.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, Event};
use imas_fleet::FleetBus as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::credentials::Credentials;
use crate::jetstream::JetStreamBus;
use crate::names;
use crate::settings::FleetSettings;
use crate::version::{VersionVerdict, verdict};

/// A certificate that ends within this time is worth a warning, seconds.
const SOON_S: i64 = 30 * 86_400;
/// A difference of clocks that is worth a warning, seconds.
const CLOCK_S: f64 = 5.0;
/// How long the server may take to refuse.
const REFUSAL: Duration = Duration::from_secs(2);

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetFinding {
    /// The check found nothing to do.
    Good,
    /// The part that was checked works, and somebody should look at it.
    Warning,
    /// The part that was checked does not work.
    Bad,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetCheck {
    /// Name of the check.
    pub name: &'static str,
    /// How the check ended.
    pub finding: FleetFinding,
    /// Finding in words, and what to do.
    pub text: String,
}

/// Answer of the server about the host that asks.
#[derive(Deserialize)]
struct UserAnswer {
    server: ServerPart,
    data: UserPart,
}

#[derive(Deserialize)]
struct ServerPart {
    time: String,
}

#[derive(Deserialize)]
struct UserPart {
    account: String,
}

fn check(name: &'static str, result: Result<String>) -> FleetCheck {
    match result {
        Ok(text) => FleetCheck { name, finding: FleetFinding::Good, text },
        Err(error) => FleetCheck { name, finding: FleetFinding::Bad, text: format!("{error:#}") },
    }
}

fn warning(name: &'static str, text: String) -> FleetCheck {
    FleetCheck { name, finding: FleetFinding::Warning, text }
}

/// Results of all checks. Nothing is left on the server.
pub async fn examine(settings: &FleetSettings) -> Vec<FleetCheck> {
    let mut checks = vec![check("exchange folder", exchange(&settings.exchange))];
    if let Some(key) = &settings.key {
        checks.push(check("key", secret(key)));
    }
    if let Some(certificate) = &settings.certificate {
        checks.push(dates(certificate).unwrap_or_else(|error| check("certificate", Err(error))));
    }
    if let Some(file) = &settings.credentials {
        checks.push(credentials(file).unwrap_or_else(|error| check(CREDENTIALS, Err(error))));
    }
    match Connection::open_any_version(settings).await {
        Ok(connection) => checks.extend(connected(settings, connection).await),
        Err(error) => checks.push(check("connection", Err(error))),
    }
    checks
}

async fn connected(settings: &FleetSettings, mut connection: Connection) -> Vec<FleetCheck> {
    let server = connection.client.server_info();
    let name = format!("{} at {}:{}", server.server_name, server.host, server.port);
    let mut checks = vec![check("connection", Ok(name)), version(&server.version)];
    checks.push(if settings.has_tls() {
        check("encryption", Ok("TLS".to_owned()))
    } else {
        warning("encryption", "none: good for trying out on this machine only".to_owned())
    });
    match timeout(REFUSAL, user(&connection.client)).await.context("no answer").flatten() {
        Ok(user) => checks.extend([tenant(settings, &user), clock(&user)]),
        Err(error) => checks.push(warning("tenant", format!("the server gives no answer: {error:#}"))),
    }
    let bus = JetStreamBus::new(connection.jetstream(), &settings.host);
    checks.push(check("reading statistics", reading(&bus).await));
    if !settings.host.is_empty() {
        checks.push(check("publishing as this host", publishing(&bus, &settings.host).await));
        checks.push(foreign(&mut connection, &bus).await);
    }
    checks
}

fn version(text: &str) -> FleetCheck {
    match verdict(text) {
        VersionVerdict::Supported => check("server's version", Ok(text.to_owned())),
        VersionVerdict::Old(why) => warning("server's version", why),
        VersionVerdict::Refused(why) => check("server's version", Err(anyhow!(why))),
    }
}

fn exchange(folder: &Path) -> Result<String> {
    for part in ["outbox", "inbox", "."] {
        let probe = folder.join(part).join("doctor.new");
        fs::write(&probe, "").with_context(|| probe.display().to_string())?;
        fs::remove_file(&probe).with_context(|| probe.display().to_string())?;
    }
    let mode = fs::metadata(folder)?.mode();
    if mode & 0o002 != 0 {
        bail!("{}: everybody may write there: chmod o-w", folder.display());
    }
    Ok(folder.display().to_string())
}

fn secret(key: &Path) -> Result<String> {
    let mode = fs::metadata(key).with_context(|| key.display().to_string())?.mode();
    if mode & 0o007 != 0 {
        bail!("{}: everybody may read it: chmod o= {0}", key.display());
    }
    fs::File::open(key).with_context(|| key.display().to_string())?;
    Ok(key.display().to_string())
}

fn dates(file: &Path) -> Result<FleetCheck> {
    let place = || file.display().to_string();
    let bytes = fs::read(file).with_context(place)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).with_context(place)?;
    let certificate = pem.parse_x509().with_context(place)?;
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok(validity_of("certificate", "", (Some(from), Some(until))))
}

const CREDENTIALS: &str = "credentials";

fn credentials(file: &Path) -> Result<FleetCheck> {
    secret(file)?;
    let read = Credentials::read(file)?;
    let claims = read.claims();
    Ok(validity_of(CREDENTIALS, &format!("user {}, ", claims.name), (claims.nbf, claims.exp)))
}

/// Whether something is valid today, and for how long; from and until in seconds since 1970.
fn validity_of(name: &'static str, of: &str, (from, until): (Option<i64>, Option<i64>)) -> FleetCheck {
    let now = Timestamp::now().as_second();
    let day = |at: Option<i64>, none: &str| {
        let at = at.map(|at| Timestamp::from_second(at).map(|at| at.strftime("%F").to_string()));
        at.map_or_else(|| none.to_owned(), |at| at.unwrap_or_else(|_| "?".to_owned()))
    };
    let text = format!("{of}valid from {} until {}", day(from, "ever"), day(until, "ever"));
    if from.is_some_and(|from| now < from) || until.is_some_and(|until| now > until) {
        check(name, Err(anyhow!("{text}: not today")))
    } else if until.is_some_and(|until| until - now < SOON_S) {
        warning(name, format!("{text}: make a new one soon"))
    } else {
        check(name, Ok(text))
    }
}

async fn user(client: &Client) -> Result<UserAnswer> {
    let answer = client.request("$SYS.REQ.USER.INFO", "".into()).await?;
    Ok(serde_json::from_slice(&answer.payload)?)
}

fn tenant(settings: &FleetSettings, user: &UserAnswer) -> FleetCheck {
    let (set, is) = (&settings.tenant, &user.data.account);
    if set == is || (!settings.has_tls() && is == "$G") {
        return check("tenant", Ok(is.clone()));
    }
    if settings.credentials.is_some() && nkeys::from_public_key(is).is_ok() {
        // Accounts of JWTs are known to the server by their keys alone.
        return check("tenant", Ok(format!("account {is}, by its credentials")));
    }
    let why = anyhow!("the settings name {set}, the server {is}: is this the certificate of another tenant?");
    check("tenant", Err(why))
}

fn clock(user: &UserAnswer) -> FleetCheck {
    let Ok(time) = user.server.time.parse::<Timestamp>() else {
        return warning("clock", format!("the server's time is not readable: {}", user.server.time));
    };
    let difference = Timestamp::now().duration_since(time).as_secs_f64();
    let text = format!("{difference:+.1} s from the server's");
    if difference.abs() > CLOCK_S {
        return warning("clock", format!("{text}: certificates and reports need right clocks"));
    }
    check("clock", Ok(text))
}

/// Subject of a program that nobody has.
fn nobodys(host: &str) -> String {
    format!("{}.doctor", names::host_token(host))
}

async fn reading(bus: &JetStreamBus) -> Result<String> {
    bus.statistics(&nobodys("doctor")).await?;
    Ok("answered".to_owned())
}

/// The message names another stream, so that the server refuses it after it has looked at the rights, and
/// keeps nothing.
async fn publishing(bus: &JetStreamBus, host: &str) -> Result<String> {
    let subject = names::aggregate_subject(&nobodys("doctor"), host);
    let sent = bus.context().send_publish(subject, nowhere()).await?.await;
    let answer = sent.err().map(|error| crate::connection::with_causes(&error)).unwrap_or_default();
    if answer.contains("10060") || answer.contains("expected stream does not match") {
        return Ok("allowed".to_owned());
    }
    bail!(
        "refused or not answered: {answer}; was 'imas fleet init' run, and is this host's name in the servers' configuration?"
    )
}

fn nowhere() -> PublishMessage {
    PublishMessage::build().expected_stream("DOCTOR").payload("".into())
}

/// A host that may publish under another's name is a danger to all.
async fn foreign(connection: &mut Connection, bus: &JetStreamBus) -> FleetCheck {
    const NAME: &str = "publishing as another host";
    while connection.events.try_recv().is_ok() {}
    let other = names::host_token("doctor: another host");
    let subject = names::aggregate_subject(&nobodys("doctor"), &other);
    let Ok(sent) = bus.context().send_publish(subject, nowhere()).await else {
        return warning(NAME, "could not be tried".to_owned());
    };
    let refused = async {
        while let Some(event) = connection.events.recv().await {
            if matches!(&event, Event::ServerError(error) if error.to_string().contains("ermissions")) {
                return;
            }
        }
    };
    tokio::select! {
        () = refused => check(NAME, Ok("refused by the server".to_owned())),
        _ = sent.into_future() => warning(
            NAME,
            "allowed: give each host its own rights, as 'imas fleet init --certificates' does".to_owned(),
        ),
        () = tokio::time::sleep(REFUSAL) => warning(NAME, "no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_judged_and_shown() {
        let now = Timestamp::now().as_second();
        let finding = |from, until| validity_of("x", "", (from, until)).finding;
        assert_eq!(finding(None, None), FleetFinding::Good);
        assert_eq!(finding(Some(now - 9), Some(now + SOON_S + 9)), FleetFinding::Good);
        assert_eq!(finding(None, Some(now + SOON_S - 9)), FleetFinding::Warning);
        assert_eq!(finding(None, Some(now - 9)), FleetFinding::Bad);
        assert_eq!(finding(Some(now + 9), None), FleetFinding::Bad);
        assert_eq!(validity_of("x", "u, ", (Some(0), None)).text, "u, valid from 1970-01-01 until ever");
    }

    #[test]
    fn credentials_that_everybody_may_read_are_bad() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("host.creds");
        let why = || format!("{:#}", credentials(&file).unwrap_err());
        assert!(why().contains("host.creds"), "{}", why());
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(why().contains("everybody may read it"), "{}", why());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(why().contains("no NATS USER JWT"), "{}", why());
    }
}
