// SPDX-License-Identifier: Apache-2.0
//! The whole program in a real pseudo terminal: keys, another size, signals, and a terminal that goes away.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use imas_testing::deadline;
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

const SIZE: PtySize = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
/// The sequence that gives the terminal's own screen back.
const RESTORED: &str = "\u{1b}[?1049l";
const DEADLINE_S: u64 = 60;

/// `imas-top` in a terminal of its own.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    output: Arc<Mutex<Vec<u8>>>,
    /// The thread that reads ends after the next output.
    is_closed: Arc<AtomicBool>,
    _home: tempfile::TempDir,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let pair = native_pty_system().openpty(SIZE).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_imas-top"));
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        command.env("PATH", "/usr/bin:/bin");
        command.env("HOME", home.path());
        command.args(["--lib-dir", lib_dir().to_str().unwrap(), "--interval", "0.2"]);
        command.args(arguments);
        let child = pair.slave.spawn_command(command).unwrap();
        let output = Arc::new(Mutex::new(vec![]));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let to = Arc::clone(&output);
        let is_closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_closed);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                to.lock().unwrap().extend(&bytes[..count]);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self { master: pair.master, keys, child, output, is_closed, _home: home }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Text on the screen.
    fn screen(&self, rows: u16, cols: u16) -> String {
        let [rows, cols] = [rows, cols].map(|size| NonZero::new(size).unwrap());
        let mut parser = vt100::Parser::new(rows, cols, 0);
        parser.process(&self.output.lock().unwrap());
        parser.screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn shows(&self, wanted: &str) {
        wait(
            || self.screen(24, 80).contains(wanted).then_some(()),
            || format!("{wanted}:\n{}", self.screen(24, 80)),
        );
    }

    fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < deadline(DEADLINE_S), "it has not ended:\n{}", self.screen(24, 80));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_restored(&self) {
        wait(|| self.text().contains(RESTORED).then_some(()), || format!("{:?}", self.text()));
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.process_id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

fn wait<T>(mut found: impl FnMut() -> Option<T>, why: impl Fn() -> String) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < deadline(DEADLINE_S), "{}", why());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lib_dir() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/lib/imas");
    assert!(folder.join("catalogue.toml").is_file(), "run 'make build'");
    std::fs::canonicalize(folder).unwrap()
}

#[test]
fn keys_do_what_they_say_and_q_gives_the_terminal_back() {
    let mut terminal = Terminal::start(&[]);
    terminal.shows("prefers:");
    terminal.press("?");
    terminal.shows("children below their parents");
    terminal.press("\u{1b}");
    terminal.shows("ALLOCATOR");
    terminal.press("fimas-top\r");
    // The helper that reads processes may be listed beside the program: the filter's own line says what is shown.
    terminal.shows("filter [imas-top]");
    terminal.press("jkst ");
    terminal.shows("stopped");
    terminal.press(" q");
    assert!(terminal.ended().success());
    terminal.is_restored();
}

#[test]
fn another_size_is_drawn_at_once() {
    let mut terminal = Terminal::start(&["--filter", "imas-top"]);
    terminal.shows("prefers:");
    terminal.master.resize(PtySize { rows: 40, cols: 160, ..SIZE }).unwrap();
    wait(|| terminal.screen(40, 160).contains("SERVICE").then_some(()), || terminal.screen(40, 160));
    terminal.press("q");
    assert!(terminal.ended().success());
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut terminal = Terminal::start(&[]);
        terminal.shows("prefers:");
        terminal.signal(signal);
        assert!(terminal.ended().success(), "{signal}");
        terminal.is_restored();
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let mut terminal = Terminal::start(&[]);
    terminal.shows("prefers:");
    terminal.is_closed.store(true, Ordering::Relaxed);
    // Every copy of the other side is closed: here, and by the thread, for which the page draws its clock.
    terminal.keys = Box::new(std::io::sink());
    terminal.master = native_pty_system().openpty(SIZE).unwrap().master;
    terminal.ended();
}

#[test]
fn without_a_terminal_the_error_names_once() {
    let run = |stdin: Stdio, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imas-top"));
        command.args(["--lib-dir", lib_dir().to_str().unwrap()]).args(arguments);
        command.env("HOME", "/nonexistent").env_remove("XDG_DATA_HOME").env("TERM", "xterm");
        let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (child.id(), child.wait_with_output().unwrap())
    };
    let (_, output) = run(Stdio::null(), &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("no terminal") && text.contains("imas top --once"), "{text}");
    let (pid, output) = run(Stdio::null(), &["--once", "--json", "--filter", "imas-top"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let look: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Other tests have one, too.
    let all = look["processes"].as_array().unwrap();
    let own = all.iter().find(|process| process["pid"] == pid).unwrap();
    assert_eq!((own["allocator"].as_str(), own["injected"].as_str()), (Some("glibc"), Some("nothing")));
    assert!(own["resident_bytes"].as_u64().unwrap() > 1 << 20, "{own}");
}
