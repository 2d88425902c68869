// SPDX-License-Identifier: Apache-2.0
//! Services and containers: apply, unapply, env.

use std::path::{Path, PathBuf};

use crate::support::{
    World, assert_hinted, assert_refused, build, describe, list, output, parsed, stderr, stdout, succeeded,
    text,
};
use imas_store::Store;
use imas_store::samples::Domain;

/// Makes a root folder with one service.
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

/// The value of a variable in the drop-in file.
fn written(root: &Path, variable: &str) -> Option<String> {
    let text = std::fs::read_to_string(drop_in(root)).unwrap();
    let start = format!("Environment=\"{variable}=");
    text.lines().find_map(|line| line.strip_prefix(start.as_str())?.strip_suffix('"').map(str::to_owned))
}

/// Libraries of a checkout are no place for an image's services to load from.
#[test]
fn a_drop_in_of_an_image_names_no_library_of_a_checkout() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    let mut imas = world.imas(["apply", "web", "--candidate", "jemalloc", "--write", "--root"]);
    let refused = output(imas.arg(&root).env_remove("IMAS_LIB_DIR"));
    if stderr(&refused).contains("no catalogue.toml") {
        return imas_testing::skipped("the libraries of the checkout are elsewhere");
    }
    assert_hinted(&refused, "part of a checkout");
    assert!(!drop_in(&root).exists());
}

#[test]
fn a_drop_in_is_shown_then_written_then_taken_away() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web\nEnvironment=LD_PRELOAD=/opt/their.so \"OTHER=a b\"");
    let shown = succeeded(with_root(&world, &root, &["apply", "web", "--candidate", "hoard"]));
    assert!(stdout(&shown).contains("+Environment=\"LD_PRELOAD="), "{}", describe(&shown));
    assert!(stderr(&shown).contains("nothing was written"), "{}", describe(&shown));
    assert!(!drop_in(&root).exists(), "a dry run must write nothing");

    succeeded(with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]));
    let lib = world.lib_dir();
    let preload = format!("{0}/libimas-guard.so:{0}/allocators/libhoard.so:/opt/their.so", lib.display());
    assert_eq!(written(&root, "LD_PRELOAD").unwrap(), preload, "the service's own stays, after that of imas");
    assert_eq!(written(&root, "IMAS_WAS_LD_PRELOAD").unwrap(), "/opt/their.so");
    assert_eq!(written(&root, "OTHER"), None, "an unchanged variable must not be repeated");

    let again = with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]);
    assert!(stdout(&again).contains("already"), "{}", describe(&again));
    // A second candidate replaces the first. The service's own preload must not be added twice.
    let words = ["apply", "web.service", "--candidate", "jemalloc:mem", "--write"];
    let other = with_root(&world, &root, &words);
    for line in ["-Environment=\"LD_PRELOAD=", "\n+Environment="] {
        assert!(stdout(&other).contains(line), "{}", describe(&other));
    }
    let preload = format!("{0}/libimas-guard.so:{0}/allocators/libjemalloc.so:/opt/their.so", lib.display());
    assert_eq!(written(&root, "LD_PRELOAD").unwrap(), preload);
    assert!(written(&root, "MALLOC_CONF").unwrap().contains("dirty_decay_ms"));
    assert_eq!(written(&root, "IMAS_FOLLOW").unwrap(), "1");

    let shown = with_root(&world, &root, &["unapply", "--all"]);
    assert!(shown.status.success() && drop_in(&root).exists(), "{}", describe(&shown));
    succeeded(with_root(&world, &root, &["unapply", "--all", "--write"]));
    assert!(!drop_in(&root).parent().unwrap().exists(), "the folder of the drop-in must be removed");
    let nothing = with_root(&world, &root, &["unapply", "web", "--write"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", describe(&nothing));
}

#[test]
fn a_value_that_systemd_alone_knows_is_left_alone() {
    let world = World::new();
    let words = ["apply", "web", "--candidate", "hoard", "--write"];
    let root = image(&world, "ExecStart=/usr/bin/web\nEnvironment=LD_PRELOAD=/opt/%i/their.so");
    assert_refused(&with_root(&world, &root, &words), "has a specifier such as %i");
    let root = image(&world, "ExecStart=/usr/bin/web\nEnvironmentFile=/etc/web\nEnvironment=NAME=%i");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/web"), "LD_PRELOAD = /opt/their.so\n").unwrap();
    assert_refused(&with_root(&world, &root, &words), "sets LD_PRELOAD and would win");
    std::fs::remove_file(root.join("etc/web")).unwrap();
    assert!(!stderr(&succeeded(with_root(&world, &root, &words))).contains("is a pattern"));
    let root = image(&world, "ExecStart=/usr/bin/web\nEnvironmentFile=-/etc/web.d/*.env");
    let shown = with_root(&world, &root, &["apply", "web", "--candidate", "jemalloc"]);
    assert!(stderr(&shown).contains("EnvironmentFile=/etc/web.d/*.env is a pattern"), "{}", describe(&shown));
}

/// `imas unapply --all --write | head -1`
#[test]
fn a_reader_that_goes_away_keeps_no_drop_in_there() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    succeeded(with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut imas = world.imas(["unapply", "--all", "--write", "--root"]);
    succeeded(output(imas.arg(&root).stdout(writer)));
    assert!(!drop_in(&root).exists());
}

#[test]
fn a_link_out_of_the_image_is_not_followed() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    succeeded(with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]));
    let outside = world.work().join("outside");
    let theirs = outside.join("50-imas.conf");
    std::fs::create_dir(&outside).unwrap();
    std::fs::copy(drop_in(&root), &theirs).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("etc/systemd/system/a.service.d")).unwrap();
    // A drop-in that cannot be taken away does not keep the other there.
    assert_refused(&with_root(&world, &root, &["unapply", "--all", "--write"]), "a link leads out of");
    assert!(theirs.exists() && !drop_in(&root).exists());
    std::fs::remove_file(&theirs).unwrap();
    std::os::unix::fs::symlink(&outside, drop_in(&root).parent().unwrap()).unwrap();
    let words = ["apply", "web", "--candidate", "hoard", "--write"];
    assert_refused(&with_root(&world, &root, &words), "a link leads out of");
    assert!(!theirs.exists());
}

/// Document that `--json` prints, of one service.
fn only_service(output: &std::process::Output) -> serde_json::Value {
    let document = parsed(output);
    assert_eq!(document["schema"], 1, "{document:#}");
    let services = list(&document, "/services");
    assert_eq!(services.len(), 1, "{document:#}");
    services[0].clone()
}

#[test]
fn in_json_both_say_what_was_done_or_would_be() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    let ask = |words: &[&str]| with_root(&world, &root, &[words, &["--json"]].concat());
    let facts = |words: &[&str], status: i32| {
        let output = ask(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", describe(&output));
        let service = only_service(&output);
        assert_eq!(text(&service, "/unit"), "web.service");
        assert_eq!(text(&service, "/drop_in"), drop_in(&root).to_str().unwrap());
        assert!(service["watch_s"].is_null() && service["restarted"] == false, "{service:#}");
        service
    };
    let has = |service: &serde_json::Value, candidate: &str, change: &str, written: bool| {
        let is = (service["candidate"].as_str(), service["change"].as_str(), service["written"].as_bool());
        assert_eq!(is, (Some(candidate), Some(change), Some(written)), "{service:#}");
        assert_eq!(drop_in(&root).exists(), change != "add" || written);
    };
    let would = facts(&["apply", "web", "--candidate", "hoard"], 0);
    has(&would, "hoard", "add", false);
    assert!(text(&would, "/diff").contains("\n+Environment=\"LD_PRELOAD="), "{would:#}");
    has(&facts(&["apply", "web", "--candidate", "hoard", "--write"], 0), "hoard", "add", true);
    has(&facts(&["apply", "web", "--candidate", "hoard", "--write"], 0), "hoard", "none", false);
    has(&facts(&["apply", "web", "--candidate", "mimalloc", "--write"], 0), "mimalloc", "replace", true);
    has(&facts(&["unapply", "web"], 0), "mimalloc", "remove", false);

    let ours = std::fs::read_to_string(drop_in(&root)).unwrap();
    std::fs::write(drop_in(&root), format!("{ours}Nice=5\n")).unwrap();
    let refused = facts(&["unapply", "web", "--write"], 1);
    assert!(text(&refused, "/problem").contains("left alone") && refused["change"] == "none", "{refused:#}");
    std::fs::write(drop_in(&root), ours).unwrap();

    let gone = facts(&["unapply", "--all", "--write"], 0);
    assert_eq!((text(&gone, "/change"), gone["written"].as_bool()), ("remove", Some(true)), "{gone:#}");
    assert!(!drop_in(&root).exists());
    assert_eq!(facts(&["unapply", "web"], 1)["candidate"], serde_json::Value::Null);
    let none = ask(&["unapply", "--all"]);
    assert_eq!(none.status.code(), Some(1), "{}", describe(&none));
    assert!(list(&parsed(&none), "/services").is_empty(), "{}", describe(&none));
}

/// Only root may ask, and then a file of another place is looked at.
#[test]
fn boot_answers_in_json() {
    if !nix::unistd::geteuid().is_root() {
        return imas_testing::skipped("only root may start 'imas system boot'");
    }
    let world = World::new();
    let preload_file = world.work().join("ld.so.preload");
    std::fs::write(&preload_file, "").unwrap();
    let mut imas = world.imas(["system", "boot", "--json", "--run-dir"]);
    let booted =
        succeeded(output(imas.arg(world.work().join("run")).arg("--preload-file").arg(&preload_file)));
    assert_eq!(parsed(&booted), serde_json::json!({ "schema": 1, "enabled": false, "wrong": [] }));
}

#[test]
fn an_edited_drop_in_is_left_alone() {
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
        assert_eq!(refused.status.code(), Some(1), "{}", describe(&refused));
        assert_hinted(&refused, "left alone");
        assert_eq!(std::fs::read_to_string(drop_in(&root)).unwrap(), edited);
    }
}

#[test]
fn an_impossible_apply_is_refused_with_the_reason() {
    let world = World::new();
    let apply = |service: &str, words: &[&str]| {
        let root = image(&world, service);
        std::fs::create_dir_all(root.join("etc/default")).unwrap();
        std::fs::write(root.join("etc/default/web"), "# x\nLD_PRELOAD=/mine.so\n").unwrap();
        let refused = with_root(&world, &root, &[&["apply", "--write"], words].concat());
        assert!(!drop_in(&root).exists(), "{words:?}");
        assert_eq!(refused.status.code(), Some(2), "{}", describe(&refused));
        refused
    };
    let plain = "ExecStart=/usr/bin/web";
    assert_hinted(&apply(plain, &["nosuch", "--candidate", "hoard"]), "nosuch.service: there is no such");
    assert_hinted(&apply(plain, &["web.socket", "--candidate", "hoard"]), "not the name of a service");
    assert_hinted(&apply(plain, &["web", "--candidate", "nonsense"]), "nonsense: no such candidate");
    assert_hinted(&apply(plain, &["web", "--candidate", "system"]), "there is nothing to set");
    assert_hinted(&apply(plain, &["web"]), "web.service: ");
    let file = format!("{plain}\nEnvironmentFile=-/etc/default/web");
    assert_hinted(&apply(&file, &["web", "--candidate", "hoard"]), "sets LD_PRELOAD and would win");
    let unset = format!("{plain}\nUnsetEnvironment=LD_PRELOAD");
    assert_hinted(&apply(&unset, &["web", "--candidate", "hoard"]), "takes LD_PRELOAD away again");
    let chroot = format!("{plain}\nRootDirectory=/srv/jail");
    assert_hinted(&apply(&chroot, &["web", "--candidate", "hoard"]), "RootDirectory=/srv/jail");
}

#[test]
fn a_service_gets_what_its_program_was_pinned_to() {
    let world = World::new();
    let program = build::program("who", &world.work());
    let root = image(&world, &format!("ExecStart={}", program.display()));
    assert_refused(&with_root(&world, &root, &["apply", "web"]), "nothing is known of its program");
    world.start([&program]);
    let unsettled = with_root(&world, &root, &["apply", "web"]);
    assert_hinted(&unsettled, "nothing is settled yet");
    assert!(output(world.imas(["pin"]).arg(&program).arg("tcmalloc")).status.success());
    succeeded(with_root(&world, &root, &["apply", "web", "--write"]));
    assert!(written(&root, "LD_PRELOAD").unwrap().ends_with("allocators/libtcmalloc.so"));
    // The history of the service itself has priority.
    let store = Store::open(&world.store_path()).unwrap();
    let path = program.to_string_lossy();
    for (unit, candidate) in [("other", "mimalloc"), ("web", "hoard")] {
        let detail = imas_linux::index::detail_of_unit(&format!("{unit}.service"));
        let service = store.program_in(Domain::Own, &path, &detail).unwrap();
        store.pin(service.id, candidate, 1.0).unwrap();
    }
    succeeded(with_root(&world, &root, &["apply", "web", "--write"]));
    assert!(written(&root, "LD_PRELOAD").unwrap().ends_with("allocators/libhoard.so"));
}

/// Variables that the lines of a drop-in, of `imas env` or of a bundle set.
fn variables(text: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let line = line.strip_prefix("Environment=").unwrap_or(line).trim_matches('"');
        line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    text.lines().filter(|line| !line.starts_with(['#', '['])).filter_map(line).collect()
}

/// Ways in which units start `who`: by a wrapper, a script, as a child, and again by itself, as at a reload.
fn wrapped_starts(world: &World, who: &str) -> Vec<Vec<String>> {
    let script = |name: &str, text: &str| {
        let file = world.work().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        file.to_string_lossy().into_owned()
    };
    let by_env = script("by-env", &format!("#!/usr/bin/env sh\nexec {who}\n"));
    let as_child = script("as-child", &format!("#!/bin/bash\n{who} & wait $!\n"));
    let again = format!("#!/bin/sh\nif [ -z \"$1\" ]; then exec \"$0\" again; fi\nexec {who}\n");
    let reloads = script("reloads", &again);
    let python = format!("#!/usr/bin/env python3\nimport subprocess\nsubprocess.run(['{who}'])\n");
    let in_python = script("in-python", &python);
    let starts: [&[&str]; 9] = [
        &[who],
        &[&by_env],
        &[&as_child],
        &[&reloads],
        &[&in_python],
        &["/bin/sh", "-c", who],
        &["/bin/bash", "-lc", &format!("exec {who}")],
        &["/usr/bin/nice", "-n", "1", who],
        &["/usr/bin/env", "A=1", "setsid", "-w", who],
    ];
    starts.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect()
}

/// The applied candidate is for every process of the service, as a bench measures it.
#[test]
fn a_candidate_is_for_every_process_of_a_service() {
    let world = World::new();
    let who = build::program("who", &world.work()).to_string_lossy().into_owned();
    let bundle = world.work().join("bundle");
    let at = bundle.to_string_lossy().into_owned();
    succeeded(output(&mut world.imas(["bundle", "hoard", "--out", &at, "--at", &at])));
    let of_bundle = std::fs::read_to_string(bundle.join("imas.env")).unwrap();
    let env = ["env", "--candidate", "hoard", "--format", "systemd"];
    let printed = stdout(&succeeded(output(&mut world.imas(env))));
    for words in wrapped_starts(&world, &who) {
        let quoted = shell_words::join(&words);
        let root = image(&world, &format!("ExecStart={}", quoted.replace('\'', "\"")));
        succeeded(with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]));
        let written = std::fs::read_to_string(drop_in(&root)).unwrap();
        succeeded(with_root(&world, &root, &["unapply", "web", "--write"]));
        for (from, text) in [("apply", &written), ("bundle", &of_bundle), ("env", &printed)] {
            let run = output(world.command(&words[0]).args(&words[1..]).envs(variables(text)));
            assert!(stdout(&run).starts_with("hoard "), "{from}: {words:?}: {}", describe(&run));
        }
    }
}

/// Programs that `imas run` refuses, in an image and behind a wrapper too.
#[test]
fn a_program_that_can_load_nothing_gets_no_drop_in() {
    let world = World::new();
    let root = image(&world, "");
    std::fs::create_dir_all(root.join("usr/bin")).unwrap();
    let made = |name: &str, flags: &[&str]| {
        build::program_with("cc", "plain", flags, &root.join("usr/bin").join(name))
    };
    made("static", &["-static"]);
    made("gosu", &["-static"]);
    made("plain", &[]);
    let privileged = made("privileged", &[]);
    std::fs::set_permissions(&privileged, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::copy("/usr/bin/nice", root.join("usr/bin/nice")).unwrap();
    for (command, why) in [
        ("/usr/bin/static", Some("statically linked")),
        ("/usr/bin/nice -n 1 /usr/bin/static", Some("statically linked")),
        ("/usr/bin/privileged", Some("raised privileges")),
        ("/usr/bin/nice /usr/bin/privileged", Some("raised privileges")),
        ("/usr/bin/plain", None),
        ("/usr/bin/gosu web /usr/bin/plain", None),
    ] {
        image(&world, &format!("ExecStart={command}"));
        let done = with_root(&world, &root, &["apply", "web", "--candidate", "hoard", "--write"]);
        match why {
            Some(why) => assert_hinted(&done, why),
            None => drop(succeeded(done)),
        }
        assert_eq!(drop_in(&root).exists(), why.is_none(), "{command}");
    }
}

/// The output of the shell format works: what is started runs under the candidate, and the user's own preload
/// stays.
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
    assert_eq!(served, ["hoard", "hoard"], "{}", describe(&run));
    let libm = format!("/lib/{}-linux-gnu/libm.so.6", std::env::consts::ARCH);
    let script = format!(
        "export LD_PRELOAD={libm}; eval \"$({imas} env --candidate hoard)\"; printf '%s' \"$LD_PRELOAD\""
    );
    let run = output(world.command("sh").args(["-c", &script]));
    assert!(stdout(&run).ends_with(&format!("libhoard.so:{libm}")), "{}", describe(&run));
}

/// An allocator with settings of the command line is taken wherever a candidate lasts.
#[test]
fn settings_of_the_command_line_are_applied_and_printed() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    let typed = "jemalloc?narenas:1,dirty_decay_ms:100";
    succeeded(with_root(&world, &root, &["apply", "web", "--candidate", typed, "--write"]));
    let settings = written(&root, "MALLOC_CONF").unwrap();
    assert!(settings.contains("narenas:1") && settings.contains("dirty_decay_ms:100"), "{settings}");
    let again = with_root(&world, &root, &["apply", "web", "--candidate", typed, "--write"]);
    assert!(stdout(&again).contains(&format!("on {typed} already")), "{}", describe(&again));
    let gone = with_root(&world, &root, &["unapply", "web", "--write"]);
    assert!(gone.status.success() && !drop_in(&root).exists(), "{}", describe(&gone));

    let glibc = output(&mut world.imas(["env", "--candidate", "glibc?arena_max:2", "--format", "systemd"]));
    assert!(stdout(&glibc).contains("arena_max=2"), "{}", describe(&glibc));
    let wrong = output(&mut world.imas(["env", "--candidate", "jemalloc?narena:1"]));
    assert_hinted(&wrong, "narena is no setting");
    let pinned = output(&mut world.imas(["pin", "/bin/true", typed]));
    assert_hinted(&pinned, "a pin takes a candidate of the catalogue");
}

#[test]
fn each_format_has_what_its_tool_wants() {
    let world = World::new();
    let printed = |words: &[&str]| {
        succeeded(output(&mut world.imas([&["env", "--candidate", "jemalloc:mem"], words].concat())))
    };
    let systemd = stdout(&printed(&["--format", "systemd"]));
    let begin =
        "[Service]\nEnvironment=\"IMAS_FOLLOW=1\"\nEnvironment=\"IMAS_UNSET=LD_PRELOAD:MALLOC_CONF\"\n";
    assert!(systemd.contains(begin), "{systemd}");
    for (format, wants) in [
        (
            "dockerfile",
            &["COPY [\"imas/libjemalloc.so\", ", "\nENV LD_PRELOAD=\"/", "\nENV MALLOC_CONF=\""][..],
        ),
        ("compose", &["services:\n  web:\n", "\n      LD_PRELOAD: \"/", "read_only: true"]),
        (
            "kubernetes",
            &["- name: web\n", "hostPath:", "readOnly: true", "- name: MALLOC_CONF\n", "valueFrom: null\n"],
        ),
    ] {
        let got = printed(&["--format", format, "--name", "web"]);
        for want in wants {
            assert!(stdout(&got).contains(want), "{format}: {want}: {}", stdout(&got));
        }
        assert!(stderr(&got).contains("musl"), "{format}: {}", stderr(&got));
    }
    let image = stdout(&printed(&["--format", "kubernetes", "--image", "registry.example/imas:1"]));
    assert!(image.contains("reference: \"registry.example/imas:1\""), "{image}");
    assert!(!image.contains("hostPath"), "{image}");
    let words = ["env", "--candidate", "hoard", "--format", "compose", "--name", "a: b"];
    let bad = output(&mut world.imas(words));
    assert_eq!(bad.status.code(), Some(2), "{}", describe(&bad));
    let neither = output(&mut world.imas(["env"]));
    assert_eq!(neither.status.code(), Some(2), "{}", describe(&neither));
    let unknown = output(&mut world.imas(["env", "/no/such/program"]));
    assert_hinted(&unknown, "/no/such/program");
}

/// `NAME+trims` is the candidate and a timer; trims alone need no drop-in.
#[test]
fn trims_beside_a_candidate_are_a_timer() {
    let world = World::new();
    let root = image(&world, "ExecStart=/usr/bin/web");
    let timer = root.join("etc/systemd/system/imas-trim-web.timer");
    let apply = |candidate, write: &[&str]| {
        let words = [&["apply", "web", "--candidate", candidate], write].concat();
        with_root(&world, &root, &words)
    };
    let shown = stderr(&succeeded(apply("glibc:arena1+trims", &[])));
    assert!(shown.contains("imas trim web.service --every 1m --write") && !timer.exists(), "{shown}");
    let document = parsed(&succeeded(apply("glibc:arena1+trims", &["--write", "--json"])));
    assert_eq!(list(&document, "/services")[0]["candidate"], "glibc:arena1", "{document:#}");
    assert!(written(&root, "GLIBC_TUNABLES").unwrap().ends_with("arena_max=1"));
    let text = std::fs::read_to_string(&timer).unwrap();
    assert!(text.contains("OnUnitActiveSec=60\n"), "{text}");
    let enabled = root.join("etc/systemd/system/timers.target.wants/imas-trim-web.timer");
    assert!(enabled.is_symlink(), "the image starts it");

    // The timer goes with the candidate, and one that was asked for by itself stays.
    let unapply = |write: &[&str]| with_root(&world, &root, &[&["unapply", "web"], write].concat());
    let shown = stderr(&succeeded(unapply(&[])));
    assert!(shown.contains("imas-trim-web.timer, which went with") && timer.exists(), "{shown}");
    succeeded(unapply(&["--write"]));
    assert!(!timer.exists() && !enabled.is_symlink());
    succeeded(apply("glibc:arena1+trims", &["--write"]));
    succeeded(apply("glibc:arena1", &["--write"]));
    assert!(!timer.exists(), "without trims now");
    succeeded(with_root(&world, &root, &["trim", "web", "--every", "1m", "--write"]));
    succeeded(unapply(&["--write"]));
    assert!(timer.exists());

    let words = ["env", "--format", "dockerfile", "--candidate"];
    let env = succeeded(output(world.imas(words).arg("glibc:arena1+trims")));
    assert!(stderr(&env).contains("this is glibc:arena1 alone"), "{env:?}");
    assert!(stderr(&env).contains("all threads share one heap and its lock"), "{env:?}");
    assert!(!stdout(&env).contains("+trims"), "{env:?}");
    assert_hinted(&output(world.imas(words).arg("system+trims")), "nothing to set");
    assert_hinted(&apply("system+trims", &[]), "trims alone need no drop-in");
    assert_hinted(&apply("jemalloc+trims", &[]), "reach glibc's malloc alone");
    assert_hinted(
        &output(&mut world.imas(["pin", "sh", "glibc:arena1+trims"])),
        "a candidate of the catalogue",
    );
    let bench = output(&mut world.imas(["bench", "--with", "glibc:arena1+trims", "--", "true"]));
    assert_hinted(&bench, "trims are for servers");
}
