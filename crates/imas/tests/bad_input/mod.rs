// SPDX-License-Identifier: Apache-2.0
//! Faults of IMAS, its files or its environment. The message must be clear and have a hint, and the program must start. Here
//! are entries that a user may add to the catalogue: a rejected entry is reported with file and line.

mod installation;
mod store;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{
    World, assert_hinted, assert_printed, assert_refused, build, candidate, describe, lib_dir, list, output,
    real, stderr, stdout, succeeded, text,
};

/// The program started as if IMAS did not exist, and a message gave the reason.
pub(crate) fn assert_started_untouched(output: &Output, says: &str) {
    assert_printed(output, 0, "libc\n");
    let text = stderr(output);
    assert!(
        text.lines().any(|line| line.starts_with("imas: ") && line.contains(says)),
        "{}",
        describe(output)
    );
}

/// A program that prints which allocator serves it.
pub(crate) fn who(world: &World) -> PathBuf {
    build::program("who", &world.work())
}

#[test]
fn unknown_words_are_refused() {
    let world = World::new();
    for words in
        [&["frobnicate"][..], &["show", "--frobnicate"], &["bench", "-n", "0", "--", "true"], &["bench"], &[]]
    {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(
            stderr(&output).contains("--help") || stderr(&output).contains("Usage"),
            "{words:?}: {}",
            describe(&output)
        );
    }
    for (words, says) in [
        (&["pin", "true", "nonsense"][..], "nonsense: no such candidate"),
        (&["bench", "--with", "hoard,nonsense", "--", "true"], "nonsense: no such candidate"),
        (&["bench", "--with", "", "--", "true"], "'': no such candidate"),
        (&["pin", "true", "cpython:lean"], "cpython:lean: no longer a candidate"),
        (&["bench", "--with", "php:mimalloc", "--", "true"], "php:mimalloc: no longer a candidate"),
        (&["show", "true"], "nothing is known"),
        (&["explain", "4194305"], "process 4194305 does not exist"),
        (&["show", "no-such-program"], "no-such-program: not found"),
        (&["pin", "no-such-program", "hoard"], "no-such-program: not found"),
        (&["bench", "--input", "/no/such/file", "--", "cat"], "/no/such/file"),
        (&["bench", "-n", "1", "--export-json", "/no/such/r.json", "--", "true"], "/no/such/r.json"),
        (&["report", "--html", "/no/such/page.html"], "nothing to report"),
        (&["report", "--html", "/no/such/page.html", "--data", "/no/such/runs.jsonl"], "/no/such/runs.jsonl"),
        (&["report", "--html", "/no/such/page.html", "no-such-program"], "no-such-program: not found"),
        (&["bundle", "glibc:lean", "--out", "/etc/passwd"], "/etc/passwd"),
        (&["bench", "--ready", "tcp:99999", "--load", "true", "--", "true"], "tcp:99999"),
    ] {
        assert_refused(&output(&mut world.imas(words)), says);
    }
}

#[test]
fn a_verb_without_words_names_all_that_it_takes() {
    let world = World::new();
    for (verb, takes) in [
        ("env", "<PROGRAM|--candidate <NAME>>"),
        ("explain", "<PID|PROGRAM|--pid <PID>>"),
        ("forget", "<PROGRAM|--all>"),
        ("apply", "<UNIT|--auto>"),
        ("unapply", "<UNIT|--all>"),
    ] {
        let output = output(&mut world.imas([verb]));
        assert_eq!(output.status.code(), Some(2), "{verb}: {}", describe(&output));
        assert!(stderr(&output).contains(takes), "{verb}: {}", describe(&output));
        assert!(!stderr(&output).contains("--store"), "not typed: {}", describe(&output));
    }
}

/// The world's store is named by IMAS_STORE.
#[test]
fn an_option_wins_over_a_variable() {
    let world = World::new();
    let of_the_system = output(&mut world.imas(["show", "--system"]));
    assert!(!stderr(&of_the_system).contains("--store"), "{}", describe(&of_the_system));
    for words in [["show", "--system", "--store", "x"], ["--system", "show", "--store", "x"]] {
        let both = output(&mut world.imas(words));
        assert_eq!(both.status.code(), Some(2), "{}", describe(&both));
        assert!(stderr(&both).contains("cannot be used with"), "{}", describe(&both));
    }
    let help = output(&mut world.imas(["show", "--help"]));
    assert!(stdout(&help).contains("IMAS_STORE"), "{}", describe(&help));
}

/// A script that ran as `sh look.sh` is found as `look.sh`, although it is neither in PATH nor executable.
#[test]
fn a_script_of_this_folder_is_found_by_its_bare_name() {
    let world = World::new();
    std::fs::write(world.work().join("look.sh"), ":\n").unwrap();
    succeeded(output(world.imas(["run", "--", "sh", "look.sh"]).current_dir(world.work())));
    let shown = output(world.imas(["explain", "look.sh"]).current_dir(world.work()));
    assert!(shown.status.success() && stdout(&shown).contains("/look.sh"), "{}", describe(&shown));
}

#[test]
fn numbers_out_of_range_are_usage_errors() {
    let world = World::new();
    for number in ["-1", "nan", "inf", "1e300", "x"] {
        let bench = output(world.imas(["bench"]).arg(format!("--timeout={number}")).args(["--", "true"]));
        assert_eq!(bench.status.code(), Some(2), "--timeout={number}: {}", describe(&bench));
    }
    for number in ["-1", "nan", "x"] {
        let run = output(world.imas(["run"]).arg(format!("--retest={number}")).args(["--", "true"]));
        assert_eq!(run.status.code(), Some(125), "--retest={number}: {}", describe(&run));
    }
    for words in [&["bench", "--seed", "x", "--", "true"][..], &["explain", "--pid", "x"]] {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(stderr(&output).contains("a whole number is expected"), "{words:?}: {}", describe(&output));
        assert!(!stderr(&output).contains("digit found"), "{words:?}: {}", describe(&output));
    }
}

/// An unknown candidate must not keep the program from starting.
#[test]
fn an_unknown_candidate_does_not_stop_the_program() {
    let world = World::new();
    let output = output(world.imas(["run", "--candidate", "nonsense", "--"]).arg(who(&world)));
    assert_started_untouched(&output, "nonsense: no such candidate");
    assert_hinted(&output, "nonsense");
}

#[test]
fn bytes_that_are_no_text_pass_through() {
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\xfe a\nb");
    let folder = world.work().join(OsStr::from_bytes(b"folder \xff"));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("cat it");
    crate::support::install(&real("printf"), &program);
    world.configure("max_tests = 1\nretest_s = 0");
    for _ in 0..8 {
        let output = output(world.imas(["run", "--"]).arg(&program).arg("%s|").arg(odd).env("ODD", odd));
        assert_eq!(output.stdout, [odd.as_bytes(), b"|"].concat(), "{}", describe(&output));
        assert!(output.status.success());
    }
    world.check(["show"]).success();
}

const WHOLE_KIT: [&str; 7] = ["sizes", "realloc", "aligned", "tuning", "forks", "newborns", "threads"];

/// Writes a catalogue with one entry, which begins on line 2.
fn add(world: &World, entry: &str) {
    world.add_catalogue("mine.toml", &format!("schema = 1\n[[candidate]]\nname = \"mine\"\n{entry}\n"));
}

/// The output of `imas list` for the entry: all of standard error, and the row, if there is one.
fn listed(world: &World, entry: &str) -> (String, Option<serde_json::Value>) {
    add(world, entry);
    let listed = succeeded(output(&mut world.imas(["list", "--json"])));
    let listing: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let row = list(&listing, "/candidates").iter().find(|row| row["name"] == "mine").cloned();
    assert_eq!(
        candidate(&listing, "mimalloc")["available"],
        true,
        "the valid entries must be used: {listing:#}"
    );
    (stderr(&listed), row)
}

/// Takes the distribution's libraries out of the catalogue: the kit runs under the library of the test alone.
fn leave_out_the_distribution(world: &World) {
    let file = world.lib_dir().join("catalogue.toml");
    let built = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> =
        built.split("[[candidate]]").filter(|entry| !entry.contains("name = \"distro-")).collect();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, kept.join("[[candidate]]")).unwrap();
}

fn library(path: &Path) -> String {
    format!("library = \"{}\"", path.display())
}

/// A library of the distribution; `make setup-test` installs it.
fn installed(soname: &str) -> PathBuf {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.map(|folder| Path::new(folder).join(soname)).into_iter().find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{soname} is missing: run 'make setup-test'"))
}

#[test]
fn each_fault_of_an_entry_is_reported_with_its_place() {
    let world = World::new();
    let foreign = world.work().join("libforeign.so");
    let mut bytes = std::fs::read(lib_dir().join("libimas.so")).unwrap();
    bytes[18] = 183; // EM_AARCH64
    if cfg!(target_arch = "aarch64") {
        bytes[18] = 62; // EM_X86_64
    }
    std::fs::write(&foreign, &bytes).unwrap();
    let words = world.work().join("libwords.so");
    std::fs::write(&words, "not a library").unwrap();
    let cases = [
        (library(Path::new("/no/such/libx.so")), "its library /no/such/libx.so is missing"),
        (library(&foreign), "built for another architecture"),
        (library(&words), "not a readable ELF file"),
        ("libary = \"/x.so\"".into(), "unknown field `libary`"),
        ("library = \"libx.so\"".into(), "relative path"),
        ("environment = { LD_AUDIT = \"x\" }".into(), "its environment may not set LD_AUDIT"),
        ("environment = { \"A=B\" = \"x\" }".into(), "'A=B' cannot be set"),
        ("withheld = \"too slow for us\"".into(), "withheld: too slow for us"),
    ];
    for (entry, says) in cases {
        let (printed, row) = listed(&world, &entry);
        let line = printed
            .lines()
            .find(|line| line.starts_with("imas: warning: catalogue: ") && line.contains(says));
        let line = line.unwrap_or_else(|| panic!("{entry}: {printed}"));
        assert!(line.contains("mine.toml:2: "), "{entry}: {line}");
        assert!(row.is_none_or(|row| row["available"] == false), "{entry}");
    }
    world.add_catalogue(
        "mine.toml",
        "schema = 1\n[[candidate]]\nname = \"two\"\n[[candidate]]\nname = \"two\"\n[[candidate]]\nname = \"hoard\"\n",
    );
    let printed = stderr(&output(&mut world.imas(["list"])));
    assert!(printed.contains("mine.toml:4: candidate 'two' is defined already: "), "{printed}");
    assert!(printed.contains("mine.toml:2\n"), "the first definition must be named: {printed}");
    assert!(printed.contains("mine.toml:6: candidate 'hoard' is defined already: "), "{printed}");
}

/// Without glue, jemalloc aligns blocks of 8 bytes to 8. Programs that were compiled for an alignment of 16
/// can fail.
#[test]
fn a_library_that_breaks_the_contract_is_withheld() {
    let world = World::new();
    world.has_kit(&["sizes"]);
    leave_out_the_distribution(&world);
    let (printed, row) = listed(&world, &library(&installed("libjemalloc.so.2")));
    let row = row.unwrap();
    assert_eq!(row["available"], false, "{row:#}");
    let reason = text(&row, "/reason");
    assert!(reason.starts_with("withheld: it breaks malloc's contract: sizes: "), "{reason}");
    assert!(printed.contains("mine.toml:2: candidate 'mine': withheld"), "{printed}");
    let forced = output(world.imas(["run", "--candidate", "mine", "--"]).arg(who(&world)));
    assert_eq!(
        stdout(&forced),
        "libc\n",
        "the program is started untouched: {}",
        crate::support::describe(&forced)
    );
}

/// For Debian's own library, the message describes what it breaks. A user who accepts these facts can use it.
#[test]
fn a_broken_rule_of_a_library_can_be_accepted() {
    let world = World::new();
    world.has_kit(&["sizes"]);
    leave_out_the_distribution(&world);
    let of_debian = library(&installed("libjemalloc.so.2"));
    let (printed, _) = listed(&world, &of_debian);
    assert!(
        printed.contains("malloc-0-aligned: malloc(0) gives a block that is not aligned to 16 bytes"),
        "{printed}"
    );
    let accept = printed.split("put ").nth(1).and_then(|rest| rest.split(" into its entry").next()).unwrap();
    assert!(accept.starts_with("accept = [") && accept.contains("\"malloc-0-aligned\""), "{printed}");
    let (printed, row) = listed(&world, &format!("{of_debian}\n{accept}"));
    assert_eq!(row.unwrap()["available"], true, "{printed}");
    assert!(
        printed.contains("mine is used although it may break malloc's contract: malloc-0-aligned: "),
        "{printed}"
    );
    let ran = output(&mut world.imas(["run", "--candidate", "mine", "--", "cat", "/proc/self/maps"]));
    assert!(stdout(&ran).contains("/libjemalloc.so.2"), "{}", crate::support::describe(&ran));
    let (printed, row) = listed(&world, &format!("{of_debian}\naccept = [\"free-null\"]"));
    assert_eq!(row.unwrap()["available"], false, "another fact must not help: {printed}");
}

#[test]
fn a_library_that_keeps_the_contract_is_offered() {
    let world = World::new();
    world.has_kit(&WHOLE_KIT);
    leave_out_the_distribution(&world);
    let copy = world.work().join("libmine.so");
    std::fs::copy(lib_dir().join("allocators/libmimalloc.so"), &copy).unwrap();
    let (printed, row) = listed(&world, &library(&copy));
    assert_eq!((printed.as_str(), row.unwrap()["available"].as_bool()), ("", Some(true)));
}

/// A library that fails conformance: here it crashes at once.
#[test]
fn a_library_that_crashes_is_withheld() {
    let world = World::new();
    let source = world.work().join("x.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\nvoid *__libc_malloc(size_t);\nvoid *malloc(size_t n) { return __libc_malloc(n); }\n\
         void *memalign(size_t a, size_t n) { (void)a; (void)n; abort(); }\n",
    )
    .unwrap();
    let made = world.work().join("libcrash.so");
    succeeded(output(world.command("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(&source)));
    let (_, row) = listed(&world, &library(&made));
    let row = row.unwrap();
    assert!(text(&row, "/reason").contains("contract: "), "{row:#}");
    assert!(text(&row, "/reason").contains("signal: 6"), "{row:#}");
}

#[test]
fn a_library_that_fails_the_conformance_kit_is_not_offered_until_it_passes() {
    let world = World::new();
    let lib = world.work().join("lib");
    std::fs::create_dir_all(lib.join("allocators")).unwrap();
    for file in [
        "libimas.so",
        "libimas-guard.so",
        "catalogue.toml",
        "allocators/libhoard.so",
        "allocators/libmimalloc.so",
    ] {
        std::fs::copy(lib_dir().join(file), lib.join(file)).unwrap();
    }
    let note = lib.join("allocators/libmimalloc.so.withheld");
    std::fs::write(&note, "mimalloc:keep\tforks (trial): child-works: status 0xb\n").unwrap();
    let rows = || {
        let listed = output(world.imas(["list", "--json"]).env("IMAS_LIB_DIR", &lib));
        serde_json::from_slice::<serde_json::Value>(&listed.stdout).unwrap()
    };
    let listing = rows();
    assert_eq!(candidate(&listing, "mimalloc")["available"], true);
    let keep = candidate(&listing, "mimalloc:keep");
    assert_eq!(
        text(keep, "/reason"),
        "withheld: it failed conformance: forks (trial): child-works: status 0xb"
    );
    std::fs::remove_file(&note).unwrap();
    assert_eq!(candidate(&rows(), "mimalloc:keep")["available"], true);
}

/// The distribution's libraries with their glue. They are offered where they are installed and keep the
/// contract, and each is identified by its build.
#[test]
fn a_library_of_the_distribution_is_a_candidate() {
    let world = World::new();
    world.has_kit(&WHOLE_KIT);
    let listing = world.json(["list", "--json"]);
    world.has_kit(&[]);
    for (name, soname) in [
        ("distro-jemalloc", "libjemalloc.so.2"),
        ("distro-tcmalloc", "libtcmalloc_minimal.so.4"),
        ("distro-tbb", "libtbbmalloc.so.2"),
    ] {
        let real = installed(soname);
        let row = candidate(&listing, name);
        assert_eq!(row["available"], true, "{row:#}");
        assert!(text(row, "/version").contains("build "), "{row:#}");
        // The library must serve the program, not only be mapped. A trial of it must count.
        let started = output(world.imas(["run", "--candidate", name, "--"]).arg(who(&world)));
        assert_eq!(stdout(&started), format!("{name} installed\n"), "{}", describe(&started));
        let maps = output(
            world.imas(["run", "--candidate", name, "--", "cat", "/proc/self/maps"]).env("LC_ALL", "C"),
        );
        let file = std::fs::canonicalize(&real).unwrap();
        assert!(stdout(&maps).contains(&*file.to_string_lossy()), "{name}: {}", describe(&maps));
    }
    let program = build::program("who", &world.work());
    world.configure("candidates = [\"distro-jemalloc\"]\nmax_tests = 1\nretest_s = 0");
    let served: Vec<_> = (0..3).map(|_| stdout(&world.start([&program]))).collect();
    assert!(served.contains(&"distro-jemalloc installed\n".to_owned()), "{served:?}");
    let trials = world.trials();
    let trial = trials.iter().find(|trial| trial.sample.candidate == "distro-jemalloc").unwrap();
    assert!(trial.allocator_version.starts_with("build "), "{trial:?}");
    let shown = world.json(["show", &program.to_string_lossy(), "--json"]);
    let row = list(&shown, "/candidates").iter().find(|row| row["name"] == "distro-jemalloc").unwrap();
    // The program makes so few calls that often none is timed. Then the trial is listed as left out for that
    // reason.
    let untimed = row["left_out"].as_array().unwrap().iter().filter(|left| left["why"] == "nothing-timed");
    assert_eq!(row["summary"]["count"].as_u64().unwrap() + untimed.count() as u64, 1, "{shown:#}");
}

/// The kit takes seconds of CPU. It runs when the library is first used, and again when the library has changed.
#[test]
fn the_kit_runs_once_for_a_library() {
    let world = World::new();
    let (runs, program) = (world.work().join("runs"), world.lib_dir().join("contract/sizes"));
    std::fs::remove_file(&program).unwrap();
    let script = world.work().join("kit");
    std::fs::write(&script, format!("#!/bin/sh\necho run >>{}\n", runs.display())).unwrap();
    crate::support::install(&script, &program);
    for _ in 0..3 {
        succeeded(output(&mut world.imas(["run", "--candidate", "distro-jemalloc", "--", "true"])));
    }
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
}
