// SPDX-License-Identifier: Apache-2.0
//! Services and containers: advise, apply, unapply, env.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use imas_store::Store;
use imas_store::domain::Domain;
use support::trial::trial;
use support::{Running, SIX, World, assert_hinted, build, lib_dir, list, output, said, stderr, stdout, text};

/// A system with one service, below a folder of the world.
fn image(world: &World, service: &str) -> PathBuf {
    let root = world.work().join("root");
    let folder = root.join("usr/lib/systemd/system");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("web.service"), format!("[Unit]\nDescription=x\n[Service]\n{service}\n"))
        .unwrap();
    root
}

fn drop_in(root: &Path) -> PathBuf {
    root.join("etc/systemd/system/web.service.d/50-imas.conf")
}

/// `imas apply|unapply ... --root ROOT`.
fn with_root(world: &World, root: &Path, words: &[&str]) -> std::process::Output {
    output(world.imas(words).arg("--root").arg(root))
}

/// The value of a variable in the written drop-in.
fn written(root: &Path, variable: &str) -> Option<String> {
    let text = std::fs::read_to_string(drop_in(root)).unwrap();
    let start = format!("Environment=\"{variable}=");
    text.lines().find_map(|line| line.strip_prefix(start.as_str())?.strip_suffix('"').map(str::to_owned))
}

#[test]
fn a_drop_in_is_shown_then_written_then_taken_away() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web\nEnvironment=LD_PRELOAD=/opt/their.so \"OTHER=a b\"");
    let shown = with_root(&world, &root, &["apply", "web", "--candidate", "hoard"]);
    assert!(shown.status.success(), "{}", said(&shown));
    assert!(stdout(&shown).contains("+Environment=\"LD_PRELOAD="), "{}", said(&shown));
    assert!(stderr(&shown).contains("nothing was written"), "{}", said(&shown));
    assert!(!drop_in(&root).exists(), "a dry run");

    let done = with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]);
    assert!(done.status.success(), "{}", said(&done));
    let lib = lib_dir();
    let preload = format!("{0}/libimas-guard.so:{0}/allocators/libhoard.so:/opt/their.so", lib.display());
    assert_eq!(written(&root, "LD_PRELOAD").unwrap(), preload, "theirs stays, behind ours");
    assert_eq!(written(&root, "IMAS_WAS_LD_PRELOAD").unwrap(), "/opt/their.so");
    assert_eq!(written(&root, "OTHER"), None, "what is not changed is not repeated");

    let again = with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]);
    assert!(stdout(&again).contains("already"), "{}", said(&again));
    // Another candidate takes the place of the first; theirs is not composed twice.
    let other = with_root(
        &world,
        &root,
        &["apply", "web.service", "--candidate", "jemalloc:mem", "--write", "--follow"],
    );
    assert!(
        stdout(&other).contains("-Environment=\"LD_PRELOAD=") && stdout(&other).contains("\n+Environment="),
        "{}",
        said(&other)
    );
    let preload = format!("{0}/libimas-guard.so:{0}/allocators/libjemalloc.so:/opt/their.so", lib.display());
    assert_eq!(written(&root, "LD_PRELOAD").unwrap(), preload);
    assert!(written(&root, "MALLOC_CONF").unwrap().contains("dirty_decay_ms"));
    assert_eq!(written(&root, "IMAS_FOLLOW").unwrap(), "1");

    let shown = with_root(&world, &root, &["unapply", "--all"]);
    assert!(shown.status.success() && drop_in(&root).exists(), "{}", said(&shown));
    let gone = with_root(&world, &root, &["unapply", "--all", "--write"]);
    assert!(gone.status.success(), "{}", said(&gone));
    assert!(!drop_in(&root).parent().unwrap().exists(), "nothing of ours is left");
    let nothing = with_root(&world, &root, &["unapply", "web", "--write"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", said(&nothing));
}

#[test]
fn what_somebody_edited_is_left_alone() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    assert!(with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]).status.success());
    let edited = std::fs::read_to_string(drop_in(&root)).unwrap() + "Nice=5\n";
    std::fs::write(drop_in(&root), &edited).unwrap();
    for words in [
        &["apply", "web", "--candidate", "mimalloc", "--write"][..],
        &["unapply", "web", "--write"],
        &["unapply", "--all", "--write"],
    ] {
        let refused = with_root(&world, &root, words);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert_hinted(&refused, "left alone");
        assert_eq!(std::fs::read_to_string(drop_in(&root)).unwrap(), edited);
    }
}

#[test]
fn what_would_not_work_is_refused_with_the_reason() {
    let world = World::new();
    let apply = |service: &str, words: &[&str]| {
        let root = image(&world, service);
        std::fs::create_dir_all(root.join("etc/default")).unwrap();
        std::fs::write(root.join("etc/default/web"), "# x\nLD_PRELOAD=/mine.so\n").unwrap();
        let refused = with_root(&world, &root, &[&["apply", "--write"], words].concat());
        assert!(!drop_in(&root).exists(), "{words:?}");
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        refused
    };
    let plain = "ExecStart=/usr/bin/web";
    assert_hinted(
        &apply(plain, &["nosuch", "--candidate", "hoard"]),
        "nosuch.service: there is no such service",
    );
    assert_hinted(&apply(plain, &["web.socket", "--candidate", "hoard"]), "not the name of a service");
    assert_hinted(&apply(plain, &["web", "--candidate", "nonsense"]), "nonsense: no such candidate");
    assert_hinted(&apply(plain, &["web", "--candidate", "system"]), "there is nothing to set");
    assert_hinted(&apply(plain, &["web"]), "web.service: ");
    let file = format!("{plain}\nEnvironmentFile=-/etc/default/web");
    assert_hinted(&apply(&file, &["web", "--candidate", "hoard"]), "sets LD_PRELOAD and would win");
    let chroot = format!("{plain}\nRootDirectory=/srv/jail");
    assert_hinted(&apply(&chroot, &["web", "--candidate", "hoard"]), "RootDirectory=/srv/jail");
}

#[test]
fn a_service_gets_what_its_program_was_pinned_to() {
    let world = World::new();
    let program = build::program("who", &world.work());
    let root = image(&world, &format!("ExecStart={}", program.display()));
    let unknown = with_root(&world, &root, &["apply", "web"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_hinted(&unknown, "nothing is known of its program");
    world.start([&program]);
    let unsettled = with_root(&world, &root, &["apply", "web"]);
    assert_hinted(&unsettled, "nothing is settled yet");
    assert!(output(world.imas(["pin"]).arg(&program).arg("tcmalloc")).status.success());
    let done = with_root(&world, &root, &["apply", "web", "--write"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(written(&root, "LD_PRELOAD").unwrap().ends_with("allocators/libtcmalloc.so"));
    // What is known of the very service stands before it.
    let store = Store::open(&world.store_path()).unwrap();
    let path = program.to_string_lossy();
    for (unit, candidate) in [("other", "mimalloc"), ("web", "hoard")] {
        let detail = imas_linux::index::detail_of_unit(&format!("{unit}.service"));
        let service = store.program_in(Domain::Own, &path, &detail).unwrap();
        store.pin(service.id, candidate, 1.0).unwrap();
    }
    let done = with_root(&world, &root, &["apply", "web", "--write"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(written(&root, "LD_PRELOAD").unwrap().ends_with("allocators/libhoard.so"));
}

/// What the shell format prints does what it says: the program is on the candidate, what it starts is not, and the user's own
/// preload stays.
#[test]
fn a_shell_takes_over_what_env_prints() {
    let world = World::new();
    let program = build::program("who", &world.work());
    let imas = env!("CARGO_BIN_EXE_imas");
    let script =
        format!("eval \"$({imas} env --candidate hoard)\"; '{0}'; sh -c \"'{0}'\"", program.display());
    let run = output(world.command("sh").args(["-c", &script]));
    let served: Vec<String> =
        stdout(&run).lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(served, ["hoard", "libc"], "{}", said(&run));
    let script = format!(
        "export LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6; eval \"$({imas} env --candidate hoard)\"; printf '%s' \"$LD_PRELOAD\""
    );
    let run = output(world.command("sh").args(["-c", &script]));
    assert!(stdout(&run).ends_with("libhoard.so:/lib/x86_64-linux-gnu/libm.so.6"), "{}", said(&run));
}

#[test]
fn each_format_has_what_its_tool_wants() {
    let world = World::new();
    let printed = |words: &[&str]| {
        let got = output(&mut world.imas([&["env", "--candidate", "jemalloc:mem"], words].concat()));
        assert!(got.status.success(), "{}", said(&got));
        got
    };
    let systemd = stdout(&printed(&["--format", "systemd"]));
    assert!(
        systemd.contains(
            "[Service]\nEnvironment=\"IMAS_PAD=\"\nEnvironment=\"IMAS_UNSET=LD_PRELOAD:MALLOC_CONF\"\n"
        ),
        "{systemd}"
    );
    for (format, wants) in [
        (
            "dockerfile",
            &[
                "COPY [\"imas/libjemalloc.so\", ",
                "\nENV LD_PRELOAD=\"/",
                "\nENV MALLOC_CONF=\"background_thread:true,",
            ][..],
        ),
        ("compose", &["services:\n  web:\n", "\n      LD_PRELOAD: \"/", "read_only: true"]),
        ("kubernetes", &["- name: web\n", "hostPath:", "readOnly: true", "- name: MALLOC_CONF\n"]),
    ] {
        let got = printed(&["--format", format, "--name", "web"]);
        for want in wants {
            assert!(stdout(&got).contains(want), "{format}: {want}: {}", stdout(&got));
        }
        assert!(stderr(&got).contains("musl"), "{format}: {}", stderr(&got));
    }
    let image = stdout(&printed(&["--format", "kubernetes", "--image", "registry.example/imas:1"]));
    assert!(
        image.contains("reference: \"registry.example/imas:1\"") && !image.contains("hostPath"),
        "{image}"
    );
    let bad =
        output(&mut world.imas(["env", "--candidate", "hoard", "--format", "compose", "--name", "a: b"]));
    assert_eq!(bad.status.code(), Some(2), "{}", said(&bad));
    let neither = output(&mut world.imas(["env"]));
    assert_eq!(neither.status.code(), Some(2), "{}", said(&neither));
    let unknown = output(&mut world.imas(["env", "/no/such/program"]));
    assert_hinted(&unknown, "/no/such/program");
}

#[test]
fn advice_rests_on_trials_and_on_nothing_else() {
    let world = World::new();
    world.tests_six("max_tests = 4\nretest_s = 0");
    // A program of its own, which stays.
    let program = world.work().join("stays");
    support::install(&support::real("sleep"), &program);
    let start = |words: &[&str]| {
        let mut command = world.imas(words);
        Running(
            command
                .arg("--")
                .arg(&program)
                .arg("1000")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    };
    let advise = || {
        let got = output(&mut world.imas(["advise", "--json"]));
        let advice: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
        (got.status.code(), advice)
    };
    let nothing = output(&mut world.imas(["advise"]));
    assert_eq!(nothing.status.code(), Some(1), "{}", said(&nothing));
    assert!(stdout(&nothing).contains("no running process would gain"), "{}", said(&nothing));

    let untouched = Running(world.command(&program).arg("1000").spawn().unwrap());
    let pid = untouched.0.id();
    assert!(output(world.imas(["pin"]).arg(&program).arg("mimalloc")).status.success());
    let (code, advice) = advise();
    assert_eq!(code, Some(1), "{advice:#}");
    let row = &list(&advice, "/processes")[0];
    assert_eq!(
        (row["pid"].as_u64(), text(row, "/on"), text(row, "/pick")),
        (Some(u64::from(pid)), "system", "mimalloc")
    );
    assert!(row["memory"].is_null() && row["gain"] == false, "no data, no claim: {row:#}");
    let page = stdout(&output(&mut world.imas(["advise"])));
    assert!(page.contains("no data: too few trials"), "{page}");

    assert!(output(world.imas(["unpin"]).arg(&program)).status.success());
    let store = Store::open(&world.store_path()).unwrap();
    let known = store.programs().unwrap().into_iter().find(|known| known.path.ends_with("/stays")).unwrap();
    let build_id = imas_linux::elf::Executable::read(&program).unwrap().build_id.unwrap_or_default();
    for (at, candidate) in SIX.into_iter().enumerate() {
        for number in 0..4 {
            let resident =
                if candidate == "hoard" { 50 << 20 } else { (100 << 20) + ((at * 4 + number) << 12) as u64 };
            let cost = if candidate == "hoard" { 0.5 } else { 1.0 + 0.01 * number as f64 };
            assert!(
                store
                    .add_trial(known.id, &trial(candidate, &build_id, at * 10 + number, resident, cost))
                    .unwrap()
            );
        }
    }
    drop(store);
    let (code, advice) = advise();
    let row = &list(&advice, "/processes")[0];
    assert_eq!(code, Some(0), "{advice:#}");
    assert_eq!(
        (text(row, "/on"), text(row, "/pick"), row["gain"].as_bool()),
        ("system", "hoard", Some(true)),
        "{row:#}"
    );
    assert_eq!(row["trials"], serde_json::json!([4, 4]));
    let memory: Vec<f64> = list(row, "/memory").iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(memory[0] <= memory[1] && memory[1] <= memory[2] && (memory[1] - 0.5).abs() < 0.01, "{memory:?}");
    assert!(text(row, "/how").contains("imas run"), "{row:#}");

    // Started again as decided, it needs no advice.
    drop(untouched);
    let placed = start(&["run"]);
    support::wait_until("the library", || {
        std::fs::read_to_string(format!("/proc/{}/maps", placed.0.id()))
            .is_ok_and(|maps| maps.contains("libhoard.so"))
    });
    let (code, advice) = advise();
    assert_eq!((code, list(&advice, "/processes").len()), (Some(1), 0), "{advice:#}");
}
