// SPDX-License-Identifier: Apache-2.0
//! The page on a terminal in memory: what is drawn, and what keys do.

use imas_linux::index::ServiceUnit;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use imas_core::adaptive::Weight;
use imas_core::stats::Interval;
use imas_engine::flags::Places;
use imas_engine::live::memory_point::MemoryPoint;
use imas_engine::live::snapshot::{
    Certainty, LiveGain, LiveProcess, LiveSnapshot, MachineState, Preference, PressureStalls, ProcessState,
    StoreKind,
};
use imas_engine::memory_look::MemoryAnswer;
use imas_engine::memory_look::parts::{MemoryPart, PartKind};
use imas_engine::memory_look::verdict::MemoryVerdict;
use imas_linux::memory_parts::Owner;
use imas_linux::serving::Injected;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::{App, Mode};
use crate::column::{Column, Listing};
use crate::keys::press;
use crate::live::notes;
use crate::page::{Theme, draw};

/// Whatever may steer a terminal, and a wide and a combining character.
const HOSTILE: &str = "/tmp/\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\n\r\u{202e}日本e\u{301}";

fn process(pid: u32, path: &str) -> LiveProcess {
    LiveProcess {
        pid,
        parent: 1,
        start_ticks: u64::from(pid),
        uid: 1000,
        program: path.to_owned(),
        path: path.to_owned(),
        detail: String::new(),
        number: Some(i64::from(pid)),
        store: Some(StoreKind::Own),
        unit: None,
        allocator: "glibc".to_owned(),
        candidate: Some("system".to_owned()),
        settings: None,
        injected: Injected::Nothing,
        threads: 4,
        resident_bytes: u64::from(pid) << 20,
        live_bytes: None,
        returnable_bytes: None,
        memory: None,
        growth_bytes_per_hour: Some(-2e6),
        cpu_share: Some(0.25),
        state: ProcessState::Settled { candidate: "jemalloc".to_owned(), since_unix_s: Some(1.7e9) },
        quarantined: vec![],
        gain: None,
    }
}

fn look(processes: Vec<LiveProcess>) -> LiveSnapshot {
    LiveSnapshot {
        schema: 1,
        at_unix_s: 1.7e9,
        observed_s: 10.0,
        processes,
        hidden: 3,
        unseen: 2,
        machine: MachineState {
            cpus: 2,
            load5: 0.5,
            memory_bytes: 8 << 30,
            available_bytes: 2 << 30,
            pressure: PressureStalls { cpu_some: Some(60.0), ..PressureStalls::default() },
            weight: Weight { cpu: 1.0, memory: 0.0, w: 1.0 },
            preference: Preference::Fastest,
        },
        daemon: false,
        problems: vec![],
    }
}

fn app(processes: Vec<LiveProcess>) -> App {
    let listing = Listing { sort: Column::Pid, is_reversed: false, filter: String::new(), is_tree: false };
    let mut app = App::new(listing, Places::default());
    app.take(look(processes));
    app
}

fn key(app: &mut App, code: KeyCode) {
    press(app, KeyEvent::new(code, KeyModifiers::NONE));
}

fn typed(app: &mut App, text: &str) {
    text.chars().for_each(|typed| key(app, KeyCode::Char(typed)));
}

/// The lines of the page.
fn drawn(app: &App, (width, height): (u16, u16), theme: Theme) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, theme)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

fn plain() -> Theme {
    Theme::new(false, true)
}

#[test]
fn below_the_table_of_one_look_stands_why_rows_and_verdicts_are_missing() {
    let of = |mut look: LiveSnapshot, (hidden, unseen)| {
        (look.hidden, look.unseen) = (hidden, unseen);
        notes(&look)
    };
    // The fixture's processes have as many MiB as their pid says.
    let missing = || look(vec![process(15, "/bin/a"), process(16, "/bin/b"), process(17, "/bin/c")]);
    let all = of(missing(), (1, 4));
    let lines: Vec<&str> = all.lines().collect();
    let begins = [
        "1 process: of other users",
        "1 process: less than 16 MiB",
        "2 processes: memory not read",
        "4 processes: not looked at",
    ];
    assert_eq!(lines.len(), begins.len(), "{all}");
    assert!(lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{all}");
    assert_eq!(of(look(vec![]), (0, 0)), "");
}

#[test]
fn eighty_by_twenty_four_shows_machine_table_pane_and_keys() {
    let mut python = process(7, "/usr/bin/python3.11");
    python.gain = Some(LiveGain {
        candidate: "jemalloc".to_owned(),
        memory_bytes: Some(Interval { lo: 1e7, mid: 2e7, hi: 3e7 }),
        cpu_percent: Some(Interval { lo: 1.0, mid: 3.0, hi: 5.0 }),
        certainty: Certainty::Proven,
        trials: [5, 6],
    });
    let app = app(vec![python, process(9, "/usr/sbin/nginx")]);
    let page = drawn(&app, (80, 24), plain());
    let text = page.join("\n");
    for wanted in [
        "2 processes (3 of others not shown, 2 not looked at)",
        "waiting for CPU 60%",
        "prefers: CPU is short: the fastest candidate (weight of CPU 1.00)",
        "python3.11",
        "settled: jemalloc",
        "-19M -3%",
        "jemalloc after a restart: -19.1 MiB [-28.6, -9.5]",
        "? keys",
    ] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    assert!(page[3].trim_start().starts_with("*PID"), "{}", page[3]);
}

/// What a process may name reaches no terminal, in the words on its memory neither.
#[test]
fn the_verdict_has_a_column_and_its_words_the_pane() {
    let part = |mib: u64, what: &str| MemoryPart {
        kind: PartKind::Live,
        what: what.to_owned(),
        owner: Owner::Malloc,
        resident_bytes: mib << 20,
        swapped_bytes: 0,
        remedy: String::new(),
        is_named: true,
    };
    let mut python = process(7, "/usr/bin/python3.11");
    python.memory = Some(Arc::new(MemoryAnswer {
        verdict: MemoryVerdict::Fragmentation,
        sentence: format!("153 MiB of heap are resident: fragmentation, not a leak {HOSTILE}"),
        parts: vec![part(88, "live blocks of glibc's malloc"), part(2, HOSTILE)],
        named_share: 1.0,
        limit: None,
    }));
    let page = drawn(&app(vec![python]), (200, 40), plain()).join("\n");
    for wanted in [
        "VERDICT",
        " fragmentation ",
        "153 MiB of heap are resident",
        "88 MiB: live blocks of glibc's malloc; ",
    ] {
        assert!(page.contains(wanted), "{wanted}:\n{page}");
    }
    assert!(!page.contains('\u{1b}') && !page.contains('\u{9b}'), "{page}");
}

#[test]
fn every_size_can_be_drawn() {
    let mut app = app((1..1001).map(|pid| process(pid, "/usr/bin/x")).collect());
    key(&mut app, KeyCode::End);
    for size in [(80, 24), (200, 60), (20, 5), (1, 1), (10, 3), (300, 2), (79, 18)] {
        let _ = drawn(&app, size, plain());
    }
    let page = drawn(&app, (120, 40), plain()).join("\n");
    assert!(page.contains("1000 processes") && page.contains(" 1000 ") && !page.contains(" 900 "), "{page}");
    key(&mut app, KeyCode::Char('?'));
    let _ = drawn(&app, (1, 1), plain());
    assert!(drawn(&app, (80, 24), plain()).join("\n").contains("pin the program"));
    key(&mut app, KeyCode::Char('?'));
    assert!(!drawn(&app, (80, 24), plain()).join("\n").contains("pin the program"), "the same key closes it");
}

#[test]
fn without_a_process_there_is_a_page_and_every_key_is_harmless() {
    for mut app in [app(vec![]), App::new(app(vec![]).listing, Places::default())] {
        for code in "jkgGsSrtnfxepaF/ ?".chars().map(KeyCode::Char) {
            key(&mut app, code);
            let _ = drawn(&app, (80, 24), plain());
            key(&mut app, KeyCode::Esc);
            assert!(app.calls.is_empty(), "{code:?}");
        }
    }
}

#[test]
fn a_hostile_name_steers_nothing() {
    let mut hostile = process(5, HOSTILE);
    hostile.program = HOSTILE.to_owned();
    hostile.unit = Some(ServiceUnit::of_system(&format!("{HOSTILE}.service")));
    hostile.allocator = HOSTILE.to_owned();
    hostile.state = ProcessState::LeftAlone { why: HOSTILE.to_owned() };
    hostile.quarantined = vec![HOSTILE.to_owned()];
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}');
    for column in Column::value_variants() {
        // Drawing drops some of it; the plain table does not.
        assert!(!column.cell(&hostile).contains(steers), "{column:?}");
    }
    let mut app = app(vec![hostile]);
    app.look.as_mut().unwrap().problems = vec![HOSTILE.to_owned()];
    for code in ['-', 'F', 'a'] {
        key(&mut app, KeyCode::Char(code));
        let page = drawn(&app, (200, 30), Theme::new(true, true)).join("");
        assert!(!page.contains(steers), "{page:?}");
        assert!(page.contains("\\u{1b}"), "it is shown escaped");
        key(&mut app, KeyCode::Esc);
    }
}

#[test]
fn filter_search_sort_and_tree_arrange_the_table() {
    let mut child = process(3, "/usr/bin/worker");
    child.parent = 9;
    let mut app = app(vec![child, process(7, "/usr/bin/python3"), process(9, "/usr/sbin/nginx")]);
    let pids = |app: &App| {
        let look = app.look.as_ref().unwrap();
        app.lines.iter().map(|line| (look.processes[line.process].pid, line.depth)).collect::<Vec<_>>()
    };
    key(&mut app, KeyCode::Char('t'));
    assert_eq!(pids(&app), [(7, 0), (9, 0), (3, 1)]);
    key(&mut app, KeyCode::Char('t'));
    key(&mut app, KeyCode::Char('r'));
    assert_eq!(pids(&app), [(9, 0), (7, 0), (3, 0)]);
    key(&mut app, KeyCode::Char('/'));
    typed(&mut app, "WORKER");
    key(&mut app, KeyCode::Enter);
    assert_eq!(app.process().unwrap().pid, 3);
    key(&mut app, KeyCode::Char('f'));
    typed(&mut app, "pyth");
    assert_eq!(pids(&app), [(7, 0)]);
    key(&mut app, KeyCode::Enter);
    key(&mut app, KeyCode::Esc);
    assert_eq!(pids(&app).len(), 3);
    let before = app.process().unwrap().pid;
    app.take(look(vec![process(1, "/new"), process(7, "/usr/bin/python3"), process(9, "/usr/sbin/nginx")]));
    assert_eq!(app.process().unwrap().pid, before, "the selection stays on its process");
}

#[test]
fn keys_have_imas_do_what_they_say() {
    let mut service = process(9, "/usr/sbin/nginx");
    service.unit = Some(ServiceUnit::of_system("nginx.service"));
    let mut app = app(vec![service]);
    app.places.store = Some("/s.db".into());
    let text =
        |app: &mut App| std::mem::take(&mut app.calls).iter().map(|call| call.text()).collect::<Vec<_>>();
    key(&mut app, KeyCode::Char('e'));
    assert_eq!(text(&mut app), ["imas --store /s.db explain --pid 9", "imas --store /s.db explain 9"]);
    key(&mut app, KeyCode::Char('p'));
    typed(&mut app, "mimalloc");
    key(&mut app, KeyCode::Enter);
    assert_eq!(text(&mut app), ["imas --store /s.db pin -- 9 mimalloc"]);
    key(&mut app, KeyCode::Char('x'));
    assert_eq!(text(&mut app), ["imas --store /s.db exclude add -- /usr/sbin/nginx"]);
    key(&mut app, KeyCode::Char('F'));
    assert!(app.calls.is_empty() && matches!(app.mode, Mode::Confirm { .. }), "it asks");
    key(&mut app, KeyCode::Char('n'));
    assert!(app.calls.is_empty());
    key(&mut app, KeyCode::Char('a'));
    typed(&mut app, "jemalloc");
    key(&mut app, KeyCode::Enter);
    assert!(app.calls.is_empty(), "it asks");
    key(&mut app, KeyCode::Char('y'));
    let apply = "imas --store /s.db apply nginx.service --candidate jemalloc --write";
    assert_eq!(text(&mut app), [apply]);
}

#[test]
fn a_candidate_is_for_the_process_it_was_typed_for() {
    for what in ['p', 'a'] {
        let mut both = [process(7, "/usr/bin/python3"), process(9, "/usr/sbin/nginx")];
        both.iter_mut().for_each(|one| one.unit = Some(ServiceUnit::of_system("some.service")));
        let mut app = app(both.to_vec());
        key(&mut app, KeyCode::Char(what));
        typed(&mut app, "mimalloc");
        app.take(look(both[1..].to_vec()));
        key(&mut app, KeyCode::Enter);
        let is_nothing = app.calls.is_empty() && app.mode == Mode::Table;
        assert!(is_nothing && app.message.contains("nothing was done"), "{what}: {}", app.message);
    }
}

#[test]
fn the_curve_is_drawn_with_and_without_parts() {
    let mut app = app(vec![process(9, "/usr/sbin/nginx")]);
    for second in 1..5 {
        let mut next = look(vec![process(9, "/usr/sbin/nginx")]);
        next.at_unix_s += Duration::from_secs(second).as_secs_f64();
        app.take(next);
    }
    let braille =
        |page: Vec<String>| page.concat().contains(|c: char| ('\u{2801}'..='\u{28ff}').contains(&c));
    assert!(braille(drawn(&app, (80, 24), plain())));
    assert!(!braille(drawn(&app, (80, 24), Theme::new(true, false))), "not without UTF-8");
    let point = MemoryPoint {
        at_unix_s: 1.7e9,
        resident: 100 << 20,
        in_use: Some(60 << 20),
        free_blocks: Some(20 << 20),
        free_pages: Some(10 << 20),
        heap: 0,
        other: 10 << 20,
    };
    let selected = app.process().cloned().unwrap();
    app.history.add_parts(&selected, point);
    let page = drawn(&app, (120, 30), plain()).join("\n");
    assert!(page.contains("in use 60M, free blocks 20M, free pages 10M"), "{page}");
}
