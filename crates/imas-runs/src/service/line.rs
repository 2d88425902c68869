// SPDX-License-Identifier: Apache-2.0
//! Shell lines around the server (set-up, readiness tests, loads), and words with variables, which no shell reads. Then what
//! one run has for itself: a fresh folder and the variables of its server, ports for servers that cannot choose one, and its
//! CPUs, divided between server and load.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use imas_core::server_run::CpuShare;
use imas_linux::environment::Variables;
use imas_linux::process::signal_name;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rand::RngExt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::executor::last_line;
use crate::service::definition::ServiceError;

/// How a line ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineEnd {
    pub(crate) is_ok: bool,
    /// Whether the line failed by itself, with an exit status other than 0 or by a signal.
    pub(crate) failed_by_itself: bool,
    /// "exit 1", "signal 9", "took longer than 20 s", or the reason why it was ended.
    pub(crate) how: String,
    /// Standard output of the line. Of a very long one it is the end.
    pub(crate) output: String,
    /// The end of its standard error.
    pub(crate) errors: String,
    pub(crate) wall_s: f64,
}

impl LineEnd {
    /// The last line that is not empty: of standard error, or of standard output if that has none.
    pub(crate) fn last_line(&self) -> &str {
        last_line(&self.errors).or_else(|| last_line(&self.output)).unwrap_or("it printed nothing")
    }
}

const MOST_OUTPUT: u64 = 4 << 20;
const MOST_ERRORS: u64 = 8 << 10;
const SHORTEST_GAP: Duration = Duration::from_millis(2);
const LONGEST_GAP: Duration = Duration::from_millis(50);

/// A line that is to be run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShellLine<'a> {
    pub(crate) line: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) variables: &'a Variables,
    pub(crate) timeout: Duration,
    /// The CPUs for it; empty: all that are allowed.
    pub(crate) cpus: &'a [usize],
}

impl ShellLine<'_> {
    /// Runs the line by `sh -eu`. `spawned` gets its pid. The process group is ended when it takes too long,
    /// or as soon as `give_up` returns a reason.
    ///
    /// # Errors
    /// When no shell can be started.
    pub(crate) fn run(
        &self,
        spawn: impl FnOnce(&mut dyn FnMut() -> std::io::Result<Child>) -> std::io::Result<Child>,
        mut give_up: impl FnMut() -> Option<String>,
    ) -> std::io::Result<LineEnd> {
        // Files, not pipes: a process that the line leaves running could hold a pipe open without end.
        let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut start = || self.start(&output, &errors);
        let began = Instant::now();
        let mut child = spawn(&mut start)?;
        let ended = self.wait(&mut child, began, &mut give_up)?;
        let wall_s = began.elapsed().as_secs_f64();
        let (is_ok, failed_by_itself, how) = match ended {
            Ok(status) => (status.success(), !status.success(), exit_text(status)),
            Err(why) => (false, false, why),
        };
        let output = tail(&mut output, MOST_OUTPUT)?;
        let errors = tail(&mut errors, MOST_ERRORS)?;
        Ok(LineEnd { is_ok, failed_by_itself, how, output, errors, wall_s })
    }

    /// Runs the line without registering its pid and without a reason to end it early.
    pub(crate) fn run_plain(&self) -> std::io::Result<LineEnd> {
        self.run(|start| start(), || None)
    }

    fn start(&self, output: &std::fs::File, errors: &std::fs::File) -> std::io::Result<Child> {
        let _kept = KeptOn::new(self.cpus);
        Command::new("/bin/sh")
            .args(["-euc", self.line])
            .current_dir(self.folder)
            .env_clear()
            .envs(self.variables.iter())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .process_group(0)
            .spawn()
    }

    fn wait(
        &self,
        child: &mut Child,
        began: Instant,
        give_up: &mut dyn FnMut() -> Option<String>,
    ) -> std::io::Result<Result<ExitStatus, String>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ok(status));
            }
            let elapsed = began.elapsed();
            let too_long = || format!("took longer than {:.0} s", self.timeout.as_secs_f64());
            let reason = if elapsed > self.timeout { Some(too_long()) } else { give_up() };
            if let Some(why) = reason {
                end_group(child.id());
                child.wait()?;
                return Ok(Err(why));
            }
            std::thread::sleep((elapsed / 50).clamp(SHORTEST_GAP, LONGEST_GAP));
        }
    }
}

fn end_group(leader: u32) {
    if let Ok(group) = i32::try_from(leader) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL); // the group may have ended in the meantime
    }
}

/// "exit 1", or the name of the signal.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => signal_name(signal.unwrap_or(0)),
    }
}

/// The end of a file, as text.
pub(crate) fn tail(file: &mut std::fs::File, most: u64) -> std::io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with `$NAME` and `${NAME}` replaced for each name in `names`. All else stays.
pub(crate) fn expand(text: &str, variables: &Variables, names: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, length) = name_at(after);
        let value = names.contains(&name).then(|| variables.get(OsStr::new(name))).flatten();
        match value {
            Some(value) => out.push_str(&value.to_string_lossy()),
            None => out.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    out + rest
}

/// The name at the beginning, and its length in the text with the braces.
fn name_at(text: &str) -> (&str, usize) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inner) = text.strip_prefix('{')
        && let Some(end) = inner.find('}')
    {
        return (&inner[..end], end + 2);
    }
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    (&text[..end], end)
}

/// The variables that are replaced in a server's words.
pub(crate) const NAMES: [&str; 7] = ["PORT", "PORT2", "PORT3", "PORT4", "WORK", "SETUP", "SERVICE_DIR"];

/// The folder of one run. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    pub(crate) fn new(prefix: &str) -> Result<Self, ServiceError> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
        // A server that drops its root privileges must still be able to enter the folder.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .map_err(ServiceError::file(folder.path()))?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// File for the figures of a load.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.path().join(".imas-metrics")
    }

    /// The inherited variables and the run's own.
    pub(crate) fn variables(
        &self,
        inherited: &Variables,
        setup: Option<&Path>,
    ) -> Result<Variables, ServiceError> {
        let mut variables = inherited.clone();
        for (name, port) in ["PORT", "PORT2", "PORT3", "PORT4"].into_iter().zip(free_ports(4)?) {
            variables.insert(name.into(), OsString::from(port.to_string()));
        }
        variables.insert("WORK".into(), self.path().into());
        variables.insert("IMAS_METRICS".into(), self.metrics().into());
        variables.extend(setup.map(|setup| ("SETUP".into(), setup.into())));
        Ok(variables)
    }
}

/// File with the first and the last ephemeral port: the kernel gives these to connections, and to sockets that name no
/// port.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Least first ephemeral port below which ports are chosen.
const ROOM: u16 = 4096;
/// First ephemeral port of a kernel that nobody has configured.
const USUAL: u16 = 32768;

/// A port of this machine's own address that is not in use, for TCP and for UDP.
///
/// The server binds it later. So it is no ephemeral port, which a connection could get meanwhile, unless these begin
/// below 4096.
///
/// # Errors
/// I/O errors: the sockets' own, or that no port is free.
pub fn free_port() -> std::io::Result<u16> {
    Ok(held_port(first_ephemeral())?.0)
}

/// Different ports, each as [`free_port`] finds one.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let first = first_ephemeral();
    let held = (0..count).map(|_| held_port(first)).collect::<std::io::Result<Vec<_>>>()?;
    Ok(held.iter().map(|(port, ..)| *port).collect())
}

/// A port that nobody else gets as long as its sockets live.
fn held_port(first_ephemeral: u16) -> std::io::Result<(u16, TcpListener, UdpSocket)> {
    for _ in 0..1000 {
        let port = rand::rng().random_range(first_ephemeral / 2..first_ephemeral);
        if let Some(held) = held(if first_ephemeral < ROOM { 0 } else { port })? {
            return Ok(held);
        }
    }
    Err(std::io::Error::other("no port of this machine is free"))
}

/// The port with its sockets; 0 is one that the kernel chooses. None if it is in use.
fn held(port: u16) -> std::io::Result<Option<(u16, TcpListener, UdpSocket)>> {
    let Ok(tcp) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) else { return Ok(None) };
    let port = tcp.local_addr()?.port();
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|udp| (port, tcp, udp)))
}

/// Tables of the connections of this machine.
const CONNECTIONS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of a connection whose end this side has closed first: the kernel keeps its port for a minute.
const TIME_WAIT: &str = "06";

/// Whether connections that have ended still keep the port: a server without `SO_REUSEADDR` cannot listen on it.
pub(crate) fn is_kept_by_ended_connections(port: u16) -> bool {
    let tables = CONNECTIONS.iter().filter_map(|table| std::fs::read_to_string(table).ok());
    tables.into_iter().any(|table| table.lines().any(|line| is_ended_at(line, port)))
}

/// number, own address and port, the other one's, state, ... (proc_net_tcp(5)).
fn is_ended_at(line: &str, port: u16) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, own, _, TIME_WAIT] = words[..] else { return false };
    own.rsplit_once(':').is_some_and(|(_, own)| u16::from_str_radix(own, 16) == Ok(port))
}

fn first_ephemeral() -> u16 {
    let range = std::fs::read_to_string(RANGE).unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(USUAL).max(1)
}

/// With fewer CPUs than this, server and load share all of them. A server on one CPU would not show effects
/// of arenas and caches.
const FEWEST_TO_SHARE_OUT: usize = 4;

/// With four or more CPUs, the last quarter of this process's CPUs is for the load.
pub(crate) fn shared_out() -> CpuShare {
    share(allowed())
}

/// One CPU for the server, the others for the load. The server's is the last that this process may use: the
/// first serves most of the machine's interrupts.
pub(crate) fn one_for_the_server() -> CpuShare {
    one_of(allowed())
}

fn one_of(mut cpus: Vec<usize>) -> CpuShare {
    CpuShare { server: cpus.pop().into_iter().collect(), load: cpus }
}

fn share(mut cpus: Vec<usize>) -> CpuShare {
    if cpus.len() < FEWEST_TO_SHARE_OUT {
        return CpuShare::default();
    }
    let load = cpus.split_off(cpus.len() - cpus.len() / 4);
    CpuShare { server: cpus, load }
}

/// The CPUs that this process may use.
fn allowed() -> Vec<usize> {
    let cpus = |set: CpuSet| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    sched_getaffinity(None).ok().map(cpus).unwrap_or_default()
}

/// While it exists, the processes that this thread starts stay on these CPUs.
#[derive(Debug)]
pub(crate) struct KeptOn {
    before: Option<CpuSet>,
}

impl KeptOn {
    /// An empty list, or a refusal by the kernel, leaves all CPUs allowed.
    pub(crate) fn new(cpus: &[usize]) -> Self {
        let before = sched_getaffinity(None).ok().filter(|_| !cpus.is_empty());
        let mut wanted = CpuSet::new();
        cpus.iter().for_each(|&cpu| wanted.set(cpu));
        let before = before.filter(|_| sched_setaffinity(None, &wanted).is_ok());
        Self { before }
    }
}

impl Drop for KeptOn {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before); // cannot fail: these CPUs were allowed before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, timeout_ms: u64, give_up: impl FnMut() -> Option<String>) -> LineEnd {
        let folder = tempfile::tempdir().unwrap();
        let variables = Variables::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let timeout = Duration::from_millis(timeout_ms);
        let line = ShellLine { line, folder: folder.path(), variables: &variables, timeout, cpus: &[] };
        line.run(|start| start(), give_up).unwrap()
    }

    #[test]
    fn the_first_failure_ends_the_line() {
        let end = run("echo a; echo b >&2; false; echo not reached", 60_000, || None);
        assert_eq!((end.is_ok, end.how.as_str(), end.last_line()), (false, "exit 1", "b"));
        assert!(end.failed_by_itself);
        assert_eq!(end.output, "a\n");
        assert_eq!(run("true", 60_000, || None).last_line(), "it printed nothing");
    }

    #[test]
    fn a_line_is_ended_with_its_children() {
        let end = run("sleep 1000 & sleep 1000", 200, || None);
        assert!(!end.is_ok && end.how.starts_with("took longer"), "{end:?}");
        let end = run("sleep 1000 & sleep 1000", 60_000, || Some("the server has ended".into()));
        assert_eq!((end.failed_by_itself, end.how.as_str()), (false, "the server has ended"));
    }

    #[test]
    fn only_our_names_are_replaced() {
        let variables = Variables::from([("PORT".into(), "80".into()), ("HOME".into(), "/h".into())]);
        let of = |text: &str| expand(text, &variables, &["PORT", "WORK"]);
        assert_eq!(of("--port=$PORT"), "--port=80");
        assert_eq!(of("a${PORT}b $HOME $PORTS ${WORK} $ 5$"), "a80b $HOME $PORTS ${WORK} $ 5$");
    }

    #[test]
    fn ports_differ_and_the_folder_goes() {
        let work = Work::new("imas-test-").unwrap();
        let variables = work.variables(&Variables::new(), None).unwrap();
        let ports: std::collections::BTreeSet<_> =
            NAMES[..4].iter().map(|name| variables[std::ffi::OsStr::new(name)].clone()).collect();
        assert_eq!(ports.len(), 4);
        let path = work.path().to_owned();
        drop(work);
        assert!(!path.exists());
    }

    #[test]
    fn ports_are_not_ephemeral_where_there_is_room() {
        let first = first_ephemeral();
        assert!(first < ROOM || free_ports(8).unwrap().iter().all(|port| (first / 2..first).contains(port)));
        assert!(held_port(1).is_ok(), "no room below: an ephemeral one");
        let taken = held_port(first).unwrap();
        assert!(held(taken.0).unwrap().is_none());
    }

    #[test]
    fn an_ended_connection_keeps_its_port() {
        let line =
            |own: &str, state: &str| format!("   3: {own} 0100007F:C350 {state} 00000000:00000000 03:0000");
        assert!(is_ended_at(&line("0100007F:1F90", "06"), 8080));
        assert!(is_ended_at(&line("00000000000000000000000001000000:1F90", "06"), 8080));
        assert!(!is_ended_at(&line("0100007F:1F90", "0A"), 8080), "a server that listens");
        assert!(!is_ended_at(&line("0100007F:1F91", "06"), 8080) && !is_ended_at("", 8080));
    }

    #[test]
    fn a_quarter_is_for_the_load_where_there_are_four() {
        assert_eq!(share(vec![0, 1]), CpuShare::default());
        assert_eq!(share(vec![0, 1, 2, 3]), CpuShare { server: vec![0, 1, 2], load: vec![3] });
        let eight = share((0..8).collect());
        assert_eq!((eight.server.len(), eight.load), (6, vec![6, 7]));
    }

    #[test]
    fn a_server_on_one_cpu_leaves_the_others_to_the_load() {
        assert_eq!(one_of(vec![0, 1, 2]), CpuShare { server: vec![2], load: vec![0, 1] });
        assert_eq!(one_of(vec![3]), CpuShare { server: vec![3], load: vec![] });
    }
}
