// SPDX-License-Identifier: Apache-2.0
//! Everything that servers and hosts of a new fleet need, as files in one folder of the operator:
//!
//! ```text
//! ca.pem ca.key                    the authority; its key stays with the operator
//! servers                          one HOST:PORT a line
//! server/fleet-1/                  nats-server.conf, certificate.pem, key.pem, and copies of ca.pem, accounts.conf
//! TENANT/HOST/                     fleet.toml, certificate.pem, key.pem, ca.pem: goes to /etc/imas of the host
//! TENANT/operator/                 the same for the operator's commands
//! ```
//! Who is in the fleet is who has a folder there: removing one and running `init` again takes its rights
//! away.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::certificates::{Authority, Validity, write_open};
use crate::names::host_token;
use crate::rights::{FleetRights, FleetRole};
use crate::settings::FleetSettings;

/// The folder of the operator's own certificate.
pub const OPERATOR: &str = "operator";
/// Distance from a server's port to the port at which it connects to the other servers.
const TO_CLUSTER: u16 = 2000;
/// Distance from a server's port to the port of its health.
const TO_HEALTH: u16 = 4000;

/// A new or growing fleet.
#[derive(Debug, Clone)]
pub struct FleetPlan {
    /// Folder for the files.
    pub folder: PathBuf,
    /// `HOST:PORT` of each server; empty: the ones before.
    pub servers: Vec<String>,
    /// The account.
    pub tenant: String,
    /// Names of hosts to add.
    pub hosts: Vec<String>,
    /// Names of hosts to add that fold aggregates as well.
    pub mergers: Vec<String>,
    /// Days that certificates are valid.
    pub days: i64,
    /// Disk space on each server, GiB.
    pub disk_gib: u64,
}

/// A host with its folder.
struct Member {
    name: String,
    merges: bool,
}

impl FleetPlan {
    /// Writes the files that are missing, and the servers' configuration anew.
    ///
    /// # Errors
    /// When a name cannot be used, or a file cannot be written.
    pub fn write(&self) -> Result<()> {
        self.names().chain([&self.tenant]).try_for_each(|name| check_name(name))?;
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let servers = self.all_servers()?;
        let authority = Authority::in_folder(&self.folder)?;
        for (name, merges) in self.new_members() {
            self.write_member(&authority, &servers, name, merges)?;
        }
        let accounts = self.accounts(servers.len())?;
        for at in 0..servers.len() {
            self.write_server(&authority, &servers, at, &accounts)?;
        }
        Ok(())
    }

    /// The folder of a host or of the operator.
    #[must_use]
    pub fn member_folder(&self, name: &str) -> PathBuf {
        self.folder.join(&self.tenant).join(name)
    }

    /// The folder of a server; the first one is 0.
    #[must_use]
    pub fn server_folder(&self, at: usize) -> PathBuf {
        self.folder.join("server").join(server_name(at))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.hosts.iter().chain(&self.mergers)
    }

    fn new_members(&self) -> impl Iterator<Item = (&str, bool)> {
        let hosts = self.hosts.iter().map(|name| (name.as_str(), false));
        let mergers = self.mergers.iter().map(|name| (name.as_str(), true));
        hosts.chain(mergers).chain([(OPERATOR, false)])
    }

    fn all_servers(&self) -> Result<Vec<String>> {
        let file = self.folder.join("servers");
        if !self.servers.is_empty() {
            let servers = self.servers.iter().map(|server| with_port(server)).collect::<Result<Vec<_>>>()?;
            write_open(&file, &format!("{}\n", servers.join("\n")))?;
            return Ok(servers);
        }
        let text = fs::read_to_string(&file).with_context(|| {
            format!("{}: name the servers with --server HOST:PORT, or try --servers 3", file.display())
        })?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn write_member(
        &self,
        authority: &Authority,
        servers: &[String],
        name: &str,
        merges: bool,
    ) -> Result<()> {
        let folder = self.member_folder(name);
        if folder.join("fleet.toml").exists() {
            return Ok(());
        }
        let full = full_name(name, &self.tenant);
        authority.sign(std::slice::from_ref(&full), false, Validity::days(self.days), &folder)?;
        copy(authority.file(), &folder.join("ca.pem"))?;
        let servers: Vec<String> = servers.iter().map(|server| format!("\"tls://{server}\"")).collect();
        let replicas = if servers.len() >= 3 { 3 } else { 1 };
        // Relative paths are those beside the settings: the folder is used where it is, or in /etc/imas.
        let text = format!(
            "# {name}, made by 'imas fleet init'.\nservers = [{}]\ntenant = \"{}\"\nhost = \"{}\"\nca = \"ca.pem\"\ncertificate = \
             \"certificate.pem\"\nkey = \"key.pem\"\nmerge = {merges}\nreplicas = {replicas}\n",
            servers.join(", "),
            self.tenant,
            host_token(&full),
        );
        write_open(&folder.join("fleet.toml"), &text)
    }

    fn write_server(
        &self,
        authority: &Authority,
        servers: &[String],
        at: usize,
        accounts: &str,
    ) -> Result<()> {
        let folder = self.server_folder(at);
        if !folder.join("certificate.pem").exists() {
            let host = split(&servers[at])?.0.to_owned();
            let names = [host, server_name(at)];
            authority.sign(&names, true, Validity::days(self.days), &folder)?;
        }
        copy(authority.file(), &folder.join("ca.pem"))?;
        write_open(&folder.join("accounts.conf"), accounts)?;
        write_open(&folder.join("nats-server.conf"), &self.configuration(servers, at)?)
    }

    /// The configuration of one server. Paths are beside it: nats-server is started in that folder.
    fn configuration(&self, servers: &[String], at: usize) -> Result<String> {
        let (host, port) = split(&servers[at])?;
        let listen = if host.starts_with("127.") { host } else { "0.0.0.0" };
        let health = port.checked_add(TO_HEALTH).context("the port is too large")?;
        let name = server_name(at);
        let cluster = if servers.len() > 1 { cluster(servers, listen, port)? } else { String::new() };
        Ok(format!(
            "# {name}, made by 'imas fleet init'. Start it in this folder: nats-server -c nats-server.conf\n\
             server_name: {name}\n\
             listen: \"{listen}:{port}\"\n\
             http: \"127.0.0.1:{health}\"  # /healthz, for this machine alone\n\
             max_connections: 65536\n\
             max_payload: 131072\n\
             max_pending: 16777216  # a host that does not read is dropped; it reads anew later\n\
             jetstream {{ store_dir: \"store\", max_memory_store: 67108864, max_file_store: {disk} }}\n\
             tls {{ {TLS}, verify_and_map: true, timeout: 5 }}\n{cluster}\
             include ./accounts.conf\n",
            disk = (self.disk_gib << 30) * self.members()?.len() as u64,
        ))
    }

    fn accounts(&self, servers: usize) -> Result<String> {
        // An account's limit counts every copy.
        let copies = if servers >= 3 { 3 } else { 1 };
        let mut text = "# Made by 'imas fleet init'; the same on every server.\naccounts {\n".to_owned();
        for (tenant, members) in self.members()? {
            let _ = writeln!(text, "  {tenant} {{");
            let _ = writeln!(
                text,
                "    jetstream {{ max_mem: 0, max_file: {}, max_streams: 2, max_consumers: 16 }}",
                copies * (self.disk_gib << 30)
            );
            text.push_str("    users = [\n");
            for member in members {
                text.push_str(&user(&member, &tenant));
            }
            text.push_str("    ]\n  }\n");
        }
        text.push_str("}\n");
        Ok(text)
    }

    /// Hosts by tenant, as there are folders.
    fn members(&self) -> Result<BTreeMap<String, Vec<Member>>> {
        let mut members: BTreeMap<String, Vec<Member>> = BTreeMap::new();
        for tenant in folders(&self.folder)?.into_iter().filter(|name| name != "server") {
            for name in folders(&self.folder.join(&tenant))? {
                let file = self.folder.join(&tenant).join(&name).join("fleet.toml");
                let merges = FleetSettings::read(&file)?.merge;
                members.entry(tenant.clone()).or_default().push(Member { name, merges });
            }
        }
        Ok(members)
    }
}

const TLS: &str = "cert_file: \"certificate.pem\", key_file: \"key.pem\", ca_file: \"ca.pem\"";

fn cluster(servers: &[String], listen: &str, port: u16) -> Result<String> {
    let routes = servers.iter().map(|server| {
        let (host, port) = split(server)?;
        Ok(format!("\"nats-route://{host}:{}\"", cluster_port(port)?))
    });
    let routes = routes.collect::<Result<Vec<_>>>()?.join(", ");
    // Hosts have certificates of the same authority. A server is who has one for the name in a route: nats-server
    // compares names, and no addresses.
    let is_named = |server: &String| split(server).is_ok_and(|(host, _)| host.parse::<IpAddr>().is_err());
    let verify = if servers.iter().all(is_named) { "verify_cert_and_check_known_urls" } else { "verify" };
    Ok(format!(
        "cluster {{\n  name: imas\n  listen: \"{listen}:{}\"\n  tls {{ {TLS}, {verify}: true, timeout: 5 }}\n  \
         routes: [{routes}]\n}}\n",
        cluster_port(port)?
    ))
}

fn cluster_port(port: u16) -> Result<u16> {
    port.checked_add(TO_CLUSTER).context("the port is too large")
}

/// One user: what its certificate is called, and the least that it needs.
fn user(member: &Member, tenant: &str) -> String {
    let full = full_name(&member.name, tenant);
    let role = match (member.name.as_str(), member.merges) {
        (OPERATOR, _) => FleetRole::Operator,
        (_, true) => FleetRole::Merger,
        (_, false) => FleetRole::Host,
    };
    let FleetRights { publish, subscribe, .. } = FleetRights::of(&full, role);
    let list = |subjects: &[String]| format!("\"{}\"", subjects.join("\", \""));
    format!(
        "      {{ user: \"{full}\", permissions: {{\n        publish: [{}]\n        subscribe: [{}]\n      }} }}\n",
        list(&publish),
        list(&subscribe)
    )
}

/// Full name of a certificate.
#[must_use]
pub fn full_name(name: &str, tenant: &str) -> String {
    format!("{name}.{tenant}.imas")
}

fn server_name(at: usize) -> String {
    format!("fleet-{}", at + 1)
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let ends = [name.chars().next(), name.chars().last()];
    let is_name = ends.iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
        && name.len() <= 100
        && name.chars().all(is_plain);
    if !is_name || ["server", OPERATOR].contains(&name) {
        bail!("{name:?} cannot be the name of a host or tenant: letters, digits, '-' and '.'");
    }
    Ok(())
}

fn with_port(server: &str) -> Result<String> {
    let server = if server.contains(':') { server.to_owned() } else { format!("{server}:4222") };
    let (host, _) = split(&server)?;
    check_name(host)?;
    Ok(server)
}

fn split(server: &str) -> Result<(&str, u16)> {
    let (host, port) = server.rsplit_once(':').with_context(|| format!("{server}: HOST:PORT is expected"))?;
    Ok((host, port.parse().with_context(|| format!("{server}: HOST:PORT is expected"))?))
}

fn folders(folder: &Path) -> Result<Vec<String>> {
    let mut names = vec![];
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    write_open(to, &fs::read_to_string(from).with_context(|| from.display().to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_a_host_makes_no_server() {
        let of = |servers: [&str; 2]| cluster(&servers.map(str::to_owned), "0.0.0.0", 4222).unwrap();
        let known = "verify_cert_and_check_known_urls: true";
        assert!(of(["fleet-1.example.org:4222", "fleet-2.example.org:4222"]).contains(known));
        for address in ["127.0.0.1:4223", "10.0.0.2:4222"] {
            let text = of(["fleet-1.example.org:4222", address]);
            assert!(text.contains(" verify: true") && !text.contains(known), "{address}: {text}");
        }
    }
}
