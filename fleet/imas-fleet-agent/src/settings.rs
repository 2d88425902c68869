// SPDX-License-Identifier: Apache-2.0
//! `/etc/imas/fleet.toml`: where the fleet is, and who this host is there. Only the agent and the operator
//! read it; imasd, which has more rights, reads nothing of it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use imas_cli::message::Hinted;
use serde::Deserialize;

use crate::names;

/// Path of the settings.
pub const FILE: &str = "/etc/imas/fleet.toml";
/// The exchange folder.
pub const EXCHANGE: &str = "/var/lib/imas/fleet";

/// The settings of one host, or of one operator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetSettings {
    /// Addresses of servers, as `tls://fleet-1.example.org:4222`; any number, tried in random order.
    pub servers: Vec<String>,
    /// The account on the server that belongs to this fleet.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// Token of this host on the bus: 26 characters, as `imas fleet init` prints them.
    #[serde(default)]
    pub host: String,
    /// Certificates of the authorities that the servers' certificates must come from; absent: the system's.
    pub ca: Option<PathBuf>,
    /// This host's certificate.
    pub certificate: Option<PathBuf>,
    /// Key of this host's certificate.
    pub key: Option<PathBuf>,
    /// This host's NATS credentials (JWT and nkey), where the servers want these; beside a certificate or
    /// alone.
    pub credentials: Option<PathBuf>,
    /// The JetStream domain behind a leaf node: not supported, and refused with a message.
    domain: Option<String>,
    /// Whether this host folds aggregates into statistics. Its certificate must be allowed to write them.
    #[serde(default)]
    pub merge: bool,
    /// Copies of stream and bucket that `imas fleet init` asks for: 1, 3 or 5.
    #[serde(default = "default_replicas")]
    pub replicas: usize,
    /// Bounds of the random number of minutes after which statistics are read anew.
    #[serde(default = "default_refresh")]
    pub refresh_minutes: [f64; 2],
    /// The exchange folder.
    #[serde(default = "default_exchange")]
    pub exchange: PathBuf,
}

fn default_tenant() -> String {
    "imas".to_owned()
}

fn default_replicas() -> usize {
    3
}

fn default_refresh() -> [f64; 2] {
    [10.0, 30.0]
}

fn default_exchange() -> PathBuf {
    EXCHANGE.into()
}

impl FleetSettings {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or has a value that cannot be.
    pub fn read(file: &Path) -> Result<Self> {
        let place = || file.display().to_string();
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(no_fleet(file)),
            read => read.with_context(place)?,
        };
        let mut settings = Self::parse(&text).with_context(place)?;
        settings.begin_at(file.parent().unwrap_or_else(|| Path::new("")));
        Ok(settings)
    }

    /// Makes relative paths begin at the folder of the settings.
    fn begin_at(&mut self, folder: &Path) {
        let Self { ca, certificate, key, credentials, .. } = self;
        for file in [ca, certificate, key, credentials].into_iter().flatten() {
            *file = folder.join(&*file);
        }
    }

    /// Reads settings from the text of a file.
    ///
    /// # Errors
    /// When it has a value that cannot be.
    pub fn parse(text: &str) -> Result<Self> {
        let settings: Self = toml::from_str(text)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        if self.servers.is_empty() {
            bail!("servers: at least one is needed");
        }
        if !self.host.is_empty() && !names::is_host_token(&self.host) {
            bail!("host: 26 characters of a-z and 2-7, as 'imas fleet init' prints them");
        }
        if self.certificate.is_some() != self.key.is_some() {
            bail!("certificate and key: both or none");
        }
        if self.domain.is_some() {
            bail!("domain: leaf nodes are not supported; name the fleet's servers themselves");
        }
        if ![1, 3, 5].contains(&self.replicas) {
            bail!("replicas: 1, 3 or 5");
        }
        let [least, most] = self.refresh_minutes;
        if !(least > 0.0 && least <= most && most <= 1440.0) {
            bail!("refresh_minutes: two numbers, the smaller one first, above 0 and at most 1440");
        }
        if let Some(open) = self.servers.iter().find(|server| !self.has_tls() && !is_of_this_machine(server))
        {
            bail!("{open}: a server beyond this machine needs TLS: begin it with tls://, or set ca");
        }
        Ok(())
    }

    /// Whether every connection must be encrypted.
    pub fn has_tls(&self) -> bool {
        self.ca.is_some() || self.servers.iter().all(|server| server.starts_with("tls://"))
    }
}

/// Whether the address is one of the loopback device.
fn is_of_this_machine(server: &str) -> bool {
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    let name = name.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A host without settings is in no fleet.
fn no_fleet(file: &Path) -> anyhow::Error {
    Hinted::error(
        format!("this host is in no fleet: there is no {}", file.display()),
        "'imas fleet init --certificates DIR' makes those of a fleet (docs/fleet.md); --settings FILE names others",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_settings_is_told_how_to_join() {
        let error = FleetSettings::read(Path::new("/nowhere/fleet.toml")).unwrap_err();
        assert!(error.to_string().contains("in no fleet"), "{error}");
        assert!(imas_cli::message::hint(&error).is_some_and(|hint| hint.contains("imas fleet init")));
    }

    #[test]
    fn few_words_are_enough_and_wrong_ones_are_named() {
        let least = FleetSettings::parse("servers = ['tls://a.example:4222']").unwrap();
        assert_eq!((least.tenant.as_str(), least.replicas, least.merge), ("imas", 3, false));
        let wrong = [
            ("servers = []", "at least one"),
            ("servers = ['tls://a']\nreplicas = 2", "1, 3 or 5"),
            ("servers = ['tls://a']\nhost = 'web-1'", "26 characters"),
            ("servers = ['tls://a']\nkey = 'k'", "both or none"),
            ("servers = ['tls://a']\ndomain = 'hub'", "leaf nodes are not supported"),
            ("servers = ['tls://a']\nrefresh_minutes = [3, 2]", "smaller one first"),
            ("servers = ['tls://a']\nrefresh_minutes = [nan, 2]", "smaller one first"),
            ("servers = ['nats://10.0.0.1:4222']", "needs TLS"),
            ("servers = ['127.0.0.1.example:4222']", "needs TLS"),
            ("servers = ['tls://a']\nmarge = true", "marge"),
        ];
        for (text, part) in wrong {
            let error = format!("{:#}", FleetSettings::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn files_are_those_beside_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.toml");
        std::fs::write(&file, "servers = ['tls://a']\ncredentials = 'host.creds'\nca = '/etc/ca.pem'\n")
            .unwrap();
        let read = FleetSettings::read(&file).unwrap();
        assert_eq!(read.credentials, Some(folder.path().join("host.creds")));
        assert_eq!((read.ca, read.certificate), (Some("/etc/ca.pem".into()), None));
    }

    #[test]
    fn this_machine_needs_no_tls() {
        for server in ["127.0.0.1:4222", "nats://127.0.0.1:4222", "nats://[::1]:4222", "localhost:4222"] {
            assert!(FleetSettings::parse(&format!("servers = ['{server}']")).is_ok(), "{server}");
        }
    }
}
