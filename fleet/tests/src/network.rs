// SPDX-License-Identifier: Apache-2.0
//! Hosts with a network of their own: network namespaces at one bridge, inside the namespace of the test.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::running::Running;

/// Set inside: the file of the network namespace in which the test was started.
pub(crate) const OUTSIDE: &str = "IMAS_FLEET_TEST_OUTSIDE";

/// Longest time for anything in these tests.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(120);
const BRIDGE: &str = "imas0";
const NET: &str = "10.77.0";

/// The bridge and what is connected with it.
pub(crate) struct Network {
    holders: Vec<Running>,
}

/// A network namespace with one address.
#[derive(Clone)]
pub(crate) struct Place {
    number: usize,
    namespace: PathBuf,
}

/// Whether this process has a network of its own, and may make more.
pub(crate) fn is_isolated() -> bool {
    std::env::var_os(OUTSIDE).is_some()
}

impl Network {
    pub(crate) fn new() -> Result<Self> {
        ensure!(is_isolated(), "this case needs a network namespace of its own");
        loopback()?;
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["address", "add", &format!("{NET}.1/24"), "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(Self { holders: vec![] })
    }

    /// A namespace that can reach all others.
    pub(crate) fn add(&mut self) -> Result<Place> {
        let number = self.holders.len() + 2;
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let holder = holder.spawn().context("unshare")?;
        let pid = holder.id().to_string();
        self.holders.push(Running(holder));
        let place = Place { number, namespace: format!("/proc/{pid}/ns/net").into() };
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let end = Instant::now() + LONGEST_WAIT;
        while std::fs::read_link(&place.namespace).is_ok_and(|of_holder| of_holder == own) {
            ensure!(Instant::now() < end, "no network namespace is made");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (here, there) = (place.device(), format!("there{number}"));
        ip(&["link", "add", &here, "type", "veth", "peer", "name", &there])?;
        ip(&["link", "set", &there, "netns", &pid])?;
        ip(&["link", "set", &here, "master", BRIDGE, "up"])?;
        let address = format!("{}/24", place.address());
        for words in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &address, "dev", &there],
            &["link", "set", &there, "up"],
        ] {
            run(place.command("ip").args(words))?;
        }
        Ok(place)
    }

    pub(crate) fn add_all(&mut self, number: usize) -> Result<Vec<Place>> {
        (0..number).map(|_| self.add()).collect()
    }
}

impl Place {
    pub(crate) fn address(&self) -> String {
        format!("{NET}.{}", self.number)
    }

    /// A program in this namespace. Its process is the command itself.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        inside(&self.namespace, program)
    }

    /// Cuts the place off: nothing leaves it or reaches it any more.
    pub(crate) fn cut_off(&self) -> Result<()> {
        ip(&["link", "set", &self.device(), "down"])
    }

    /// Connects the place again.
    pub(crate) fn connect(&self) -> Result<()> {
        ip(&["link", "set", &self.device(), "up"])
    }

    fn device(&self) -> String {
        format!("here{}", self.number)
    }
}

/// Switches on the loopback device of this process's namespace.
pub(crate) fn loopback() -> Result<()> {
    ip(&["link", "set", "lo", "up"])
}

/// A program in the network namespace in which the test was started: the kernel reports processes there only.
pub(crate) fn outside(program: impl AsRef<OsStr>) -> Command {
    match std::env::var_os(OUTSIDE) {
        Some(namespace) => inside(namespace, program),
        None => Command::new(program),
    }
}

fn inside(namespace: impl AsRef<OsStr>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    let mut option = std::ffi::OsString::from("--net=");
    option.push(namespace);
    command.arg(option).arg(program);
    command
}

fn ip(words: &[&str]) -> Result<()> {
    run(Command::new("ip").args(words))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
