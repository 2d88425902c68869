// SPDX-License-Identifier: Apache-2.0
//! The program over real sockets, on real stores: every page and link, hostile names, refusals, limits.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_core::sample::{Ended, Sample, Usage};
use imas_store::Store;
use imas_testing::skipped;

const HOSTILE: &str = "/opt/</script><img src=x onerror=alert(1)>\"'&\u{1b}[31m\n{a=\"b\"}";

/// Connections of a user that are held open and ask for nothing.
const IDLE: &str = "
import encodings.idna, os, socket, sys, time
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
host, port = sys.argv[1].rsplit(':', 1)
held = [socket.create_connection((host, int(port))) for _ in range(48)]
print('held', flush=True)
time.sleep(600)
";

/// A process that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts [`IDLE`] as user `uid`. None where no process of another user can be started.
    fn idle(uid: u32, address: &str) -> Option<Self> {
        let mut python = Command::new("python3");
        python.args(["-c", IDLE, address, &uid.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut idle = Self(python.spawn().ok()?);
        let mut line = String::new();
        BufReader::new(idle.0.stdout.take()?).read_line(&mut line).ok()?;
        (line == "held\n").then_some(idle)
    }
}

#[test]
fn idle_connections_of_other_users_leave_places_for_our_own() {
    let server = start(&["/bin/p"]);
    let others: Option<Vec<Running>> =
        (65_101..65_105).map(|uid| Running::idle(uid, &server.address)).collect();
    let Some(_others) = others else { return skipped("no process of another user can be started") };
    for round in 0..20 {
        assert_eq!(server.get("/metrics").status, 200, "{round}");
    }
}

/// A server with a store of its own, which ends with it.
struct Server {
    child: Running,
    address: String,
    folder: tempfile::TempDir,
}

fn start_in(folder: tempfile::TempDir, words: &[&str]) -> Server {
    let lib = folder.path().join("lib");
    std::fs::create_dir(&lib).unwrap();
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../allocators/catalogue.toml");
    std::fs::copy(catalogue, lib.join("catalogue.toml")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_imas-serve"))
        .args(["--run-dir", "/nonexistent"])
        .args(words)
        .env("IMAS_LIB_DIR", &lib)
        .env("IMAS_STORE", folder.path().join("imas.db"))
        .env("HOME", folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env_remove("IMAS_POLICY")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().strip_prefix("imas serve: ").unwrap_or_else(|| panic!("{line}"));
    let address = place.trim_start_matches("http://").trim_end_matches('/').to_owned();
    Server { child: Running(child), address, folder }
}

fn trial(id: &str, candidate: &str, at_s: f64, cost: f64) -> TrialRecord {
    let sample = Sample {
        trial_id: id.to_owned(),
        candidate: candidate.to_owned(),
        made_unix_s: at_s,
        ended: Ended::Clean { status: Some(0) },
        usage: Some(Usage { user_s: cost, ..Usage::default() }),
        ..Sample::default()
    };
    TrialRecord { sample, ..TrialRecord::default() }
}

fn with_programs(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("imas.db")).unwrap();
    for (at, name) in names.iter().enumerate() {
        let program = store.program(name, "").unwrap().id;
        for (round, candidate) in ["system", "jemalloc", "system", "jemalloc"].into_iter().enumerate() {
            let mut record = trial(&format!("{at}-{round}"), candidate, 1.0e9 + round as f64, 1.0);
            record.sample.memory.snapshots = 3;
            record.sample.memory.resident_mean = 5 << 20;
            store.add_trial(program, &record).unwrap();
        }
        let mut crashed = trial(&format!("{at}-crash"), "jemalloc", 1.0e9 + 9.0, 1.0);
        crashed.sample.ended = Ended::Signal { signal: 11 };
        store.add_trial(program, &crashed).unwrap();
    }
    folder
}

fn start(names: &[&str]) -> Server {
    start_in(with_programs(names), &["--listen", "127.0.0.1:0"])
}

/// Status, head and body of an answer.
struct Answered {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answered {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }
}

fn parsed(raw: &[u8]) -> Answered {
    let end =
        raw.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {raw:?}"));
    let head = String::from_utf8_lossy(&raw[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answered { status, head, body: raw[end + 4..].to_vec() }
}

impl Server {
    fn raw(&self, request: &str) -> Answered {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(imas_testing::deadline(120))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![];
        stream.read_to_end(&mut answer).unwrap();
        parsed(&answer)
    }

    fn asked(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answered {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {}\r\n", self.address);
        }
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        self.raw(&(request + "\r\n"))
    }

    fn get(&self, path: &str) -> Answered {
        self.asked("GET", path, &[])
    }

    fn store(&self) -> Store {
        Store::open(&self.folder.path().join("imas.db")).unwrap()
    }
}

/// Where the links of a page lead, within the server.
fn links(page: &str) -> BTreeSet<String> {
    let parts = page.split(['"']).filter(|part| part.starts_with('/') && !part.contains(['<', ' ', '>']));
    parts.map(|part| part.replace("&amp;", "&")).collect()
}

#[test]
fn every_page_and_every_link_is_answered() {
    let names: Vec<String> = (0..60).map(|number| format!("/opt/p{number}")).collect();
    let server = start(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut open, mut seen) = (vec!["/".to_owned()], BTreeSet::new());
    while let Some(path) = open.pop() {
        let is_page = !path.contains("sort=") && !path.contains("program?id=") || seen.len() < 30;
        if seen.len() > 120 || !is_page || path.starts_with("/opt") || !seen.insert(path.clone()) {
            continue;
        }
        let answer = server.get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            open.extend(links(&answer.text()));
        }
    }
    for page in ["/machine", "/what-if", "/?page=2"] {
        assert!(seen.contains(page), "{page} is not linked: {seen:?}");
    }
    assert_eq!(server.get("/program?id=99999").status, 404);
    assert_eq!(server.get("/nothing").status, 404);
    for api in ["overview", "program?id=1", "machine", "what-if?objective=memory&policy=paper"] {
        let answer = server.get(&format!("/api/{api}"));
        let data: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &data["schema"]), (200, &serde_json::json!(1)), "{api}");
    }
}

#[test]
fn hostile_names_are_text_everywhere() {
    let long = format!("/opt/{}", "l\u{202e}ng".repeat(700));
    let server = start(&[HOSTILE, &long]);
    for path in [
        "/",
        "/program?id=1",
        "/program?id=2",
        "/what-if",
        "/?q=%3Cimg%20src%3Dx%3E%22",
        "/?sort=%3Cimg%3E&page=-1",
    ] {
        let page = server.get(path);
        assert_eq!(page.status, 200, "{path}");
        let text = page.text();
        assert!(!text.contains("<img") && !text.contains('\u{1b}'), "{path}: {text}");
        assert_eq!(text.matches("</script>").count(), 2, "{path}: only those that load our own files");
        assert!(!text.contains("style=") && !text.contains("onerror=\""), "{path}");
    }
    let metrics = server.get("/metrics").text();
    assert!(
        !metrics.contains("# EOF") && metrics.ends_with('\n'),
        "Prometheus' text, no OpenMetrics: {metrics}"
    );
    // At least one process was looked into: the time for the first look is bounded, and one always fits.
    for series in ["imas_unit_memory_bytes{unit=", "imas_unit_verdicts{unit="] {
        assert!(metrics.lines().any(|line| line.starts_with(series)), "{series}: {metrics}");
    }
    let line = metrics.lines().find(|line| line.contains("onerror")).expect("the program");
    assert!(line.contains("\\\"") && !metrics.contains('\u{1b}'), "quotes are escaped: {line}");
}

#[test]
fn every_answer_is_protected() {
    let server = start(&["/bin/x"]);
    for path in ["/", "/metrics", "/api/overview", "/nothing", "/static/nothing"] {
        let answer = server.get(path);
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options").as_deref(), Some("nosniff"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn what_is_not_for_us_is_refused() {
    let server = start(&["/bin/x"]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let status = |headers: &[(&str, &str)]| server.asked("GET", "/api/overview", headers).status;
    assert_eq!(status(&[("Host", &format!("localhost:{port}"))]), 200);
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "localhost",
        "localhost:1",
        &format!("127.0.0.1:{port}.evil.example"),
    ] {
        assert_eq!(status(&[("Host", host)]), 421, "{host}");
    }
    assert_eq!(status(&[("Origin", &format!("http://{}", server.address))]), 200);
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(status(&[("Origin", origin)]), 403, "{origin}");
    }
    assert_eq!(status(&[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")]), 403);
    let followed = |path: &str, dest: &str| {
        let headers =
            [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", dest)];
        server.asked("HEAD", path, &headers).status
    };
    for page in ["/", "/what-if", "/machine"] {
        assert_eq!([followed(page, "document"), followed(page, "iframe")], [200, 403], "{page}");
    }
    for data in ["/events", "/metrics", "/api/overview", "/api/what-if", "/static/nothing"] {
        assert_eq!(followed(data, "document"), 403, "{data}: nobody follows a link to it");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        assert_eq!(server.asked(method, "/", &[]).status, 405, "{method}");
    }
    let head = server.asked("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(server.get(&format!("/?q={}", "x".repeat(5000))).status, 414);
    assert_eq!(status(&[("Content-Length", "5")]), 413);
    let large = "x".repeat(40_000);
    assert_eq!(status(&[("Cookie", &large)]), 431, "more than the buffer");
    assert_eq!(server.raw("nonsense\r\n\r\n").status, 400);
    let two =
        format!("GET / HTTP/1.1\r\nHost: {0}\r\nHost: {0}\r\nConnection: close\r\n\r\n", server.address);
    assert_eq!(server.raw(&two).status, 421, "two hosts");
}

#[test]
fn an_answer_is_packed_and_not_sent_twice() {
    let server = start(&["/bin/x"]);
    for path in ["/", "/what-if?q=nothing"] {
        // Answers that take time to compute differ in the figure of their time, and pages have none. A page
        // may change between two answers: by the check of the candidates after the start, or by the machine's
        // load.
        let is_not_sent_twice = || {
            let tag = server.get(path).header("etag").unwrap();
            server.asked("GET", path, &[("If-None-Match", &tag)]).status == 304
        };
        assert!((0..5).any(|_| is_not_sent_twice()), "{path}");
        assert_eq!(server.asked("GET", path, &[("If-None-Match", "\"other\"")]).status, 200, "{path}");
    }
    let plain = server.get("/");
    let packed = server.asked("GET", "/", &[("Accept-Encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding").as_deref(), Some("gzip"));
    assert!(packed.body.len() < plain.body.len() / 2);
}

#[test]
fn other_machines_need_a_token() {
    let refused =
        Command::new(env!("CARGO_BIN_EXE_imas-serve")).args(["--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--token-file"), "{refused:?}");
}

/// Status of the answer to a process of another user. The Rust test harness has no other user; root can be
/// one.
fn as_nobody(server: &Server, token: Option<&str>) -> Option<u16> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let header = token.map_or_else(String::new, |token| format!("-H 'Authorization: Bearer {token}' "));
    let line = format!("curl -s -o /dev/null -w '%{{http_code}}' {header}http://{}/", server.address);
    let asked = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &line])
        .output()
        .ok()?;
    String::from_utf8_lossy(&asked.stdout).trim().parse().ok()
}

#[test]
fn other_users_need_a_token() {
    let server = start(&["/bin/x"]);
    let Some(status) = as_nobody(&server, None) else { return skipped("only root can ask as another user") };
    assert_eq!(status, 403);
    let folder = with_programs(&["/bin/x"]);
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdefghij\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let file = file.to_string_lossy().into_owned();
    let server = start_in(folder, &["--listen", "127.0.0.1:0", "--token-file", &file]);
    assert_eq!(as_nobody(&server, None), Some(401));
    assert_eq!(as_nobody(&server, Some("0123456789abcdefghiJ")), Some(401));
    assert_eq!(as_nobody(&server, Some("0123456789abcdefghij")), Some(200));
    assert_eq!(server.get("/").status, 200, "our own user needs none");
}

#[test]
fn a_silent_client_is_cut_off_and_others_are_served() {
    let server = start(&["/bin/x"]);
    let mut silent = TcpStream::connect(&server.address).unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\nHost: x").unwrap();
    silent.set_read_timeout(Some(imas_testing::deadline(90))).unwrap();
    let begun = Instant::now();
    // Fewer than one peer may have: it need not leave for another one.
    let others: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut rest = vec![];
    silent.read_to_end(&mut rest).expect("closed, not waited for");
    assert!(begun.elapsed() > Duration::from_secs(5), "a slow network is not cut off at once");
    drop(others);
    let deadline = Instant::now() + imas_testing::deadline(120);
    let answered = || {
        TcpStream::connect(&server.address).is_ok()
            && std::panic::catch_unwind(|| server.get("/").status).ok() == Some(200)
    };
    while !answered() {
        assert!(Instant::now() < deadline, "nobody is served any more");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// More silent connections than one peer may have: the oldest leaves for each that comes.
#[test]
fn silent_connections_give_way_to_one_that_asks() {
    let server = start(&["/bin/x"]);
    let silent: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let (oldest, newest) = (silent.first().unwrap(), silent.last().unwrap());
    oldest.set_read_timeout(Some(imas_testing::deadline(60))).unwrap();
    assert_eq!((&*oldest).read(&mut [0]).unwrap(), 0, "the oldest one was closed");
    // Had all been closed for their silence, the newest would have gone within milliseconds of the oldest.
    newest.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let still = (&*newest).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(still, Err(std::io::ErrorKind::WouldBlock), "the newest one stays");
    let begun = Instant::now();
    assert!((0..20).all(|_| server.get("/").status == 200));
    println!(
        "20 answers beside 120 silent connections of the same user: {:.2} s",
        begun.elapsed().as_secs_f64()
    );
}

#[test]
fn a_new_trial_is_sent_to_an_open_page() {
    let server = start(&["/bin/x"]);
    assert_eq!(server.get("/").status, 200);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(imas_testing::deadline(120))).unwrap();
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = || loop {
        let line = lines.next().expect("no end").expect("in time");
        if let Some(id) = line.strip_prefix("id: ") {
            return id.parse::<u64>().unwrap();
        }
    };
    let first = next();
    let store = server.store();
    let program = store.programs().unwrap().remove(0).id;
    store.add_trial(program, &trial("new", "mimalloc", 1.0e9 + 50.0, 0.5)).unwrap();
    let mut newest = next();
    let deadline = Instant::now() + imas_testing::deadline(120);
    let trials = || -> u64 {
        let data: serde_json::Value = serde_json::from_slice(&server.get("/api/overview").body).unwrap();
        data["programs"][0]["trials"].as_u64().unwrap()
    };
    while trials() != 6 {
        assert!(Instant::now() < deadline, "the trial is not shown");
        newest = next();
    }
    assert!(newest > first);
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let folder = with_programs(&["/bin/x"]);
    let path = folder.path().join("socket");
    let words = format!("unix:{}", path.display());
    let server = start_in(folder, &["--listen", &words]);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(parsed(&answer).status, 200);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(server.child.0.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + imas_testing::deadline(120);
    while path.exists() {
        assert!(Instant::now() < deadline, "the socket is left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
}
