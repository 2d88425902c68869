// SPDX-License-Identifier: Apache-2.0
//! Broken catalogues, settings and installations, and missing parts of the environment.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use imas_core::sample::Ended;

use super::{assert_started_untouched, who};
use crate::support::{
    World, assert_hinted, assert_printed, assert_refused, candidate, describe, lib_dir, list, output, stderr,
    stdout, succeeded, text, wait_until,
};

#[test]
fn a_broken_catalogue_entry_is_named_and_the_rest_is_used() {
    let world = World::new();
    world.add_catalogue("a.toml", "schema = 1\n[[candidate\n");
    world.add_catalogue("b.toml", "schema = 7\n");
    world.add_catalogue(
        "c.toml",
        "schema = 1\n[[candidate]]\nname = \"Bad Name\"\n[[candidate]]\nname = \"hoard\"\n\
         [[candidate]]\nname = \"typo\"\nlibary = \"x\"\n[[candidate]]\nname = \"sly\"\nenvironment = { LD_PRELOAD = \"x\" }\n\
         [[candidate]]\nname = \"gone\"\nlibrary = \"/no/such/libgone.so\"\n",
    );
    world.add_catalogue("ignored.txt", "not looked at");
    let listed = succeeded(output(&mut world.imas(["list", "--json"])));
    let listing: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let problems: Vec<_> = list(&listing, "/problems").iter().map(|p| p.as_str().unwrap()).collect();
    for (problem, place) in
        problems.iter().zip(["a.toml:2", "b.toml", "c.toml:2", "c.toml:4", "c.toml:6", "c.toml:9"])
    {
        assert!(problem.contains(place), "{place}: {problem}");
        assert!(
            stderr(&listed).contains(&format!("imas: warning: catalogue: {problem}")),
            "{}",
            describe(&listed)
        );
    }
    assert_eq!(problems.len(), 6, "{problems:?}");
    assert_eq!(candidate(&listing, "gone")["available"], false);
    assert!(text(candidate(&listing, "gone"), "/reason").contains("missing"));
    assert_eq!(candidate(&listing, "hoard")["available"], true);
    let started = output(world.imas(["run", "--candidate", "hoard", "--"]).arg(who(&world)));
    assert!(stdout(&started).starts_with("hoard "), "{}", describe(&started));
    let doctor = output(&mut world.imas(["doctor"]));
    assert_eq!(doctor.status.code(), Some(1), "{}", describe(&doctor));
    assert!(stdout(&doctor).contains("hint: correct or remove the entry"), "{}", describe(&doctor));
}

#[test]
fn a_candidate_without_its_library_is_never_used() {
    let world = World::new();
    let program = who(&world);
    world.add_library("gone", Path::new("/no/such/libgone.so"), "");
    world.configure("candidates = [\"gone\"]\nmax_tests = 1\nretest_s = 0");
    for _ in 0..4 {
        let started = world.start([&program]);
        assert_printed(&started, 0, "libc\n");
        assert_eq!(stderr(&started), "");
    }
    assert!(world.trials().iter().all(|trial| trial.sample.candidate == "system"));
    let forced = output(world.imas(["run", "--candidate", "gone", "--"]).arg(&program));
    assert_started_untouched(&forced, "gone: its library /no/such/libgone.so is missing");
    let pinned = output(world.imas(["pin"]).arg(&program).arg("gone"));
    assert_refused(&pinned, "gone cannot be used here");
}

#[test]
fn a_bad_configuration_is_named_and_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for setting in [
        "retests_s = 1",
        "max_tests = \"five\"",
        "[[[",
        "candidates = [1]",
        "retest_s = nan",
        "retest_s = -1",
    ] {
        world.configure(setting);
        let started = output(world.imas(["run", "--"]).arg(&program));
        assert_started_untouched(&started, "imas.toml");
        assert_hinted(&started, "imas.toml");
        let shown = output(&mut world.imas(["show"]));
        assert_eq!(shown.status.code(), Some(2), "{setting}: {}", describe(&shown));
        assert!(stderr(&shown).contains("imas.toml"), "{setting}: {}", describe(&shown));
    }
    world.configure("candidates = [\"nonsense\"]");
    let doctor = output(&mut world.imas(["doctor"]));
    assert!(stdout(&doctor).contains("nonsense"), "{}", describe(&doctor));
}

/// A copy of the built installation, whose parts can be broken.
fn installation(folder: &Path) -> PathBuf {
    let to = folder.join("lib");
    std::fs::create_dir_all(to.join("allocators")).unwrap();
    let files = ["libimas.so", "libimas-guard.so", "catalogue.toml"].map(PathBuf::from).into_iter();
    let libraries = std::fs::read_dir(lib_dir().join("allocators")).unwrap().flatten();
    let libraries = libraries.map(|entry| Path::new("allocators").join(entry.file_name()));
    for file in files.chain(libraries.filter(|file| file.extension().is_some_and(|e| e == "so"))) {
        std::fs::copy(lib_dir().join(&file), to.join(&file)).unwrap();
    }
    to
}

fn damage(file: &Path, how: &str) {
    let whole = std::fs::read(file).unwrap();
    match how {
        "removed" => std::fs::remove_file(file).unwrap(),
        "emptied" => std::fs::write(file, "").unwrap(),
        "cut" => std::fs::write(file, &whole[..5000]).unwrap(),
        _ => std::fs::write(file, "x".repeat(whole.len())).unwrap(),
    }
}

#[test]
fn a_broken_installation_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    world.tests_six("");
    let missing = output(world.imas(["run", "--"]).arg(&program).env("IMAS_LIB_DIR", "/no/such/folder"));
    assert_started_untouched(&missing, "no catalogue.toml in /no/such/folder");
    assert_hinted(&missing, "no catalogue.toml");
    let listed = output(world.imas(["list"]).env("IMAS_LIB_DIR", "/no/such/folder"));
    assert_refused(&listed, "no catalogue.toml");

    for part in ["libimas.so", "libimas-guard.so", "allocators/libhoard.so"] {
        // Without hoard, the other candidates still work. Without a library of IMAS itself, none does.
        let is_right = |served: &str| match part.contains("hoard") {
            true => !served.starts_with("hoard"),
            false => served == "libc\n",
        };
        for how in ["removed", "emptied", "cut", "garbled"] {
            let folder = tempfile::tempdir_in(world.work()).unwrap();
            let lib = installation(folder.path());
            damage(&lib.join(part), how);
            for arguments in [&["run", "--candidate", "hoard"][..], &["run", "--retest", "0"]] {
                for _ in 0..2 {
                    let started =
                        output(world.imas(arguments).arg("--").arg(&program).env("IMAS_LIB_DIR", &lib));
                    assert_eq!(started.status.code(), Some(0), "{part} {how}: {}", describe(&started));
                    assert!(is_right(&stdout(&started)), "{part} {how}: {}", describe(&started));
                }
            }
            let doctor = output(world.imas(["doctor"]).env("IMAS_LIB_DIR", &lib));
            assert!(
                stdout(&doctor).contains(part.rsplit('/').next().unwrap())
                    || stdout(&doctor).contains("hoard"),
                "{part} {how}: {}",
                describe(&doctor)
            );
        }
    }
}

/// Spaces in all paths, but not in those that go into LD_PRELOAD.
#[test]
fn folders_with_spaces_in_their_names_work() {
    let world = World::named("imas test, with spaces ");
    let program = world.work().join("who is it");
    std::fs::rename(who(&world), &program).unwrap();
    world.tests_six("max_tests = 1\nretest_s = 0");
    let served: Vec<_> = (0..6).map(|_| stdout(&world.start([&program]))).collect();
    let begins = served.iter().map(|name| name.split([' ', '\n']).next().unwrap()).collect::<Vec<_>>();
    assert_eq!(begins, ["libc", "libc", "jemalloc", "tcmalloc", "hoard", "mimalloc"]);
    let trials = world.trials();
    assert_eq!(trials.len(), 6);
    assert!(trials.iter().all(|trial| trial.sample.pass_reason.is_none() && trial.sample.malloc.calls > 0));
    // An installation with spaces in its path cannot be preloaded. A message must be printed, and the program
    // must start.
    let lib = installation(&world.work());
    let started =
        output(world.imas(["run", "--candidate", "hoard", "--"]).arg(&program).env("IMAS_LIB_DIR", &lib));
    assert_started_untouched(&started, "a path with a space");
    let trial = output(world.imas(["run", "--retest", "0", "--"]).arg(&program).env("IMAS_LIB_DIR", &lib));
    assert_printed(&trial, 0, "libc\n");
}

#[test]
fn no_home_is_no_reason_not_to_start() {
    let world = World::new();
    let mut imas = world.imas(["run", "--"]);
    imas.arg(who(&world))
        .env_clear()
        .env("IMAS_LIB_DIR", lib_dir())
        .env("PATH", crate::support::PATH)
        .env("HOME", "relative");
    succeeded(output(imas.env("XDG_RUNTIME_DIR", world.runtime())));
}

/// If the reader of the output goes away, that is not an error.
#[test]
fn a_closed_pipe_causes_no_message() {
    let world = World::new();
    let mut imas =
        world.imas(["list", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(imas.stdout.take());
    let output = imas.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{}", describe(&output));
}

/// A start must not wait for a lock of a killed process.
#[test]
fn a_killed_imas_leaves_no_lock() {
    let world = World::new();
    let program = who(&world);
    for _ in 0..10 {
        let mut imas =
            world.imas(["run", "--retest", "0", "--"]).arg(&program).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let _ = imas.kill();
        let _ = imas.wait();
    }
    // A remaining lock would be reported.
    let started = world.start([&program]);
    assert!(started.status.success() && stderr(&started).is_empty(), "{}", describe(&started));
    // A start that was killed while it made its page leaves half a page. That is set aside when it is a
    // minute old.
    wait_until("the pages", || {
        world.trials();
        world.page_files().iter().all(|name| name.ends_with(".damaged"))
    });
    let explained = world.json(["explain", &program.to_string_lossy(), "--json"]);
    // A start that is killed between its exec and its first instruction looks the same as a library that dies
    // early.
    let trials = world.trials();
    let never_entered = trials.iter().filter(|trial| trial.sample.ended == Ended::NeverEntered);
    let never_entered: Vec<_> = never_entered.map(|trial| trial.sample.candidate.as_str()).collect();
    let mut quarantined = list(&explained, "/quarantined").iter().map(|one| text(one, "/candidate"));
    assert!(
        quarantined.all(|candidate| never_entered.contains(&candidate)),
        "a killed start must not count as a crash: {explained:#}"
    );
}

/// The way out of a broken setting is not a new installation.
#[test]
fn doctor_names_the_line_of_a_broken_configuration() {
    let world = World::new();
    world.configure("policy = 'adaptive'\nretest_s = = 5\n");
    let doctor = output(&mut world.imas(["doctor"]));
    assert_eq!(doctor.status.code(), Some(1), "{}", describe(&doctor));
    let says = crate::support::stdout(&doctor);
    for part in
        ["configuration: ", "config/imas/imas.toml", "line 2", "hint: correct the file, or move it away"]
    {
        assert!(says.contains(part), "{part}: {}", describe(&doctor));
    }
    assert!(!says.contains("make build"), "{}", describe(&doctor));
}
