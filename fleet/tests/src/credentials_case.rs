// SPDX-License-Identifier: Apache-2.0
//! Users with NATS credentials instead of names in the server's configuration: an operator's JWT, an
//! account's, and one for each user, made here as nsc makes them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use imas_fleet_agent::certificates::{Authority, Validity};
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::jetstream::JetStreamBus;
use imas_fleet_agent::rights::{FleetRights, FleetRole};
use imas_fleet_agent::server_files::{OPERATOR, full_name};
use imas_fleet_agent::settings::FleetSettings;
use imas_fleet_agent::setup::{self, StreamSizes};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::agent::AgentProcess;
use crate::cluster::{SIZES, free_ports};
use crate::load;
use crate::network::LONGEST_WAIT;
use crate::running::Running;

/// A server, its accounts, and a folder for each user.
struct Realm {
    _server: Option<Running>,
    folder: tempfile::TempDir,
    port: u16,
    account: KeyPair,
}

/// Seconds since 1970, from now on.
fn unix_s(from_now: i64) -> i64 {
    i64::try_from(imas_fleet_agent::journal::now_unix_s()).unwrap_or(0) + from_now
}

/// A signed JWT, as the NATS servers read them.
fn jwt(issuer: &KeyPair, subject: &str, name: &str, expires: Option<i64>, nats: Value) -> Result<String> {
    let mut claims =
        json!({ "iss": issuer.public_key(), "sub": subject, "name": name, "iat": unix_s(0), "jti": name });
    claims["nats"] = nats;
    claims["exp"] = expires.map_or(Value::Null, Value::from);
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(text.as_bytes())?);
    Ok(format!("{text}.{signature}"))
}

/// `storage`: bytes that JetStream may keep; -1: any number, 0: it has none.
fn account_claims(storage: i64) -> Value {
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
        "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": -1, "consumer": -1 });
    json!({ "type": "account", "version": 2, "limits": limits })
}

impl Realm {
    fn start(server: &Path) -> Result<Self> {
        let (operator, system, account) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
        let mut realm = Self { _server: None, folder: tempfile::tempdir()?, port: free_ports()?, account };
        let own = json!({ "type": "operator", "version": 2 });
        let operators = jwt(&operator, &operator.public_key(), "operator", None, own)?;
        let of = |key: &KeyPair, name: &str, storage: i64| {
            anyhow::Ok((
                key.public_key(),
                jwt(&operator, &key.public_key(), name, None, account_claims(storage))?,
            ))
        };
        let (systems, accounts) = (of(&system, "SYS", 0)?, of(&realm.account, "imas", -1)?);
        let folder = realm.folder.path().join("server");
        let authority = Authority::in_folder(realm.folder.path())?;
        authority.sign(&["127.0.0.1".to_owned()], true, Validity::days(10), &folder)?;
        std::fs::write(
            folder.join("nats-server.conf"),
            format!(
                "server_name: one\nlisten: \"127.0.0.1:{}\"\njetstream {{ store_dir: store }}\noperator: {operators}\n\
                 system_account: {}\nresolver: MEMORY\nresolver_preload: {{\n {}: {}\n {}: {}\n}}\n\
                 tls {{ cert_file: \"certificate.pem\", key_file: \"key.pem\", ca_file: \"../ca.pem\", verify: true }}\n",
                realm.port, systems.0, systems.0, systems.1, accounts.0, accounts.1
            ),
        )?;
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new(server);
        command.args(["-c", "nats-server.conf"]).current_dir(&folder).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn().context("nats-server")?;
        realm._server = Some(Running(child));
        let end = Instant::now() + LONGEST_WAIT;
        while std::net::TcpStream::connect(("127.0.0.1", realm.port)).is_err() {
            let log = std::fs::read_to_string(folder.join("log"))?;
            ensure!(Instant::now() < end && !log.contains("[FTL]"), "the server does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(realm)
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a user of that account, with a certificate and credentials; where its settings are.
    fn user(&self, name: &str, role: FleetRole, account: &KeyPair, expires: Option<i64>) -> Result<PathBuf> {
        let (folder, full) = (self.folder_of(name), full_name(name, "imas"));
        let certified = Authority::in_folder(self.folder.path())?;
        certified.sign(std::slice::from_ref(&full), false, Validity::days(100), &folder)?;
        let FleetRights { host, publish, subscribe } = FleetRights::of(&full, role);
        let key = KeyPair::new_user();
        let nats = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
            "pub": { "allow": publish }, "sub": { "allow": subscribe } });
        let user = jwt(account, &key.public_key(), name, expires, nats)?;
        let credentials = folder.join("host.creds");
        std::fs::write(
            &credentials,
            format!(
                "-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
                key.seed()?
            ),
        )?;
        std::fs::set_permissions(&credentials, std::fs::Permissions::from_mode(0o600))?;
        let file = folder.join("fleet.toml");
        std::fs::write(
            &file,
            format!(
                "servers = [\"tls://127.0.0.1:{}\"]\nhost = \"{host}\"\nca = \"../ca.pem\"\ncertificate = \"certificate.pem\"\n\
                 key = \"key.pem\"\ncredentials = \"host.creds\"\nreplicas = 1\nexchange = \"{}\"\n",
                self.port,
                folder.join("exchange").display()
            ),
        )?;
        imas_exchange::exchange::Exchange::new(folder.join("exchange")).prepare()?;
        Ok(file)
    }
}

/// Credentials beside certificates: what they allow works, and nothing else does.
pub(crate) async fn credentials(server: &Path, program: &Path) -> Result<String> {
    let realm = Realm::start(server)?;
    let own = &realm.account;
    let operator = realm.user(OPERATOR, FleetRole::Operator, own, None)?;
    let merger = realm.user("m1", FleetRole::Merger, own, None)?;
    let host = realm.user("h1", FleetRole::Host, own, Some(unix_s(90 * 86_400)))?;
    let sizes = StreamSizes { replicas: 1, ..SIZES };
    setup::make(&open(&operator).await?.jetstream(), sizes).await?;
    doctor(
        program,
        &host,
        0,
        &[
            "good credentials user h1, valid from ever until 20",
            "good publishing as this host",
            "good publishing as another host refused",
            "good tenant account A",
        ],
    )?;
    works(program, &host, &merger).await?;
    refused(&realm, program).await?;
    renewed(&realm, program).await?;
    Ok("operator, account and users by JWT, TLS with certificates beside them: stream, outbox, fold and doctor work; refused: \
        expired, of a strange account, of another key, readable by all; new ones are taken when the old ones expire"
        .to_owned())
}

async fn open(settings: &Path) -> Result<Connection> {
    Connection::open(&FleetSettings::read(settings)?).await
}

async fn bus(settings: &Path) -> Result<JetStreamBus> {
    Ok(JetStreamBus::new(open(settings).await?.jetstream(), FleetSettings::read(settings)?.host))
}

/// The agent empties an outbox, and a merger folds it.
async fn works(program: &Path, host: &Path, merger: &Path) -> Result<()> {
    let mut agent = AgentProcess::start(program, host)?;
    let one = load::aggregate(&FleetSettings::read(host)?.host, 1, 1);
    agent.exchange.add(1, &one)?;
    agent.until("through", |record| record.acknowledged == 1).await?;
    let counts = imas_fleet::merge(&bus(merger).await?, &load::subject(&one)).await?;
    ensure!(counts.folds.folded == 1, "{counts:?}");
    ensure!(agent.end()?, "the agent did not end well");
    Ok(())
}

async fn refused(realm: &Realm, program: &Path) -> Result<()> {
    let is_refused = async |what: &str, settings: &Path, part: &str| {
        let error = open(settings).await.err().with_context(|| format!("{what}: not refused"))?;
        ensure!(format!("{error:#}").contains(part), "{what}: {error:#}");
        anyhow::Ok(())
    };
    let expired = realm.user("expired", FleetRole::Host, &realm.account, Some(unix_s(-60)))?;
    is_refused("expired", &expired, "uthorization").await?;
    doctor(program, &expired, 1, &["BAD credentials", "not today"])?;
    let strange = realm.user("strange", FleetRole::Host, &KeyPair::new_account(), None)?;
    is_refused("strange", &strange, "uthorization").await?;
    let own = realm.user("other", FleetRole::Host, &realm.account, None)?;
    let (mine, theirs) = (own.with_file_name("host.creds"), strange.with_file_name("host.creds"));
    let seed = |file: &Path| {
        let text = std::fs::read_to_string(file)?;
        let seed = text.lines().find(|line| line.starts_with("SU")).map(str::to_owned);
        anyhow::Ok((text, seed.context("no seed")?))
    };
    let ((text, of_mine), (_, of_theirs)) = (seed(&mine)?, seed(&theirs)?);
    std::fs::write(&mine, text.replace(&of_mine, &of_theirs))?;
    is_refused("another key", &own, "not that of the user").await?;
    std::fs::write(&mine, text)?;
    open(&own).await.context("the right key")?;
    std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o644))?;
    doctor(program, &own, 1, &["BAD credentials", "everybody may read it"])?;
    std::fs::remove_file(&mine)?;
    is_refused("none", &own, "host.creds").await
}

/// The server ends the connection when the credentials expire; the agent goes on with those that are there by
/// then.
async fn renewed(realm: &Realm, program: &Path) -> Result<()> {
    let settings = realm.user("short", FleetRole::Host, &realm.account, Some(unix_s(8)))?;
    let mut agent = AgentProcess::start(program, &settings)?;
    agent.until("connected", |record| record.connections == 1).await?;
    realm.user("short", FleetRole::Host, &realm.account, None)?;
    let record = agent.until("connected again", |record| record.connections == 2).await?;
    ensure!(record.connected_since_unix_s.is_some(), "{record:?}");
    ensure!(agent.end()?, "the agent did not end well");
    Ok(())
}

/// Checks what doctor finds, by its exit status and parts of its table, blanks taken together.
fn doctor(program: &Path, settings: &Path, status: i32, parts: &[&str]) -> Result<()> {
    let output = Command::new(program).args(["doctor", "--settings"]).arg(settings).output()?;
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let has_all = parts.iter().all(|part| text.contains(part));
    ensure!(output.status.code() == Some(status) && has_all, "doctor: {text}: not {status} with {parts:?}");
    Ok(())
}
