// SPDX-License-Identifier: Apache-2.0
//! A program that is started by `imas run` finds what it would find without: its environment
//! entry by entry, its signals, a start under tight limits, and the malloc that its user preloads.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_testing::{Running, end_piped, start_piped};

use crate::support::build::{self, program};
use crate::support::{
    INGEST, World, assert_nobody_known, assert_printed, built, describe, json, list, not_ours, output,
    printed, real, stderr, stdout, succeeded, text, wait_until, write_script,
};
use imas_store::Store;

fn imas() -> String {
    built("imas").display().to_string()
}

fn compile_source(world: &World, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let file = world.work().join(name);
    succeeded(output(Command::new("cc").args(flags).arg("-o").arg(&file).arg(source)));
    file
}

fn script(world: &World, name: &str, text: &str) -> PathBuf {
    let file = world.work().join(name);
    write_script(&file, text);
    file
}

#[test]
fn the_environment_is_as_it_was() {
    let world = World::new();
    let show = program("start_environment", &world.work()).display().to_string();
    let imas = imas();
    let started = |words: &[&str]| printed(&output(world.command(&show).args(words).arg(&show)));
    let untouched = started(&[]);
    assert!(untouched.ends_with("\nno_equals_sign\nALPHA=2\nMODE=second\n=nameless\n\n"), "{untouched}");
    for how in [
        &["run", "--candidate", "system", "--"][..],
        &["run", "--candidate", "mimalloc", "--"],
        &["run", "--candidate", "glibc:arena1", "--"],
        &["run", "--"],
        &["run", "--", "/usr/bin/nice", "-n", "0"],
    ] {
        let words: Vec<&str> = std::iter::once(imas.as_str()).chain(how.iter().copied()).collect();
        let under = started(&words);
        assert_eq!(under, untouched, "{how:?}");
    }
}

#[test]
fn the_environment_of_a_measured_program_is_as_it_was() {
    let world = World::new();
    let show = program("start_environment", &world.work()).display().to_string();
    let (imas, file) = (imas(), world.work().join("environment"));
    let file = file.display().to_string();
    let entries = |words: &[&str]| {
        succeeded(output(world.command(&show).args(words).args([&show, "-o", &file])));
        std::fs::read_to_string(&file).unwrap()
    };
    let untouched = entries(&[]);
    assert!(untouched.ends_with("\nno_equals_sign\nALPHA=2\nMODE=second\n=nameless\n\n"), "{untouched}");
    for candidate in ["system", "mimalloc"] {
        let words =
            [&imas, "bench", "--runs", "1", "--warmup", "0", "--with", candidate, "--"].map(|word| word);
        // Children of a measured program are on its candidate too.
        assert_eq!(not_ours(&entries(&words)), not_ours(&untouched), "{candidate}");
    }
}

#[test]
fn a_program_starts_under_a_limit_for_the_size_of_files() {
    for limit in [0, 4096, 65536, 262_144] {
        for how in ["run --", "run --candidate mimalloc --"] {
            let world = World::new();
            let text = format!("exec prlimit --fsize={limit} {} {how} /bin/echo hello", imas());
            let started = output(world.command("/bin/sh").args(["-c", &text]));
            assert_eq!(stdout(&started), "hello\n", "{limit} {how}: {}", describe(&started));
            assert!(started.status.success(), "{limit} {how}: {}", describe(&started));
        }
    }
}

#[test]
fn the_signal_of_that_limit_still_kills_the_program() {
    let world = World::new();
    let write = "exec dd if=/dev/zero of=file bs=1M count=1 2>&1";
    let text = format!("exec prlimit --fsize=1000 {} run --candidate mimalloc -- sh -c '{write}'", imas());
    let started = output(world.command("/bin/sh").args(["-c", &text]));
    let untouched =
        output(world.command("/bin/sh").args(["-c", &format!("exec prlimit --fsize=1000 sh -c '{write}'")]));
    assert_eq!(started.status, untouched.status, "{}", describe(&started));
}

#[test]
fn streams_that_are_closed_stay_closed() {
    let world = World::new();
    let imas = imas();
    for stream in 0..3 {
        let status = |how: &str| {
            let text = format!("exec {how} /usr/bin/test -e /proc/self/fd/{stream} {stream}>&-");
            output(world.command("/bin/sh").args(["-c", &text])).status.code()
        };
        assert_eq!(status(""), Some(1), "{stream}");
        for how in ["run --", "run --candidate mimalloc --", "run -- nice -n 0"] {
            assert_eq!(status(&format!("{imas} {how}")), Some(1), "{stream}: {how}");
        }
    }
}

/// The longest last argument with which the command starts.
fn longest(start: impl Fn(usize) -> bool) -> usize {
    let (mut fits, mut too_long) = (0, 130_000);
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if start(middle) { fits = middle } else { too_long = middle }
    }
    fits
}

#[test]
fn arguments_that_just_fit_start_the_program_untouched() {
    let world = World::new();
    let long = "x".repeat(100_000);
    let start = |before: &[&str], last: usize| {
        let mut command = Command::new(imas());
        command.env_clear().env("PATH", crate::support::PATH).env("HOME", world.work());
        command.env("IMAS_LIB_DIR", crate::support::lib_dir()).env("IMAS_STORE", world.store_path());
        command.args(before).arg("/bin/true").args(std::iter::repeat_n(&long, 20)).arg("y".repeat(last));
        command.output()
    };
    let plain = ["run", "--candidate", "system", "--"];
    let most = longest(|last| start(&plain, last).is_ok_and(|made| made.status.success()));
    for how in [
        &["run", "--candidate", "mimalloc", "--"][..],
        &["run", "--follow", "--candidate", "mimalloc", "--"],
        &["run", "--"],
    ] {
        let room = plain.iter().map(|word| word.len() + 9).sum::<usize>();
        let used = how.iter().map(|word| word.len() + 9).sum::<usize>();
        for less in [20, 120, 200] {
            let made = start(how, most + room - used - less).unwrap();
            assert!(made.status.success(), "{less} bytes less, {how:?}: {}", describe(&made));
        }
    }
}

#[test]
fn scripts_that_the_kernel_does_not_take_end_as_env_ends_them() {
    let world = World::new();
    let long = script(&world, "long", &format!("#!/{}\necho by sh\n", "x".repeat(300)));
    let plain = script(&world, "plain", "echo by sh\nexit 3\n");
    let empty = script(&world, "empty", "");
    let lost = script(&world, "lost", "#!/no/such/interpreter\necho never\n");
    for file in [long, plain, empty, lost] {
        let by_env = output(world.command("/usr/bin/env").arg(&file));
        for how in [&["run", "--"][..], &["run", "--candidate", "mimalloc", "--"]] {
            let by_imas = output(world.imas(how).arg(&file));
            let is = (by_imas.status.code(), stdout(&by_imas));
            assert_eq!(is, (by_env.status.code(), stdout(&by_env)), "{how:?} {}", describe(&by_imas));
        }
    }
}

const CHECKER: &str = r#"
#include <stddef.h>
#include <unistd.h>
extern void *__libc_malloc(size_t);
void *malloc(size_t size) {
    static int once;
    if (once++ == 0)
        write(2, "checker\n", 8);
    return __libc_malloc(size);
}
"#;

#[test]
fn a_malloc_that_the_user_preloads_is_left_alone() {
    let world = World::new();
    let source = world.work().join("checker.c");
    std::fs::write(&source, CHECKER).unwrap();
    let checker = compile_source(&world, "checker.so", &source, &["-shared", "-fPIC"]);
    let preload = format!("LD_PRELOAD={}", checker.display());
    for how in [&["run", "--"][..], &["run", "--"], &["run", "--candidate", "mimalloc", "--"]] {
        let made = output(world.imas(how).args(["env", &preload, "/bin/ls", "/"]));
        let said = stderr(&made);
        assert!(made.status.success() && said.contains("checker\n"), "{how:?} {}", describe(&made));
        assert!(said.contains("checker.so in LD_PRELOAD defines malloc"), "{how:?} {said}");
    }
    for (name, value) in [("LD_PRELOAD", checker.display().to_string()), ("LD_AUDIT", "libaudit.so".into())] {
        let refused = output(world.imas(["bench", "--runs", "1", "--", "/bin/true"]).env(name, value));
        let said = stderr(&refused);
        assert!(said.contains("nothing can be compared"), "{said}");
        assert!(said.contains(&format!("env -u {name}")), "{said}");
    }
    let bench = output(world.imas(["bench", "--runs", "1", "--", "/bin/ls"]).env("LD_PRELOAD", &checker));
    let said = stderr(&bench);
    assert!(!bench.status.success() && said.contains("env -u LD_PRELOAD"), "{}", describe(&bench));
}

/// Notes each signal that a user may send, and ends at the first with 7.
const LISTENER: &str = r#"
$| = 1;
for my $name (qw(TERM HUP INT QUIT USR1 USR2 WINCH ALRM NUM40)) {
    $SIG{$name} = sub { print "got $name\n"; exit 7 };
}
print "ready\n";
sleep 1 for 1 .. 120;
print "nobody told me\n";
"#;

#[test]
fn a_signal_to_bench_reaches_the_program_that_runs() {
    let world = World::new();
    let perl = real("perl").display().to_string();
    let mut imas = world.imas("bench --show-output --runs 1 --warmup 0 --ignore-failure --".split(' '));
    imas.args([perl.as_str(), "-e", LISTENER]);
    let mut child = imas.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let mut got = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match line.unwrap().as_str() {
            "ready" => {
                assert!(Command::new("/bin/kill").args(["-s", "USR1", &pid]).status().unwrap().success())
            }
            "got USR1" => got += 1,
            _ => {}
        }
    }
    let status = child.wait().unwrap();
    assert!(got > 0 && status.code().is_some(), "{got} {status}");
}

/// Before a start, a helper of ours looks at the programs that run.
#[test]
fn a_program_begins_without_children() {
    let world = World::new();
    let perl = real("perl").display().to_string();
    let mut imas = world.imas(["run", "--retest", "0", "--", &perl, "-e", "$| = 1; print 'r'; <STDIN>"]);
    let running = start_piped(&mut imas);
    succeeded(world.start(["/usr/bin/sort", "/etc/services"])); // its page is to be stored
    let started = world.start([perl.as_str(), "-e", "print wait()"]);
    end_piped(running);
    assert_printed(&started, 0, "-1");
}

// Programs that are started by a link: one file may be several programs, and one program may have several names.

struct Links {
    world: World,
    folder: PathBuf,
}

impl Links {
    /// A program of that name, and links to it.
    fn new(file: &str, links: &[&str]) -> Self {
        let world = World::new();
        world.tests_six("");
        let folder = std::fs::canonicalize(world.work()).unwrap();
        build::program_with("cc", "who", &[], &folder.join(file));
        for link in links {
            std::os::unix::fs::symlink(file, folder.join(link)).unwrap();
        }
        Self { world, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start(&self, name: &str) {
        succeeded(self.world.start([self.path(name)]));
    }

    /// Programs that are known, by number: path and detail.
    fn known(&self) -> Vec<(String, String)> {
        let shown = self.world.json(["show", "--json"]);
        let file = |path: &str| Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
        let of =
            |program| (file(text(program, "/program/path")), text(program, "/program/detail").to_owned());
        list(&shown, "/programs").iter().map(of).collect()
    }

    /// The detail of the program that the words show.
    fn shown(&self, name: &str) -> String {
        let shown = self.world.json(["show", "--json", &self.path(name)]);
        text(&shown, "/program/detail").to_owned()
    }
}

#[test]
fn the_names_of_a_file_are_programs_of_their_own() {
    let links = Links::new("check-rdb", &["server", "sentinel"]);
    for name in ["server", "sentinel", "check-rdb", "server"] {
        links.start(name);
    }
    let of = |detail: &str| ("check-rdb".to_owned(), detail.to_owned());
    assert_eq!(links.known(), [of("as server"), of("as sentinel"), of("")]);
    assert_eq!(
        ["server", "sentinel", "check-rdb"].map(|name| links.shown(name)),
        ["as server", "as sentinel", ""]
    );
    succeeded(output(&mut links.world.imas(["pin", &links.path("server"), "jemalloc"])));
    let serves = |name: &str| crate::support::stdout(&links.world.start([links.path(name)]));
    assert!(serves("server").starts_with("jemalloc "));
    assert!(!links.world.json(["show", "--json", &links.path("sentinel")])["pinned"].is_string());
    links.world.check(["explain", &links.path("server")]).success();
    links.world.check(["forget", &links.path("server")]).success();
    assert_eq!(links.known(), [of("as sentinel"), of("")]);
}

#[test]
fn links_that_name_a_version_have_one_history() {
    let links = Links::new("tool2.11", &["tool", "tool2"]);
    for name in ["tool", "tool2", "tool2.11"] {
        links.start(name);
    }
    assert_eq!(links.known(), [("tool2.11".to_owned(), String::new())]);
    assert_eq!(links.world.trials().len(), 3);
}

#[test]
fn what_is_known_by_the_file_alone_is_found_by_a_name() {
    let links = Links::new("check-rdb", &["server"]);
    links.start("check-rdb");
    assert_eq!(links.shown("server"), "");
}

#[test]
fn a_program_and_a_script_with_a_newline_in_their_names_are_measured() {
    let links = Links::new("check\nrdb", &[]);
    links.start("check\nrdb");
    assert_eq!(links.known(), [("check\nrdb".to_owned(), String::new())]);
    assert_eq!(links.world.trials().len(), 1);
    let script = links.folder.join("a\nb.py");
    std::fs::write(&script, "#!/usr/bin/python3\npass\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    links.start("a\nb.py");
    assert_eq!(links.known()[1].1, script.to_str().unwrap());
    assert_eq!(links.world.trials().len(), 2);
    let shown = printed(&succeeded(output(&mut links.world.imas(["show"]))));
    assert!(shown.contains("a\\nb.py") && !shown.contains("a\nb.py"), "{shown}");
}

// Several stores of one user: a page belongs to the store that decided its start, and to no other.

/// `imas` as a user with that home folder has it: nothing names a store but the home.
fn at_home(world: &World, home: &str, words: &[&str]) -> Command {
    let folder = world.work().join(home);
    std::fs::create_dir_all(&folder).unwrap();
    let mut imas = world.imas(words);
    imas.env("HOME", folder).env_remove("IMAS_STORE").env_remove("XDG_DATA_HOME");
    imas
}

fn known_to(imas: &mut Command) -> Vec<String> {
    let shown = json(&output(imas));
    let programs = list(&shown, "/programs").iter();
    programs.map(|program| program["program"]["path"].as_str().unwrap().to_owned()).collect()
}

fn at_home_known(world: &World, home: &str) -> Vec<String> {
    known_to(&mut at_home(world, home, &["show", "--json"]))
}

/// Stores what has ended. Returns the number of trials that the home's store has then, and of pages that are left.
fn stored_at(world: &World, home: &str) -> (usize, usize) {
    assert_nobody_known(&output(&mut at_home(world, home, &INGEST)));
    let path = world.work().join(home).join(".local/share/imas/imas.db");
    let store = Store::open_read_only(&path).unwrap();
    let programs = store.programs().unwrap();
    let trials = programs.iter().map(|program| store.trials(program.id).unwrap().len()).sum();
    (trials, std::fs::read_dir(world.pages_of(&path)).into_iter().flatten().flatten().filter(is_page).count())
}

fn is_page(entry: &std::fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|end| end == "page")
}

fn start(world: &World, home: &str, program: &str) {
    succeeded(output(&mut at_home(world, home, &["run", "--retest", "0", "--", program])));
}

#[test]
fn two_homes_keep_their_pages_apart() {
    let world = World::new();
    world.tests_six("");
    let [one, other] = ["who", "plain"].map(|name| build::program(name, &world.work()).display().to_string());
    start(&world, "a", &one);
    start(&world, "b", &other);
    assert_eq!(at_home_known(&world, "a"), [one.as_str()]);
    assert_eq!(at_home_known(&world, "b"), [other.as_str()]);
    assert_eq!(stored_at(&world, "b"), (1, 0), "its own page alone");
    start(&world, "b", &other);
    assert_eq!(stored_at(&world, "a"), (1, 0), "nobody took it");
    assert_eq!(at_home_known(&world, "a"), [one.as_str()]);
}

#[test]
fn a_trial_that_still_runs_is_no_other_stores_business() {
    let world = World::new();
    world.tests_six("");
    let sleeper = real("sleep").display().to_string();
    let mut imas = at_home(&world, "a", &["run", "--", &sleeper, "600"]);
    let running = Running(imas.stdout(Stdio::null()).spawn().unwrap());
    wait_until("the page of the start", || stored_at(&world, "a") == (0, 1));
    assert_eq!(stored_at(&world, "b"), (0, 0));
    drop(running);
    assert_eq!(stored_at(&world, "b"), (0, 0), "it ended");
    assert_eq!(stored_at(&world, "a"), (1, 0));
}

#[test]
fn a_store_that_is_named_has_pages_of_its_own_however_it_is_named() {
    let world = World::new();
    world.tests_six("");
    let who = build::program("who", &world.work()).display().to_string();
    let data = world.work().join("data-a");
    let in_data = |words: &[&str]| {
        let mut imas = at_home(&world, "a", words);
        imas.env("XDG_DATA_HOME", &data);
        imas
    };
    assert!(output(&mut in_data(&["run", "--", &who])).status.success());
    assert!(at_home_known(&world, "a").is_empty(), "the store below XDG_DATA_HOME is another one");
    let store = data.join("imas/imas.db");
    let link = world.work().join("link");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    for named in [store, link.join("imas/imas.db")] {
        let named = named.display().to_string();
        assert_eq!(
            known_to(&mut at_home(&world, "b", &["show", "--json", "--store", &named])),
            [who.as_str()]
        );
    }
}
