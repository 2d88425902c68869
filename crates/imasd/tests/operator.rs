// SPDX-License-Identifier: Apache-2.0
//! The operator's `imas` commands while imasd runs.

use std::process::Command;

use crate::support::{WORKER, World, imas, python};
use imas_store::daemon::Disabled;
use serde_json::Value;

fn status(world: &World, words: &[&str]) -> (Option<i32>, String) {
    let output = world.imas("status").arg("--run-dir").arg(world.path("run")).args(words).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

fn status_json(world: &World) -> Value {
    serde_json::from_str(&status(world, &["--json"]).1).unwrap()
}

#[test]
fn status_shows_the_programs_and_the_allocator_that_really_serves() {
    let mut world = World::new();
    let (code, printed) = status(&world, &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("imasd does not run"), "{printed}");
    world.start();
    let (script, program) = world.notices("worker.py", WORKER);
    let json = status_json(&world);
    assert_eq!(json["running"], true);
    assert_eq!(json["standing_aside"], Value::Null);
    assert_eq!(json["daemon"]["pid"], world.daemon_pid());
    let config = world.path("imasd.toml");
    assert_eq!(
        (&json["daemon"]["config"], &json["daemon"]["retest_s"]),
        (&config.to_str().into(), &Value::from(0.0))
    );
    let trial = &json["programs"][0]["trial"];
    assert!(trial == "system" || trial == "jemalloc", "{json}");

    world.settle(&script, &program);
    world.store().pin(program.id, "jemalloc", 1.0).unwrap();
    world.wait("the pin is published", || world.production(&program) != 1);
    let running = world.linger(&script);
    let serves = || {
        let json = status_json(&world);
        let mine: Vec<_> = json["serving"].as_array().unwrap().clone();
        mine.iter().any(|line| line["allocator"] == "jemalloc" && line["trial"] == false)
    };
    world.wait("a process under jemalloc is listed", serves);
    let (code, printed) = status(&world, &[]);
    drop(running);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("imasd runs") && printed.contains("worker.py") && printed.contains("production"),
        "{printed}"
    );
    assert_eq!(status_json(&world)["programs"][0]["next"], "jemalloc");

    world.stop("-TERM");
    let (code, printed) = status(&world, &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("worker.py"), "earlier decisions must still be shown: {printed}");
}

#[test]
fn a_running_trial_is_reported() {
    let (world, script, program) = World::new().noticed("worker.py", WORKER);
    let explain = || {
        let output =
            world.imas("explain").args(["--json", "--policy", "paper", &program.id.to_string()]).output();
        serde_json::from_slice::<Value>(&output.unwrap().stdout).unwrap()
    };
    assert_eq!(explain()["under_way"], Value::Null, "the trial is only on offer");
    assert_eq!(explain()["next"]["trial"], true);
    let running = world.linger(&script);
    let pid = running.0.id();
    world.wait("its trial is under way", || explain()["under_way"]["pid"] == pid);
    assert_eq!(explain()["next"]["trial"], false);
    drop(running);
    assert_eq!(explain()["under_way"], Value::Null);
}

#[test]
fn a_disabled_allocator_is_shown_and_unblocked() {
    let mut world = World::new();
    world.start();
    let why = "within a day it harmed 3 programs".to_owned();
    let disabled = Disabled { allocator: "jemalloc".into(), version: "1".into(), at_s: 1.0, why };
    world.store().disable(&disabled).unwrap();
    let (_, printed) = status(&world, &[]);
    assert!(printed.contains("jemalloc is disabled everywhere"), "{printed}");
    assert_eq!(status_json(&world)["disabled"][0]["allocator"], "jemalloc");
    let unblock = || world.imas("unblock").arg("jemalloc").output().unwrap();
    assert_eq!(unblock().status.code(), Some(0));
    assert_eq!(unblock().status.code(), Some(1), "nothing is disabled any more");
    let mistyped = world.imas("unblock").arg("jmalloc").output().unwrap();
    let says = String::from_utf8_lossy(&mistyped.stderr).into_owned();
    assert!(mistyped.status.code() == Some(2) && says.contains("jmalloc: no such candidate"), "{says}");
    assert!(!status(&world, &[]).1.contains("disabled everywhere"));
    assert!(world.store().cleared().unwrap().contains_key("jemalloc"));
}

/// A container has a boot id of its own, but the daemon's sandbox hides it.
#[test]
fn the_boot_is_the_one_that_root_wrote_down() {
    let mut world = World::new();
    let theirs = "0f3c6a3e-52b1-4a52-9f0e-0123456789ab";
    let file = world.path("run").join(imas_linux::host::FILE_NAME);
    std::fs::write(&file, theirs).unwrap();
    world.start();
    assert_eq!(world.index().facts().boot_id, theirs);
    let (_, printed) = status(&world, &[]);
    assert!(printed.contains("Every program starts untouched") && printed.contains(theirs), "{printed}");
    assert!(status_json(&world)["standing_aside"].as_str().unwrap().contains("imas system boot"));
    // Root writes down the boot id that the programs see. It is used from the next approval on.
    imas_linux::host::write_boot_id(&world.path("run")).unwrap();
    world.signal("-HUP");
    let here = imas_linux::process::boot_id().unwrap();
    world.wait("the index has the programs' boot id", || world.index().facts().boot_id == here);
    assert_eq!(status_json(&world)["standing_aside"], Value::Null);
    let (script, program) = world.notices("worker.py", WORKER);
    assert_ne!(world.settle(&script, &program), 0);
}

/// The machine's own paths, in a mount namespace. Skipped if none can be created.
#[test]
fn with_system_the_store_of_the_machine_is_read_and_written() {
    crate::support::alone("operator::of_the_machine", &[]);
}

#[test]
#[ignore = "run by the test above, in a mount namespace of its own"]
fn of_the_machine() {
    for folder in ["/var/lib", "/run"] {
        let mount = Command::new("mount").args(["-t", "tmpfs", "imasd-test", folder]).status().unwrap();
        assert!(mount.success());
    }
    let imas = |words: &[&str]| {
        let mut command = Command::new(imas());
        command.args(words).env("IMAS_LIB_DIR", crate::support::lib_dir()).env_remove("IMAS_STORE");
        if words.contains(&"--system") {
            command.env("IMAS_STORE", "/run/other.db"); // the option wins
        }
        let output = command.env("IMAS_DISABLE", "1").output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, printed) = imas(&["show", "--system"]);
    assert!(code == Some(2) && printed.contains("hint: "), "{printed}");
    let (code, printed) = imas(&["status"]);
    assert!(code == Some(1) && printed.contains("does not run"), "{printed}");

    std::fs::create_dir_all("/var/lib/imas").unwrap();
    let world = World::new();
    std::fs::remove_dir(world.path("run")).unwrap();
    std::os::unix::fs::symlink("/run/imas", world.path("run")).unwrap();
    std::fs::create_dir("/run/imas").unwrap();
    std::fs::remove_dir(world.path("db")).unwrap();
    std::os::unix::fs::symlink("/var/lib/imas", world.path("db")).unwrap();
    let (mut world, script, program) = world.noticed("worker.py", WORKER);
    world.settle(&script, &program);
    let number = program.id.to_string();

    let (code, printed) = imas(&["show", "--system"]);
    assert!(code == Some(0) && printed.contains("worker.py"), "{printed}");
    let (code, printed) = imas(&["explain", "--system", &number]);
    assert!(code == Some(0) && printed.contains("jemalloc"), "{printed}");
    // This imasd reads another file than the one in /etc.
    let explained =
        || -> Value { serde_json::from_str(&imas(&["explain", "--system", "--json", &number]).1).unwrap() };
    let tested = || {
        let candidates = explained()["candidates"].as_array().unwrap().clone();
        candidates.into_iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (tested(), &explained()["standings"]),
        (vec!["system".into(), "jemalloc".into()], &Value::Null)
    );
    let (code, printed) = imas(&["pin", "--system", "--unblock", &number, "jemalloc"]);
    assert!(code == Some(0), "{printed}");
    world.wait("the pin is published", || world.production(&program) != 1);
    let (code, printed) = imas(&["status"]);
    assert!(code == Some(0) && printed.contains("worker.py"), "{printed}");
    let (code, printed) = imas(&["unpin", "--system", &number]);
    assert!(code == Some(0), "{printed}");
    let (code, printed) = imas(&["exclude", "add", "--system", &python().to_string_lossy()]);
    assert!(code == Some(0), "{printed}");
    let (code, printed) = imas(&["exclude", "list", "--system"]);
    assert!(code == Some(0) && printed.contains("python"), "{printed}");
    let decided = || world.store().latest(program.id).unwrap().unwrap().reason;
    world.wait("the program is excluded", || decided() == "excluded" && world.production(&program) == 1);
    let (code, printed) = imas(&["forget", "--system", &number]);
    assert!(code == Some(0) && printed.contains("forgotten"), "{printed}");
    let (code, printed) = imas(&["forget", "--system", &number]);
    assert!(code == Some(2) && printed.contains("hint: "), "{printed}");
    world.stop("-TERM");
}
