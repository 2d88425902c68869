// SPDX-License-Identifier: Apache-2.0
//! `imas bench` with real servers: benches that are interrupted, the course of one whose number of runs is not fixed, a server
//! with TLS, and a JVM behind a script. Then `imas bench --least-memory`: a real server within real limits of memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use imas_testing::skipped;
use serde_json::Value;

use super::{Place, compared, nothing_is, nothing_runs};
use crate::support::{
    World, assert_hinted, describe, list, output, parsed, real, stderr, stdout, succeeded, text, wait_until,
};

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let place = Place::new();
    let server = place.script("server.py");
    let python = real("python3").to_string_lossy().into_owned();
    let mut command = place.world.imas("bench -n 1 --with glibc:arena1 --ready tcp:$PORT --load".split(' '));
    command.args(["sleep 4243", "--", &python, &server, "$PORT"]);
    let temporary = place.world.work().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    command.env("TMPDIR", &temporary);
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the load runs", || !nothing_is("sleep 4243"));
    Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    let printed = stderr(&ended);
    assert!(printed.contains("imas: interrupted after 0 of 4 runs; nothing to compare"), "{printed}");
    assert!(!printed.contains("the load failed"), "a run that was cut short is no failure: {printed}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a folder of the run");
    wait_until("all have ended", || nothing_is("sleep 4243") && nothing_runs(&server));
}

/// The sixth load waits for the signal: a round of four runs is complete.
#[test]
fn a_bench_that_is_interrupted_keeps_its_rounds() {
    let place = Place::new();
    let (made, json) = (place.script("made"), place.world.work().join("r.json"));
    let load =
        format!("echo x >>{made}; [ $(wc -l <{made}) -lt 6 ] || exec sleep 4244; {}", place.load(2, "/"));
    let words = "bench -n 3 --idle 0 --cycles 1 --with glibc:arena1 --ready tcp:$PORT --load";
    let mut command = place.world.imas(words.split(' '));
    command.arg(&load).arg("--export-json").arg(&json).arg("--").arg(real("python3"));
    command.args([&place.script("server.py"), "$PORT"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    wait_until("the load waits", || !nothing_is("sleep 4244"));
    Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", describe(&ended));
    assert!(stdout(&ended).contains("Nothing can be said after "), "{}", describe(&ended));
    assert!(
        stderr(&ended).contains("of at most 3 rounds were made: interrupted")
            || stderr(&ended).contains("of at most 3 rounds was made: interrupted"),
        "{}",
        describe(&ended)
    );
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(list(&result, "/runs").len() >= 4 && result["rounds"]["ended"] == "interrupted", "{result:#}");
    assert!(nothing_runs(&place.script("server.py")));
}

/// A server that holds much: each request frees all of some 40 MB but a block at their end, so glibc keeps the pages.
const HOLDING: &str = r#"
import ctypes, http.server, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
HELD = bytearray(b"x") * int(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        blocks = [libc.malloc(ctypes.c_size_t(30000)) for _ in range(int(sys.argv[3]))]
        for block in blocks:
            ctypes.memset(ctypes.c_void_p(block), 1, 30000)
        for block in blocks[:-1]:
            libc.free(ctypes.c_void_p(block))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

impl Place {
    /// A bench of the holding server whose runs are as many as its course makes.
    fn course(&self, held: &str, blocks: &str, flags: &[&str]) -> Output {
        std::fs::write(self.world.work().join("holding.py"), HOLDING).unwrap();
        let words =
            "bench --json --idle 3 --cycles 1 --ready tcp:$PORT --with glibc:arena1,glibc:lean --load";
        let mut command = self.world.imas(words.split(' '));
        command.arg(self.load(3, "/")).args(flags).arg("--").arg(real("python3"));
        output(command.args([&self.script("holding.py"), "$PORT", held, blocks]))
    }
}

/// Nearly all memory is one block in use: one run says that nothing can be saved, and where the memory is.
#[test]
fn a_server_that_has_nothing_to_save_is_run_once() {
    let place = Place::new();
    let done = succeeded(place.course("400000000", "1", &[]));
    let result = parsed(&done);
    assert_eq!(list(&result, "/runs").len(), 1, "{}", describe(&done));
    assert_eq!(text(&result, "/comparison/judgement/ending/kind"), "nothing-to-save");
    assert!(text(&result, "/sentence").starts_with("Nothing to save: "), "{result:#}");
    let all = parsed(&succeeded(place.course("400000000", "1", &["--all"])));
    assert!(list(&all, "/runs").len() >= 3, "--all measures each candidate");
}

/// A server with eight threads that answer one after the other. Each answer frees all of some 20 MB but a block at
/// their end, so arenas keep the pages: one for each thread, or a single one. It takes 50 ms of CPU time.
const ARENAS: &str = r#"
import ctypes, http.server, queue, sys, threading, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def work(asked, done):
    while asked.get():
        blocks = [libc.malloc(ctypes.c_size_t(30000)) for _ in range(700)]
        for block in blocks:
            ctypes.memset(ctypes.c_void_p(block), 1, 30000)
        for block in blocks[:-1]:
            libc.free(ctypes.c_void_p(block))
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        done.put(True)
QUEUES = [(queue.Queue(), queue.Queue()) for _ in range(8)]
for of in QUEUES:
    threading.Thread(target=work, args=of, daemon=True).start()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked, done = QUEUES[0]
        QUEUES.append(QUEUES.pop(0))
        asked.put(True)
        done.get()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// One run under `system` with a look, one of each candidate, one more of the two that look better, then the best beside
/// `system` until it is proven. One arena keeps an eighth of the pages, four keep half, 64 gain nothing.
#[test]
fn a_server_that_one_arena_makes_small_has_its_pick_after_nine_runs() {
    let place = Place::new();
    std::fs::write(place.world.work().join("arenas.py"), ARENAS).unwrap();
    let words = "bench --json --idle 1 --cycles 1 --ready tcp:$PORT --with glibc:arena1 --with glibc?arena_max:4 \
                 --with glibc?arena_max:64";
    let mut bench = place.world.imas(words.split_whitespace());
    bench.args(["--load", &place.load(8, "/"), "--"]).arg(real("python3"));
    let done = succeeded(output(bench.args([&place.script("arenas.py"), "$PORT"])));
    let result = parsed(&done);
    let mut made: Vec<(u64, &str)> = list(&result, "/runs")
        .iter()
        .map(|run| (run["round"].as_u64().unwrap(), text(run, "/candidate")))
        .collect();
    assert_eq!(made[..2], [(0, "system"), (0, "glibc:arena1")], "the best expectation comes first: {made:?}");
    made.sort_unstable();
    let rounds: [&[&str]; 3] = [
        &["glibc:arena1", "glibc?arena_max:4", "glibc?arena_max:64", "system"],
        &["glibc:arena1", "glibc?arena_max:4", "system"],
        &["glibc:arena1", "system"],
    ];
    let course = (0..).zip(rounds).flat_map(|(round, names)| names.iter().map(move |name| (round, *name)));
    assert_eq!(made, course.collect::<Vec<_>>(), "{}", describe(&done));
    assert_eq!(text(&result, "/comparison/judgement/ending/kind"), "picked", "{result:#}");
    assert_eq!(result["rounds"]["ended"], "settled", "{result:#}");
    let said = text(&result, "/sentence");
    let memory = compared(&result, "glibc:arena1")["goal"][1].as_f64().unwrap();
    assert!(said.starts_with("Use glibc:arena1 (") && memory < 0.5, "{said}: {memory}");
    let looked = &list(&result, "/runs")[0]["server"]["heaps"];
    assert!(!list(looked, "").is_empty(), "the first run was looked into: {looked}");
}

#[test]
fn a_set_up_that_is_interrupted_leaves_nothing() {
    let place = Place::new();
    let mut command =
        place.world.imas("bench -n 1 --with glibc:arena1 --ready tcp:$PORT --load true --setup".split(' '));
    command.args(["sleep 4246", "--", "sleep", "9"]);
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the set-up runs", || !nothing_is("sleep 4246"));
    Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    assert!(stderr(&ended).contains("the set-up has been ended"), "{}", describe(&ended));
    wait_until("all have ended", || nothing_is("sleep 4246"));
}

/// A server of TLS with a certificate of its own, for another name.
const TLS_SERVER: &str = r#"
import http.server, ssl, sys
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn a_server_with_a_certificate_of_its_own_gets_ready() {
    let place = Place::new();
    let work = place.world.work();
    std::fs::write(work.join("tls.py"), TLS_SERVER).unwrap();
    let pem = work.join("own.pem");
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other.invalid".split(' '));
    let made = openssl.arg("-keyout").arg(&pem).arg("-out").arg(work.join("certificate.pem")).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return imas_testing::skipped("openssl is not there to make a certificate");
    }
    let certificate = std::fs::read_to_string(work.join("certificate.pem")).unwrap();
    std::fs::write(&pem, std::fs::read_to_string(&pem).unwrap() + &certificate).unwrap();
    let python = real("python3").to_string_lossy().into_owned();
    let flags =
        ["--json", "-n", "1", "--idle", "0", "--cycles", "1", "--with", "glibc:arena1", "--load", "true"];
    let mut bench = place.world.imas(["bench", "--ready", "https://127.0.0.1:$PORT/"]);
    bench.args(flags).args(["--", &python, &place.script("tls.py"), "$PORT", &place.script("own.pem")]);
    let done = succeeded(output(&mut bench));
    let result = parsed(&done);
    let system = compared(&result, "system");
    assert!(system["figures"]["ready"]["median"].is_number(), "{system}");
}

const JAVA_SERVER: &str = r#"
public class Server {
    static final java.util.List<byte[]> KEPT = new java.util.ArrayList<>();
    public static void main(String[] words) throws Exception {
        var server = com.sun.net.httpserver.HttpServer.create(
            new java.net.InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 0);
        server.createContext("/", exchange -> {
            KEPT.add(new byte[1000000]);
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write("ok".getBytes());
            exchange.close();
        });
        server.start();
    }
}
"#;

/// Tomcat, Kafka, Keycloak, Elasticsearch: a script of a shell starts the JVM with options of its own.
#[test]
fn settings_of_a_jvm_behind_a_start_script_are_measured() {
    let place = Place::new();
    let work = place.world.work();
    std::fs::write(work.join("Server.java"), JAVA_SERVER).unwrap();
    let compiled = Command::new("javac").arg("-d").arg(&work).arg(work.join("Server.java")).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return imas_testing::skipped("javac is not installed");
    }
    let script = work.join("start.sh");
    let bench = |options: &str, with: &[&str]| {
        let text = format!("#!/bin/sh\nexec java {options} -cp {} Server \"$@\"\n", work.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let words = "bench --json -n 1 --idle 0 --cycles 1 --ready tcp:$PORT --load";
        let mut imas = place.world.imas(words.split(' '));
        let done =
            succeeded(output(imas.arg(place.load(5, "/")).args(with).arg("--").arg(&script).arg("$PORT")));
        assert!(stderr(&done).contains("that of a process of the JVM"), "{}", describe(&done));
        parsed(&done)
    };
    let serial = bench("-Xmx300m", &["--with", "jvm:serial,glibc:arena1"]);
    let figure = |name: &str| compared(&serial, name)["figures"]["memory_peak"]["median"].as_f64().unwrap();
    assert!(figure("jvm:serial") < figure("system"), "the serial collector has smaller tables: {serial:#}");
    let chosen = bench("-XX:+UseG1GC", &["--with", "jvm:serial,jvm:g1-lean,glibc:arena1"]);
    let unusable = &chosen["unusable"];
    assert!(unusable.to_string().contains("-XX:+UseG1GC is given already"), "{unusable}");
    assert_eq!(list(unusable, "").len(), 1, "{unusable}");
    assert_eq!(compared(&chosen, "jvm:g1-lean")["rounds"], 1, "{chosen:#}");
}

/// Holds the MiB of its second argument for each request, one after the other, and is ready from the start on. Each of its
/// $WORKERS further processes holds half as much all the time.
const HOLDER: &str = r#"
import os, signal, socket, sys
for _ in range(int(os.environ.get("WORKERS", "0"))):
    if os.fork() == 0:
        kept = bytearray(b"x") * (int(sys.argv[2]) << 19)
        signal.pause()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", file=sys.stderr, flush=True)
while True:
    taken, _ = listener.accept()
    if taken.recv(1):
        held = bytearray(b"x") * (int(sys.argv[2]) << 20)
        taken.sendall(b"y")
        del held
    taken.close()
"#;
/// The rate is one figure, so that no machine is too busy for it.
const HOLDERS_LOAD: &str = r#"
import os, socket, sys
for _ in range(3):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(b"x")
        assert server.recv(1) == b"y"
with open(os.environ["IMAS_METRICS"], "a") as file:
    file.write("rate 100 1/s higher\n")
"#;
const HELD_MIB: u64 = 64;

/// Folders of control groups that a bench has left.
fn groups_left() -> Vec<PathBuf> {
    fn below(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if depth == 0 || !path.is_dir() {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("imas-service-") || name.starts_with("imas-bench-") {
                found.push(path.clone());
            }
            below(&path, depth - 1, found);
        }
    }
    let mut found = vec![];
    below(Path::new("/sys/fs/cgroup"), 4, &mut found);
    found
}

#[test]
fn a_server_works_in_what_it_holds_and_in_no_less() {
    let (world, python) = (World::new(), real("python3").to_string_lossy().into_owned());
    let script = |name: &str, text: &str| {
        let path = world.work().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (server, load) = (script("server.py", HOLDER), script("load.py", HOLDERS_LOAD));
    let held = HELD_MIB.to_string();
    let words = "bench --json --least-memory --workers WORKERS=1,2 --idle 0 --cycles 1 --ready tcp:$PORT --with glibc:arena1 --load";
    let mut bench = world.imas(words.split(' '));
    let done =
        output(bench.args([&format!("{python} {load} $PORT"), "--", &python, &server, "$PORT", &held]));
    if stderr(&done).contains("no control group with a limit of memory can be made") {
        assert_hinted(&done, "systemd-run");
        return skipped("no control group with a limit of memory can be made here");
    }
    assert!(done.status.success(), "{}", describe(&done));
    let report = parsed(&done);
    let system = &list(&report, "/candidates")[0];
    let least = system["end"]["found"].as_u64().unwrap_or_else(|| panic!("{report:#}")) >> 20;
    // An interpreter, and less than half as much again for pages of files.
    assert!((HELD_MIB..=HELD_MIB + 48).contains(&least), "{least} MiB: {system:#}");
    let runs = system["runs"].as_array().unwrap();
    let killed = runs.iter().filter(|run| run["end"] == "killed").filter_map(|run| run["limit"].as_u64());
    assert!(killed.max().is_some_and(|limit| limit >> 20 < least), "{system:#}");
    let suggested = report["suggestion"]["limit_bytes"].as_u64().unwrap();
    assert!(suggested >> 20 >= least * 11 / 10, "{report:#}");
    // A malloc of one arena holds no less of one large block.
    let all = list(&report, "/candidates");
    assert_eq!(all.len(), 4, "{report:#}");
    let of_workers = |one: &serde_json::Value| (one["workers"].as_u64(), one["end"]["found"].as_u64());
    let [(Some(1), Some(one)), (Some(2), Some(two))] = [&all[2], &all[3]].map(of_workers) else {
        panic!("{report:#}")
    };
    assert!((one >> 20) >= least + HELD_MIB / 3 && (two >> 20) >= (one >> 20) + HELD_MIB / 3, "{report:#}");
    assert_eq!(all[3]["variables"], serde_json::json!([["WORKERS", "2"]]), "{report:#}");
    let is_dead = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('-').nth(2).is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    let left: Vec<PathBuf> = groups_left().into_iter().filter(is_dead).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_least_limit_is_of_a_server() {
    let world = World::new();
    assert_hinted(&output(&mut world.imas(["bench", "--least-memory", "--", "true"])), "is for a server");
    for wrong in ["N", "N=0", "N=1,x", "=1", "N=1,2,3,4,5,6,7,8,9"] {
        let words = ["bench", "--least-memory", "--workers", wrong, "--", "true"];
        let refused = output(&mut world.imas(words));
        assert!(stderr(&refused).contains("WEB_CONCURRENCY=1,2,4"), "{wrong}: {refused:?}");
    }
}
