// SPDX-License-Identifier: Apache-2.0
//! `imas kube node`: the containers of this node, its workloads with what they could gain without a trial, and both as
//! metrics.
//!
//! Metrics by HTTP. Nothing of a request counts but its path, and who asks often gets the same answer again.
//!
//! `imas kube node --trim`: processes in pods of some namespaces give free pages back by themselves, by the rule of
//! `imas_core::trimming`. A namespace is known by kubelet's links, and a process by the group that its runtime made.

use std::io::{ErrorKind, Read as _, Result as IoResult, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_cli::connection_places::{ConnectionPlace, ConnectionPlaces, MostConnections, peer_of_address};
use imas_cli::format::{counted, mib};
use imas_cli::{message, output, table};
use imas_core::printable;
use imas_core::trimming::{TrimRule, TrimSums, Trimmable};
use imas_linux::process_trim::{Trimmer, trimmable};
use serde_json::json;

use crate::cli::NodeArgs;
use crate::group::{self, NodeGroups, PodName};
use crate::look::{self, Look, Row};
use crate::metrics::{self, Gain};

/// Prints what is there, or serves it.
pub(crate) fn run(args: &NodeArgs) -> Result<()> {
    if let Some(address) = args.listen {
        let sums = begin_trims(args)?;
        let trims = || sums.as_ref().map(trims_now);
        return serve(address, args.every, || metrics::text(&Look::now(args)?, trims()));
    }
    let look = Look::now(args)?;
    if args.metrics {
        return output::text(&metrics::text(&look, None)?);
    }
    let noted = |page: String| output::text(&(page + &notes(&look)));
    match (args.advise, args.json.json) {
        (true, true) => output::json(&json!({ "schema": 1, "workloads": advised(&look.rows) })),
        (true, false) => noted(page_of_gains(&advised(&look.rows))),
        (false, true) => {
            let Look { rows, unseen, disputed } = &look;
            output::json(&json!({ "schema": 1, "containers": rows, "unseen": unseen, "disputed": disputed }))
        }
        (false, false) => noted(page(&look.rows)),
    }
}

/// Most containers that are named in the notes.
const NOTED: usize = 20;

/// Notes on what the table leaves out, with the reasons.
fn notes(look: &Look) -> String {
    let unseen = look.unseen.iter().take(NOTED).map(|one| {
        let processes = counted(one.processes, "process");
        format!("not looked at, or not to the end: {processes} of {}\n", shown(one.name.as_ref(), &one.id))
    });
    let disputed = look.disputed.iter().take(NOTED).map(|one| {
        let groups: Vec<_> = one.groups.iter().map(|group| printable::name(group)).collect();
        format!(
            "left out: {} groups have the id of container {}: {}\n",
            groups.len(),
            one.id,
            groups.join(", ")
        )
    });
    let more = (look.unseen.len() + look.disputed.len()).saturating_sub(2 * NOTED);
    let more = (more > 0).then(|| "'--json' lists all\n".to_owned());
    let lines: String = unseen.chain(disputed).chain(more).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn shown(name: Option<&PodName>, id: &str) -> String {
    name.map_or_else(|| id.to_owned(), |name| format!("{}/{}/{}", name.namespace, name.pod, name.container))
}

fn advised(rows: &[Row]) -> Vec<Gain> {
    let mut gains = metrics::gains_of(rows);
    gains.iter_mut().for_each(Gain::name_runtime);
    gains
}

fn bytes(bytes: u64) -> String {
    mib(bytes as f64)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        shown(row.name.as_ref(), &row.id),
        row.program.display().to_string(),
        format!("{} {}", row.libc, row.glibc.as_deref().unwrap_or_default()).trim_end().to_owned(),
        or_dash(
            row.lost
                .as_ref()
                .map(|name| format!("lost: {}", printable::name(name)))
                .or_else(|| row.library.clone()),
        ),
        bytes(row.resident),
        or_dash(row.free.map(bytes)),
        or_dash(row.answer.as_ref().map(|answer| answer.verdict.id().to_owned())),
        or_dash(row.group.memory.nearness().map(percent)),
        or_dash(row.group.memory.highest.map(bytes)),
        or_dash(row.restarts.map(|count| count.to_string())),
        or_dash(row.group.memory.oom_kills.map(|count| count.to_string())),
        or_dash(row.group.throttled.map(percent)),
        row.advice.clone(),
    ]
}

fn cells_of_gain(gain: &Gain) -> Vec<String> {
    vec![
        gain.to_string(),
        gain.containers.to_string(),
        gain.libc.to_string(),
        bytes(gain.resident),
        or_dash(gain.free.map(bytes)),
        or_dash(gain.free.map(|free| percent(free as f64 / gain.resident.max(1) as f64))),
        or_dash(gain.nearness.map(percent)),
        or_dash(gain.highest.map(bytes)),
        gain.advice.clone(),
    ]
}

/// Line where no container was found, by who asked and what is mounted.
fn nothing() -> String {
    // The kernel gives the folder of a process to its effective user.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let has_version_2 = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    match (is_root, has_version_2) {
        (_, false) => {
            "this machine has control groups of version 1, and containers are found in those of version 2\n"
        }
        (true, true) => "no container runs here\n",
        (false, true) => "no container that you may look into: root may look into all of them\n",
    }
    .to_owned()
}

fn page(rows: &[Row]) -> String {
    if rows.is_empty() {
        return nothing();
    }
    let head = [
        "container",
        "program",
        "libc",
        "candidate",
        "MiB",
        "free",
        "verdict",
        "of limit",
        "highest",
        "restarts",
        "OOM kills",
        "throttled",
        "what to do",
    ];
    table::plain(&head, rows.iter().map(cells))
}

fn page_of_gains(gains: &[Gain]) -> String {
    if gains.is_empty() {
        return nothing();
    }
    let head =
        ["workload", "containers", "libc", "MiB", "free", "share", "of limit", "highest", "without a trial"];
    table::plain(&head, gains.iter().map(cells_of_gain))
}

/// The rule of every pod.
const RULE: TrimRule = TrimRule { every: Duration::from_secs(600), at_least: 32 << 20 };

/// Sums over all trims, which a thread adds up.
pub(super) type SharedSums = Arc<Mutex<TrimSums>>;

/// Begins to trim in a thread, where namespaces are named.
fn begin_trims(args: &NodeArgs) -> Result<Option<SharedSums>> {
    if args.trim.is_empty() {
        return Ok(None);
    }
    let node =
        Node { groups: NodeGroups::open(&args.cgroups, args.cgroup_root.as_deref())?, args: args.clone() };
    let sums = SharedSums::default();
    let shared = Arc::clone(&sums);
    Builder::new().name("trims".to_owned()).spawn(move || node.trim(&shared))?;
    Ok(Some(sums))
}

/// Sums at this moment.
fn trims_now(sums: &SharedSums) -> TrimSums {
    *sums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node whose pods are trimmed.
struct Node {
    groups: NodeGroups,
    args: NodeArgs,
}

impl Node {
    fn trim(&self, sums: &SharedSums) {
        let mut trimmer = Trimmer::new(RULE);
        loop {
            let all = self.processes().unwrap_or_else(|error| {
                message::warning(&format!("nothing is trimmed: {error:#}"));
                vec![]
            });
            for taken in trimmer.round(&all) {
                if taken.is_news {
                    message::say(&format!("imas: process {} {}", taken.identity.pid, taken.words));
                }
            }
            *sums.lock().unwrap_or_else(PoisonError::into_inner) = trimmer.sums();
            sleep(trimmer.pause());
        }
    }

    /// The processes of the namespaces that are named.
    fn processes(&self) -> Result<Vec<Trimmable>> {
        let links = group::pod_names(&self.args.logs);
        let (mut members, _) = look::members(&self.groups)?;
        members.retain(|container, _| {
            links.get(&container.id).is_some_and(|link| self.args.trim.contains(&link.name.namespace))
        });
        let of = |(container, pids): (_, Vec<u32>)| {
            let owner = imas_linux::container::Container::account(&container);
            pids.into_iter().filter_map(move |pid| trimmable(pid, owner))
        };
        Ok(members.into_iter().flat_map(of).collect())
    }
}

/// Most connections at a time: each is a thread. Nobody is trusted, and a collector asks once a minute.
const MOST: MostConnections = MostConnections { all: 64, of_others: 64, of_one: 16 };
/// Most bytes of a request.
const MOST_BYTES: usize = 8 << 10;
/// Longest time for a request to come, and for an answer to go.
const SLOWEST: Duration = Duration::from_secs(5);
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the process ends. A text is made anew where the last one is older than `every`.
///
/// # Errors
/// Where nobody can listen at the address.
pub(super) fn serve(
    address: SocketAddr,
    every: Duration,
    text: impl Fn() -> Result<String> + Sync,
) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("{address} cannot be listened at"))?;
    message::say(&format!("imas: metrics: http://{}/metrics", listener.local_addr()?));
    let last: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let newest = || -> Result<String> {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(made, _)| made.elapsed() < every) {
            return Ok(text.clone());
        }
        let text = text()?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    };
    let places = ConnectionPlaces::new(MOST);
    thread::scope(|threads| {
        for stream in listener.incoming().flatten() {
            let Some((stream, place)) = placed(stream, &places) else { continue };
            let newest = &newest;
            let answered = move || {
                let _ = answer(&stream, &place, newest); // the one who asked is gone
            };
            let _ = thread::Builder::new().spawn_scoped(threads, answered); // without a thread it is closed
        }
    });
    Ok(())
}

type Place = ConnectionPlace<IpAddr>;

/// The connection with its place; None where there is none, and it is closed. Where it has to leave, what reads it finds
/// its end.
fn placed(stream: TcpStream, places: &Arc<ConnectionPlaces<IpAddr>>) -> Option<(Arc<TcpStream>, Place)> {
    let peer = peer_of_address(stream.peer_addr().ok()?.ip());
    let stream = Arc::new(stream);
    let left = Arc::clone(&stream);
    let place = places.place(places.arrival(), peer, move || drop(left.shutdown(Shutdown::Both)))?;
    Some((stream, place))
}

fn answer(stream: &TcpStream, place: &Place, newest: impl Fn() -> Result<String>) -> IoResult<()> {
    let head = request(stream)?;
    place.speaks();
    let is_ours = [&b"GET /metrics "[..], b"GET /metrics?"].iter().any(|start| head.starts_with(start));
    let (status, kind, body) = match is_ours.then(newest) {
        Some(Ok(text)) => ("200 OK", KIND, text),
        Some(Err(error)) => {
            message::warning(&format!("{error:#}"));
            ("500 Internal Server Error", "text/plain", "the node cannot be looked at\n".to_owned())
        }
        None => ("404 Not Found", "text/plain", "there is /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(stream, &(head + &body))
}

/// Bytes of a request, up to the empty line.
fn request(mut stream: &TcpStream) -> IoResult<Vec<u8>> {
    let until = Instant::now() + SLOWEST;
    let (mut head, mut part) = (Vec::<u8>::new(), [0_u8; 1024]);
    while head.len() < MOST_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(rest(until)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(&part[..count]);
    }
    Ok(head)
}

fn send(mut stream: &TcpStream, text: &str) -> IoResult<()> {
    let until = Instant::now() + SLOWEST;
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(rest(until)?))?;
        let count = stream.write(bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Time that is left; none is an error.
fn rest(until: Instant) -> IoResult<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer to a request with these words, of a text that is made for it.
    fn asked(words: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        own.write_all(words.as_bytes()).unwrap();
        let (stream, place) = placed(stream, &ConnectionPlaces::new(MOST)).unwrap();
        answer(&stream, &place, || Ok("# EOF\n".to_owned())).unwrap();
        drop(place);
        drop(stream);
        let mut text = String::new();
        own.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let text = asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n# EOF\n"), "{text}");
        for other in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET /metricsx HTTP/1.1\r\n\r\n",
            "POST /metrics HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(asked(other).starts_with("HTTP/1.1 404 "), "{other}");
        }
    }
}
