// SPDX-License-Identifier: Apache-2.0
//! One run of a real server: cycles, the pause, an open loop and a day, and what is read from its heaps.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use imas_core::run::RawRun;
use imas_core::server_run::{ArenaHeaps, ServerRun};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Variables};
use imas_runs::interruption::Interruption;
use imas_runs::service::{DayKind, DayPart, Service, ServiceExecutor, ServiceLimits};

/// A run ends all children of this process with it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A server that holds 24 MB in small blocks and frees all but every hundredth, on the C library's malloc.
const SERVER: &str = "import ctypes, http.server, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(1000) for _ in range(24000)]
for block in blocks: ctypes.memset(block, 1, 1000)
for at, block in enumerate(blocks):
    if at % 100: libc.free(block)
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')";

fn service(folder: &Path) -> (Service, Vec<String>) {
    let line = |name: &str| format!("echo {name} >> {}/lines", folder.display());
    let mut service =
        Service::new("tcp:$PORT", vec![format!("{}; echo 'p99 5 ms lower' >> $IMAS_METRICS", line("load"))]);
    service.cycles = 2;
    service.idle = 0.2;
    // At a rate of 0.000 the load is as fast as it can: 80 requests a second.
    service.open = Some(format!(
        "{}; [ $RATE = 0.000 ] && echo 'rate 80 1/s higher' >> $IMAS_METRICS || echo \"p99 $RATE ms lower\" >> $IMAS_METRICS",
        line("open-$RATE")
    ));
    service.day = vec![
        DayPart { part: DayKind::Busy, seconds: 0.6, cycles: 3 },
        DayPart { part: DayKind::Quiet, seconds: 0.3, cycles: 0 },
        DayPart { part: DayKind::Burst, seconds: 0.1, cycles: 2 },
        DayPart { part: DayKind::Quiet, seconds: 0.3, cycles: 0 },
    ];
    (service, ["python3", "-c", SERVER, "$PORT"].map(str::to_owned).into())
}

#[test]
fn a_life_has_cycles_a_pause_an_open_loop_and_a_day() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (service, words) = service(folder.path());
    let libraries = Libraries::plain(Path::new("/nonexistent"));
    let executor =
        ServiceExecutor::with_words(service, words, libraries, inherited(), Default::default()).unwrap();
    let system = CatalogueCandidate { name: "system".to_owned(), ..CatalogueCandidate::default() };
    let run = executor.run(&system, 3, &Interruption::default()).unwrap();
    let server = run.of_server();
    assert_eq!((run.ok, run.round, &run.message), (true, 3, &None));
    let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    let of = |name: &str| lines.lines().filter(|line| *line == name).count();
    assert_eq!((of("load"), of("open-0.000"), of("open-40.000")), (2 + 3 + 2, 1, 1), "{lines}");
    assert_eq!((server.asked_rate, server.value("open_p99")), (Some(40.0), Some(40.0)));
    let p99 = server.value("p99").map(|p99| p99.round());
    assert_eq!((server.cycles.len(), p99), (2, Some(5.0)), "the day is no part of the load");
    let parts: Vec<&str> = server.day.iter().map(|part| part.part.as_str()).collect();
    assert_eq!(parts, ["busy", "quiet", "burst", "quiet"]);
    let asked = [0.6, 0.3, 0.1, 0.3];
    assert!(server.day.iter().zip(asked).all(|(part, s)| part.wall_s >= s), "{:?}", server.day);
    let follow =
        |pair: &[imas_core::server_run::DayFigures]| pair[1].began_s >= pair[0].began_s + pair[0].wall_s;
    assert!(server.day.windows(2).all(follow), "{:?}", server.day);
    for figure in ["memory_day", "memory_day_busy", "memory_day_quiet_2", "cpu_day", "cpu_ticks"] {
        assert!(server.value(figure).is_some(), "{figure}: {:?}", server.figures.keys());
    }
    assert_eq!(server.malloc_by, ["the C library"]);
    // A second run keeps the rate of the first.
    let second = executor.run(&system, 4, &Interruption::default()).unwrap();
    assert_eq!(second.of_server().asked_rate, Some(40.0));
    let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    assert_eq!(lines.lines().filter(|line| *line == "open-0.000").count(), 1, "{lines}");
    let mut runs = vec![run, second];
    let looks: [fn(&ServerRun) -> &[ArenaHeaps]; 2] = [|server| &server.heaps, |server| &server.heaps_idle];
    for look in looks {
        // On a busy machine the time of a look may be over before it has read all.
        let is_whole = |one: &ArenaHeaps| one.held.is_some_and(|held| !held.is_estimate);
        let is_read = |run: &RawRun| look(run.of_server()).iter().all(is_whole);
        while !runs.iter().any(is_read) && runs.len() < 20 {
            runs.push(executor.run(&system, 5, &Interruption::default()).unwrap());
        }
        heaps(look(runs.iter().find(|run| is_read(run)).unwrap().of_server()));
    }
}

/// A tool such as hey ends with 0 when every request fails.
#[test]
fn a_load_whose_requests_fail_has_failed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hey = "hey() { echo 'Requests/sec: 1'; echo '[5000] Get \"http://x/\": refused'; }; hey";
    let mut service = Service::new("tcp:$PORT", vec![hey.to_owned()]);
    (service.cycles, service.idle) = (2, 0.0);
    let words = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "$PORT"].map(str::to_owned);
    let system = CatalogueCandidate { name: "system".to_owned(), ..CatalogueCandidate::default() };
    let run = |ignores_load_failure| {
        let limits = ServiceLimits { ignores_load_failure, ..ServiceLimits::default() };
        let (service, libraries) = (service.clone(), Libraries::plain(Path::new("/nonexistent")));
        let executor =
            ServiceExecutor::with_words(service, words.to_vec(), libraries, inherited(), limits).unwrap();
        executor.run(&system, 0, &Interruption::default()).unwrap()
    };
    let what = "the load failed: 5000 of about 5000 requests failed";
    let failed = run(false);
    assert_eq!((failed.ok, failed.why.as_deref()), (false, Some("load")));
    assert!(failed.message.as_deref().is_some_and(|message| message.starts_with(what)), "{failed:?}");
    let kept = run(true);
    assert!(kept.ok && kept.of_server().notes.contains(&what.to_owned()), "{:?}", kept.message);
    assert_eq!(kept.value("errors"), Some(10_000.0));
}

/// Heaps of the server: of 24 MB most are free, in whole pages, and the live blocks are few.
fn heaps(heaps: &[ArenaHeaps]) {
    let [one] = heaps else { panic!("one process: {heaps:?}") };
    let held = one.held.unwrap();
    assert!(held.free_pages > 15_000_000, "{one:?}");
    assert!(held.live > 100_000 && held.live < 15_000_000, "{one:?}");
    assert!(held.live + held.cached + held.free_pages <= one.all_heap_bytes(), "{one:?}");
    assert!(held.stacks > 0, "{one:?}");
}

fn inherited() -> Variables {
    let mut variables = Variables::inherited();
    variables.remove(std::ffi::OsStr::new("LD_PRELOAD"));
    variables
}
