// SPDX-License-Identifier: Apache-2.0
//! `imas bench` with real servers: the measurements, the failures, and that no process or file remains.

use std::process::{Command, Output, Stdio};

use crate::support::{
    World, assert_hinted, candidate, describe, list, output, parsed, real, stderr, stdout, succeeded, text,
    wait_until,
};
use serde_json::Value;

/// A threaded web server. Each request makes its memory grow. Each request takes 20 ms of CPU time, because
/// without a control group CPU time is counted in ticks of 10 ms.
const SERVER: &str = r#"
import http.server, socketserver, sys, time
KEPT = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        KEPT.append(bytearray(b"x") * 1000000)
        while time.thread_time() < 0.02:
            pass
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
print("listening", file=sys.stderr, flush=True)
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// A load that needs no tool: python makes the requests and prints one latency line.
const LOAD: &str = r#"
import os, sys, urllib.request
for _ in range(int(sys.argv[2])):
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{sys.argv[3]}", timeout=60).read()
with open(os.environ["IMAS_METRICS"], "a") as file:
    file.write("p99 5 ms lower\nrate 100 1/s higher\n")
"#;

struct Place {
    world: World,
}

impl Place {
    fn new() -> Self {
        let world = World::new();
        std::fs::write(world.work().join("server.py"), SERVER).unwrap();
        std::fs::write(world.work().join("load.py"), LOAD).unwrap();
        Self { world }
    }

    fn script(&self, name: &str) -> String {
        self.world.work().join(name).to_string_lossy().into_owned()
    }

    fn load(&self, count: u32, path: &str) -> String {
        format!("{} {} $PORT {count} {path}", real("python3").display(), self.script("load.py"))
    }

    /// A benchmark of the web server with these options.
    fn bench(&self, flags: &[&str], load: &str) -> Output {
        let python = real("python3").to_string_lossy().into_owned();
        let words = "bench --json -n 1 --idle 0.2 --cycles 2 --ready tcp:$PORT --with glibc:arena1 --load";
        let mut command = self.world.imas(words.split(' '));
        command.arg(load).args(flags).args(["--", &python, &self.script("server.py"), "$PORT"]);
        output(&mut command)
    }
}

fn compared<'a>(result: &'a Value, name: &str) -> &'a Value {
    candidate(&result["comparison"], name)
}

/// Whether pgrep finds no process by these words.
fn finds_nothing(words: &[&str]) -> bool {
    !Command::new("pgrep").arg("-f").args(words).stdout(Stdio::null()).status().unwrap().success()
}

/// Whether no process has exactly this command line. Each test has a number of its own: others run beside it.
fn nothing_is(command_line: &str) -> bool {
    finds_nothing(&["-x", "--", command_line])
}

/// Whether no process has this in its command line.
fn nothing_runs(script: &str) -> bool {
    finds_nothing(&["--", script])
}

/// Server and load name files of the folder that the bench is called from, as by hand.
#[test]
fn a_server_runs_in_the_callers_folder_or_in_a_fresh_one() {
    let place = Place::new();
    let python = real("python3");
    let bench = |flags: &[&str]| {
        let mut imas = place.world.imas(["bench", "--json", "-n", "1", "--idle", "0", "--cycles", "1"]);
        let load = format!("{} load.py $PORT 2 /; echo x >left", python.display());
        imas.args(flags).args(["--ready", "tcp:$PORT", "--load", &load, "--with", "glibc:arena1", "--"]);
        output(imas.arg(&python).args(["server.py", "$PORT"]))
    };
    let here = succeeded(bench(&[]));
    assert!(stderr(&here).contains("the runs wrote left in this folder"), "{}", describe(&here));
    let fresh = bench(&["--fresh-folder"]);
    assert_eq!(fresh.status.code(), Some(1), "{}", describe(&fresh));
    assert!(stderr(&fresh).contains("server.py"), "{}", describe(&fresh));
}

/// puma looks for its config.ru where it runs, as an ordinary start of it does.
#[test]
fn an_ordinary_puma_is_measured_where_it_lies() {
    let place = Place::new();
    let Some(puma) = ["/usr/bin/puma"].into_iter().find(|file| std::path::Path::new(file).exists()) else {
        return imas_testing::skipped("puma is not installed");
    };
    let rack = "run ->(env) { [200, { 'content-type' => 'text/plain' }, ['x' * 1000]] }\n";
    std::fs::write(place.world.work().join("config.ru"), rack).unwrap();
    let words =
        "bench --json -n 1 --idle 0 --cycles 1 --with glibc:arena1 --ready http://127.0.0.1:$PORT/ --load";
    let get = "import os, urllib.request as u; [u.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/').read() for _ in range(50)]";
    let load = format!("{} -c '{}'", real("python3").display(), get.replace('\'', "'\\''"));
    let mut bench = place.world.imas(words.split(' '));
    let done = succeeded(output(bench.args([&load, "--", puma, "-q", "-b", "tcp://127.0.0.1:$PORT"])));
    let result = parsed(&done);
    assert_eq!(compared(&result, "glibc:arena1")["rounds"], 1, "{}", describe(&done));
}

/// A server that fails in each run under a candidate fills no page with its log.
#[test]
fn a_second_failure_of_a_kind_is_not_printed() {
    let place = Place::new();
    let script = place.script("fails.sh");
    let text_of = format!(
        "#!/bin/sh\nif tr '\\0' '\\n' < /proc/$$/environ | grep -q libjemalloc; then echo first line >&2; echo not with $$ >&2; exit 3; fi\nexec {} {} $1\n",
        real("python3").display(),
        place.script("server.py")
    );
    std::fs::write(&script, text_of).unwrap();
    let words = "bench -n 2 --idle 0 --cycles 1 --with jemalloc,glibc:arena1 --ready tcp:$PORT --load";
    let mut bench = place.world.imas(words.split(' '));
    let done = succeeded(output(bench.args([&place.load(2, "/"), "--", "sh", &script, "$PORT"])));
    let told = stderr(&done);
    assert_eq!(told.matches("first line").count(), 1, "{}", describe(&done));
    assert_eq!(told.matches("ended before it was ready").count(), 1, "{}", describe(&done));
    assert!(told.contains("more runs that failed as told above: jemalloc: 1"), "{}", describe(&done));
}

/// The default set of programs has mimalloc, which services gain nothing from.
#[test]
fn without_names_the_default_set_of_services_is_measured() {
    let place = Place::new();
    let python = real("python3");
    let bench = ["bench", "--json", "-n", "1", "--idle", "0", "--cycles", "1", "--ready", "tcp:$PORT"];
    let mut imas = place.world.imas(bench);
    imas.args(["--load", &place.load(1, "/"), "--"]).arg(&python).args([&place.script("server.py"), "$PORT"]);
    let done = output(&mut imas);
    let measured = parsed(&done)["comparison"]["candidates"].clone();
    let names: Vec<_> = list(&measured, "").iter().map(|one| text(one, "/name")).collect();
    assert_eq!(
        names,
        ["system", "glibc:arena1", "glibc:lean", "system+trims", "glibc:arena1+trims"],
        "{}",
        describe(&done)
    );
}

#[test]
fn a_server_is_measured_and_no_process_or_file_remains() {
    let place = Place::new();
    let page = place.world.work().join("page.html");
    let done = succeeded(place.bench(&["--html", page.to_str().unwrap()], &place.load(5, "/")));
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("Resident anonymous memory of the server") && html.contains("glibc:arena1"));
    let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("no {part}"));
    assert!(at("class=\"result\"") < at("<svg") && at("<svg") < at("<nav"), "the result has its picture");
    assert!(at("aria-label=\"Latency of requests\"") < at("id=\"method\""), "latency is drawn");
    let result = parsed(&done);
    assert_eq!(text(&result, "/kind"), "service");
    for name in ["system", "glibc:arena1"] {
        let one = compared(&result, name);
        assert_eq!(one["rounds"], 1, "{one}");
        let figures =
            "ready rate cycle cpu p99 memory memory_ready memory_peak memory_idle memory_slope threads";
        for figure in figures.split(' ') {
            assert!(one["figures"][figure]["median"].is_number(), "{figure} of {one}");
        }
        // Each request keeps a megabyte. Two cycles of five requests make ten at the end.
        let figure = |name: &str| one["figures"][name]["median"].as_f64().unwrap() / 1e6;
        assert!(figure("memory_idle") - figure("memory_ready") > 9.0, "{one}");
        assert!((4.0..7.0).contains(&figure("memory_slope")), "{one}");
    }
    let systems = list(&result, "/runs").iter().filter(|run| run["candidate"] == "system").count();
    assert_eq!((systems, list(&result, "/runs").len()), (3, 4), "system runs three times a round");
    let noise = &result["comparison"]["noise"];
    assert!(noise["memory"]["deviation"].is_number(), "{noise}");
    let curve = list(&result, "/runs/0/server/curve");
    assert!(!curve.is_empty() && curve[0].as_array().is_some_and(|point| point.len() == 2));
    for heaps in ["/runs/0/server/heaps/0", "/runs/1/server/heaps_idle/0"] {
        let seen = result.pointer(heaps).unwrap_or_else(|| panic!("no {heaps}"));
        // The thread of the last request may not have ended.
        let has_threads = seen["threads"].as_u64() >= Some(1);
        assert!(seen["bytes"].as_u64() >= seen["main_bytes"].as_u64() && has_threads, "{seen}");
        assert!(seen["main_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{seen}");
    }
    assert!(nothing_runs(&place.script("server.py")));
}

/// Only the server is under the candidate. The commands that prepare it and load it are not.
#[test]
fn the_load_is_not_under_the_candidate() {
    let place = Place::new();
    let note = place.script("load-env");
    let load = format!("env >> {note}; {}", place.load(2, "/"));
    succeeded(place.bench(&["--with", "jemalloc", "--prepare", &format!("env >> {note}")], &load));
    let seen = std::fs::read_to_string(&note).unwrap();
    assert!(seen.contains("PORT=") && seen.contains("WORK="), "{seen}");
    assert!(!seen.contains("LD_PRELOAD"), "{seen}");
}

#[test]
fn a_load_that_fails_is_reported_with_the_servers_last_line() {
    let place = Place::new();
    let done = place.bench(&[], "echo the load is broken >&2; exit 3");
    assert_eq!(done.status.code(), Some(1), "{}", describe(&done));
    assert!(stderr(&done).contains("every run under system failed"), "{}", describe(&done));
    let result = parsed(&done);
    let what = text(compared(&result, "system"), "/failures/0/what");
    assert!(
        what.contains("exit 3") && what.contains("the load is broken") && what.contains("listening"),
        "{what}"
    );
    assert!(nothing_runs(&place.script("server.py")));
}

#[test]
fn a_load_that_fails_can_be_ignored() {
    let place = Place::new();
    let load = format!("{}; exit 3", place.load(2, "/"));
    let done = succeeded(place.bench(&["--ignore-failure"], &load));
    let result = parsed(&done);
    assert_eq!(compared(&result, "system")["rounds"], 1);
    let p99 = compared(&result, "system")["figures"]["p99"]["median"].as_f64().unwrap();
    assert!((p99 - 5.0).abs() < 1e-9, "{p99}"); // a geometric mean
    let notes = list(&result, "/runs/0/server/notes");
    let failed = notes.iter().filter(|note| note.as_str().is_some_and(|note| note.contains("exit 3")));
    assert_eq!(failed.count(), 1, "one note for two cycles: {notes:?}");
}

/// Each stage of a run has its part of the time limit: the wait for readiness, the load, the pause.
#[test]
fn a_run_that_takes_too_long_is_ended() {
    let place = Place::new();
    let python = real("python3").to_string_lossy().into_owned();
    let server = place.script("server.py");
    for (ready, load, idle) in
        [("sleep 4241", "true", "0"), ("tcp:$PORT", "sleep 4241", "0"), ("tcp:$PORT", "true", "4241")]
    {
        let flags =
            ["bench", "--json", "-n", "1", "--with", "glibc:arena1", "--cycles", "1", "--timeout", "3"];
        let mut command = place.world.imas(flags);
        command.args(["--ignore-failure", "--ready", ready, "--load", load, "--idle", idle]);
        let done = output(command.args(["--", &python, &server, "$PORT"]));
        assert_eq!(done.status.code(), Some(1), "{}", describe(&done));
        let result = parsed(&done);
        let failure = &compared(&result, "system")["failures"][0];
        assert_eq!(failure["stage"], "timeout", "{failure}");
        assert!(text(failure, "/what").contains("the run took longer than 3 s"), "{failure}");
        assert!(nothing_is("sleep 4241") && nothing_runs(&server));
    }
}

/// The load says which CPUs it may use, and which the server may.
#[test]
fn a_server_can_be_kept_on_one_cpu() {
    let place = Place::new();
    let (mine, servers) = (place.script("load-cpus"), place.script("server-cpus"));
    let of = |pid: &str, file: &str| format!("grep Cpus_allowed_list /proc/{pid}/status > {file}");
    let found = format!("$(pgrep -f -n -- '{} '$PORT)", place.script("server.py"));
    let load = format!("{}; {}; {}", of("self", &mine), of(&found, &servers), place.load(1, "/"));
    let done = succeeded(place.bench(&["--one-cpu", "always"], &load));
    let allowed =
        |file: &str| std::fs::read_to_string(file).unwrap().split_once('\t').unwrap().1.trim().to_owned();
    let cpu: usize = allowed(&servers).parse().expect("one CPU, no list");
    let result = parsed(&done);
    assert_eq!(result["cpus"]["server"], serde_json::json!([cpu]));
    let is_alone = list(&result, "/cpus/load").is_empty();
    assert_eq!(allowed(&mine) == allowed(&servers), is_alone, "the load has the other CPUs");
}

#[test]
fn a_server_that_never_gets_ready_is_ended_and_reported() {
    let place = Place::new();
    let file = place.world.work().join("s.toml");
    let text_of = "command = 'sh -c \"echo I only sleep >&2; exec sleep 4242\"'\nready = 'false'\nload = ['true']\nready_timeout = 4\n";
    std::fs::write(&file, text_of).unwrap();
    let words = [
        "bench",
        "--json",
        "-n",
        "1",
        "--with",
        "glibc:arena1",
        "--name",
        "mine",
        "--export-runs",
        "runs",
        "--service",
    ];
    let done = output(place.world.imas(words).arg(&file));
    assert_eq!(done.status.code(), Some(1), "{}", describe(&done));
    let result = parsed(&done);
    assert_eq!(text(&result, "/service/name"), "mine", "not that of the file");
    let what = text(compared(&result, "system"), "/failures/0/what");
    assert!(what.contains("not ready after 4 s") && what.contains("I only sleep"), "{what}");
    assert!(nothing_is("sleep 4242"));
}

#[test]
fn a_taken_port_is_reported() {
    let place = Place::new();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ready = format!("tcp:{}", holder.local_addr().unwrap().port());
    let mut bench = place.world.imas("bench --json -n 1 --with glibc:arena1 --load true --ready".split(' '));
    let done = output(bench.args([ready.as_str(), "--", "sleep", "100"]));
    assert_eq!(done.status.code(), Some(1), "{}", describe(&done));
    assert!(stderr(&done).contains("is taken"), "{}", describe(&done));
}

/// The second run of a server on a port that is given finds the connections of the first one there, and does not get ready.
/// Runs that could not be compared are named, with the reason and what to do.
#[test]
fn a_port_that_ended_connections_keep_is_reported() {
    let place = Place::new();
    let script = place.script("closes_first.py");
    let source = "import socket, sys\nserver = socket.socket()\nserver.bind(('127.0.0.1', int(sys.argv[1])))\n\
                server.listen()\nwhile True:\n    one, _ = server.accept()\n    one.shutdown(socket.SHUT_WR)\n    one.close()\n";
    std::fs::write(&script, source).unwrap();
    // None of those that the kernel gives to connections.
    let port = imas_runs::service::free_port().unwrap().to_string();
    let client = "import socket, sys\none = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\none.recv(1)\none.close()";
    std::fs::write(place.script("client.py"), client).unwrap();
    let python = real("python3").to_string_lossy().into_owned();
    let load = format!("{python} {} {port}", place.script("client.py"));
    let ready = format!("tcp:{port}");
    let words = "bench -n 1 --idle 0 --cycles 1 --with glibc:arena1 --json";
    let mut bench = place.world.imas(words.split(' '));
    let done = output(bench.args(["--load", &load, "--ready", &ready, "--", &python, &script, &port]));
    let result = parsed(&done);
    let said = text(&result, "/sentence");
    assert!(said.starts_with("Nothing can be compared: "), "{said}");
    assert!(said.contains("TIME_WAIT") && said.contains("$PORT"), "{said}");
}

/// A candidate under which the server crashes has lost. The others go on.
#[test]
fn a_server_that_dies_under_a_candidate_is_reported_and_the_others_go_on() {
    let place = Place::new();
    let script = place.script("dies.sh");
    let server = place.script("server.py");
    let python = real("python3");
    // The candidate is recognised by the initial environment of the process, in /proc.
    let text_of = format!(
        "#!/bin/sh\nif tr '\\0' '\\n' < /proc/$$/environ | grep -q libjemalloc; then echo I cannot stand it >&2; kill -SEGV $$; fi\nexec {} {server} $1\n",
        python.display()
    );
    std::fs::write(&script, text_of).unwrap();
    let load = place.load(2, "/");
    let words = "bench --json -n 2 --idle 0 --cycles 1 --with jemalloc,glibc:arena1 --ready tcp:$PORT --load";
    let mut bench = place.world.imas(words.split(' '));
    let done = succeeded(output(bench.args([load.as_str(), "--", "sh", &script, "$PORT"])));
    let result = parsed(&done);
    let lost = compared(&result, "jemalloc");
    assert_eq!((lost["rounds"].as_u64(), list(lost, "/failures").len()), (Some(0), 1), "{lost}");
    assert_eq!(lost["failures"][0]["signal"], 11, "{lost}");
    assert!(text(lost, "/failures/0/what").contains("I cannot stand it"), "{lost}");
    for name in ["system", "glibc:arena1"] {
        assert_eq!(compared(&result, name)["rounds"], 2);
    }
}

/// A server whose first process ends at once, as daemons do. It is measured and ended like the others.
fn daemon(place: &Place, wrap: &[&str]) -> Value {
    let python = real("python3").to_string_lossy().into_owned();
    let line = format!("{python} {} $0 & exit 0", place.script("server.py"));
    let load = place.load(5, "/");
    let imas = crate::support::built("imas").to_string_lossy().into_owned();
    let bench = ["bench", "--json", "-n", "1", "--idle", "0", "--cycles", "1", "--with", "glibc:arena1"];
    let server = ["--ready", "tcp:$PORT", "--load", &load, "--", "sh", "-c", &line, "$PORT"];
    let mut words: Vec<&str> = wrap.to_vec();
    words.push(&imas);
    words.extend(bench.iter().chain(&server));
    let done = succeeded(output(place.world.command(words[0]).args(&words[1..])));
    let result = parsed(&done);
    let figures = &compared(&result, "system")["figures"];
    let memory = figures["memory_peak"]["median"].as_f64().unwrap();
    assert!(memory > 5e6 && figures["cpu"]["median"].as_f64().unwrap() > 0.0, "{figures}");
    assert!(nothing_runs(&place.script("server.py")));
    result
}

#[test]
fn a_daemon_is_followed() {
    daemon(&Place::new(), &[]);
}

#[test]
fn a_daemon_is_followed_without_a_control_group() {
    let hidden = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let wrap = ["unshare", "--mount", "sh", "-c", hidden, "sh"];
    let place = Place::new();
    let may = output(place.world.command(wrap[0]).args(&wrap[1..]).arg("true"));
    if !may.status.success() {
        return imas_testing::skipped(&format!("mount namespaces cannot be made here: {}", stderr(&may)));
    }
    let result = daemon(&place, &wrap);
    assert_eq!(result["runs"][0]["server"]["control_group"], false);
}

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
/// their end, so an arena keeps the pages: that of each thread, or one for all. It takes 50 ms of CPU time.
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

#[test]
fn options_of_a_server_need_one() {
    let world = World::new();
    let wrong = |words: &[&str], what: &str| assert_hinted(&output(world.imas(["bench"]).args(words)), what);
    wrong(&["--cycles", "2", "--", "true"], "--cycles is for a server");
    let server = |words: [&'static str; 2]| {
        [&["--ready", "tcp:1", "--load", "true"], &words[..], &["--", "true"]].concat()
    };
    wrong(&server(["--export-csv", "x"]), "--export-csv is not for a server");
    wrong(&server(["--trials", "2"]), "--trials is not for a server: it has no counted runs");
    wrong(&["--service", "/nonexistent.toml"], "nonexistent.toml");
    let usage = output(&mut world.imas(["bench", "--ready", "tcp:1", "--", "true"]));
    assert_eq!(usage.status.code(), Some(2), "{}", describe(&usage));
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
