// SPDX-License-Identifier: Apache-2.0
//! `imas bench` with real servers: the measurements, the failures, and that no process or file remains.

mod course;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{
    World, assert_hinted, candidate, describe, list, output, parsed, real, stderr, succeeded, text,
};

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
