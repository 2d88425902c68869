// SPDX-License-Identifier: Apache-2.0
//! A new user's first hour: separate stores, mistyped names and variables, help, completions, a bundle.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{World, build, describe, list, output, parsed, stderr, stdout, succeeded, text};

fn who(world: &World) -> String {
    build::program("who", &world.work()).to_string_lossy().into_owned()
}

#[test]
fn a_trial_page_belongs_to_its_store() {
    let world = World::new();
    world.configure("retest_s = 0");
    let who = who(&world);
    let store = |name: &str| world.work().join(name).to_string_lossy().into_owned();
    let (a, b) = (store("a.db"), store("b.db"));
    let on = |store: &str, words: &[&str]| succeeded(output(world.imas(["--store", store]).args(words)));
    on(&a, &["run", "--", &who]);
    for other in [&b, &world.store_path().to_string_lossy().into_owned()] {
        let shown = parsed(&on(other, &["show", "--json"]));
        assert!(list(&shown, "/programs").is_empty(), "{other} has taken another's trial: {shown:#}");
    }
    let shown = parsed(&on(&a, &["show", &who, "--json"]));
    assert_eq!(shown["trials"], 1, "{shown:#}");
}

#[test]
fn a_wrong_variable_warns_and_the_program_starts() {
    let world = World::new();
    let who = who(&world);
    for (variable, value) in [("IMAS_RETEST", "soon"), ("IMAS_RETEST", "-1"), ("IMAS_POLICY", "clever")] {
        let output = output(world.imas(["run", "--"]).arg(&who).env(variable, value));
        assert!(output.status.success() && !stdout(&output).is_empty(), "{variable}: {}", describe(&output));
        let warned = format!("{variable}={value} is ignored");
        assert!(stderr(&output).contains(&warned), "{}", describe(&output));
        for reading in [vec!["show"], vec!["show", &who], vec!["explain", &who]] {
            let output = self::output(world.imas(&reading).env(variable, value));
            assert!(output.status.success(), "{reading:?}: {}", describe(&output));
        }
    }
}

#[test]
fn an_empty_variable_is_as_if_it_were_not_set() {
    let world = World::new();
    let who = who(&world);
    let read = |words: &[&str], variable: &str| {
        let output = output(world.imas(words).env(variable, ""));
        assert!(!stderr(&output).contains("ignored"), "{variable}: {}", describe(&output));
        assert!(!stderr(&output).contains("value is required"), "{variable}: {}", describe(&output));
        output
    };
    succeeded(read(&["run", "--", &who], "IMAS_STORE"));
    assert!(world.store_path().exists(), "the default store");
    for variable in ["IMAS_STORE", "IMAS_LIB_DIR", "IMAS_RETEST", "IMAS_POLICY"] {
        for words in [&["run", "--", &who][..], &["run", "--verbose", "--", &who]] {
            assert!(!stdout(&succeeded(read(words, variable))).is_empty(), "{variable}: {words:?}");
        }
        read(&["show"], variable);
    }
    read(&["system", "status", "--preload-file", "none"], "IMAS_RUN_DIR");
    assert_eq!(output(&mut world.imas(["--store", "", "show"])).status.code(), Some(2));
}

#[test]
fn a_mistyped_name_is_guessed() {
    let world = World::new();
    assert!(world.start(["sort", "/dev/null"]).status.success());
    for (words, meant) in [
        (vec!["run", "--candidate", "jmalloc", "--", "true"], "did you mean jemalloc?"),
        (vec!["pin", "sort", "mimaloc"], "did you mean mimalloc?"),
        (vec!["run", "--candidate", "cpython:lean", "--", "true"], "use glibc:lean"),
        (vec!["show", "sorrt"], "did you mean sort?"),
        (vec!["explain", "/usr/bin/srot"], "did you mean sort?"),
        (vec!["shwo"], "show"),
    ] {
        let output = output(&mut world.imas(&words));
        assert!(stderr(&output).contains(meant), "{words:?}: {}", describe(&output));
    }
    let nothing_like_it = output(&mut world.imas(["show", "no-such-thing-at-all"]));
    assert!(!stderr(&nothing_like_it).contains("did you mean"), "{}", describe(&nothing_like_it));
}

#[test]
fn the_command_may_follow_without_dashes() {
    let world = World::new();
    let who = who(&world);
    let ran = output(&mut world.imas(["run", "--candidate", "mimalloc", &who]));
    assert!(stdout(&ran).starts_with("mimalloc "), "{}", describe(&ran));
    let echoed = output(&mut world.imas(["run", "echo", "-n", "--", "--candidate"]));
    assert_eq!(stdout(&echoed), "-- --candidate", "{}", describe(&echoed));
}

#[test]
fn all_is_forgotten_at_once_and_answers_in_json() {
    let world = World::new();
    world.configure("retest_s = 0");
    for program in ["sort", "cat"] {
        assert!(world.start([program, "/dev/null"]).status.success());
    }
    let pinned = world.json(["pin", "sort", "system", "--json"]);
    assert_eq!((pinned["done"].as_bool(), text(&pinned, "/pinned")), (Some(true), "system"));
    assert_eq!(world.json(["unpin", "sort", "--json"])["done"], true);
    assert_eq!(output(&mut world.imas(["unpin", "sort", "--json"])).status.code(), Some(1));
    assert_eq!(
        world.json(["exclude", "add", "cat", "--json"])["path"].as_str().unwrap().rsplit('/').next(),
        Some("cat")
    );
    // Pages of programs that have ended are forgotten, too.
    assert!(world.start(["sort", "/dev/null"]).status.success());
    let forgotten = world.json(["forget", "--all", "--json"]);
    assert_eq!(list(&forgotten, "/programs").len(), 2, "{forgotten:#}");
    assert_eq!(forgotten["trials"], 3, "{forgotten:#}");
    assert_eq!(list(&world.json(["show", "--json"]), "/programs").len(), 0);
    let excluded = world.json(["exclude", "list", "--json"]);
    assert_eq!(list(&excluded, "/excluded").len(), 1, "exclusions must stay");
    world.start(["sort", "/dev/null"]);
    let one = output(&mut world.imas(["forget", "sort"]));
    assert!(stdout(&one).ends_with("is forgotten, with 1 start\n"), "{}", describe(&one));
    let both = output(&mut world.imas(["forget", "--all", "sort"]));
    assert_eq!(both.status.code(), Some(2), "{}", describe(&both));
}

#[test]
fn trials_and_other_starts_are_counted_apart() {
    let world = World::new();
    world.configure("candidates = ['mimalloc']\nmax_tests = 1\nretest_s = 0");
    let who = who(&world);
    for _ in 0..5 {
        assert!(world.start([&who]).status.success());
    }
    world.check(["pin", &who, "mimalloc"]).success();
    assert!(world.start([&who]).status.success());
    let shown = world.json(["show", &who, "--json"]);
    assert_eq!(shown["trials"], 2, "system and mimalloc, one trial each: {shown:#}");
    assert!(shown["starts"].as_u64().unwrap() >= 1, "{shown:#}");
}

#[test]
fn show_explains_why_nothing_was_learned() {
    let world = World::new();
    world.configure("candidates = ['mimalloc']\nretest_s = 0");
    for _ in 0..3 {
        assert!(world.start(["true"]).status.success());
    }
    let shown = stdout(&output(&mut world.imas(["show", "true"])));
    assert!(shown.contains("nothing was learned from 3 trials: the program allocates too little"), "{shown}");
}

#[test]
fn the_objective_is_named_as_the_reason() {
    let world = World::new();
    let start = ["run", "--policy", "adaptive", "--retest", "0", "--", "/usr/bin/sort", "/etc/services"];
    world.configure("candidates = ['mimalloc']");
    for _ in 0..2 {
        assert!(output(&mut world.imas(start)).status.success());
    }
    let trials = world.trials();
    let (store, sort) = world.forgotten_program();
    // A third less memory, in enough rounds for a proof.
    for round in 0..12_u32 {
        for trial in &trials {
            let mut trial = trial.clone();
            let (least, wobble) = if trial.sample.candidate == "system" { (90, 3) } else { (60, 2) };
            let mebibytes = least + u64::from(round % wobble);
            trial.sample.trial_id = format!("{round}-{}", trial.sample.trial_id);
            trial.sample.memory.resident_over_time = mebibytes << 20;
            trial.sample.usage.as_mut().unwrap().user_s = 1.0 + 0.001 * f64::from(round % 5);
            trial.sample.made_unix_s -= 60.0 * f64::from(12 - round);
            assert!(store.add_trial(sort.id, &trial).unwrap());
        }
    }
    drop(store);
    let words = "explain --policy adaptive --objective memory /usr/bin/sort".split(' ');
    let explained = stdout(&output(&mut world.imas(words)));
    assert!(explained.contains("The objective is memory, so the leanest candidate is used."), "{explained}");
    assert!(!explained.contains("Memory is short") && !explained.contains("from - on"), "{explained}");
}

#[test]
fn help_has_examples_and_a_heading_for_global_options() {
    let world = World::new();
    for verb in ["run", "show", "pin", "forget", "env", "bundle", "bench"] {
        let help = stdout(&output(&mut world.imas([verb, "--help"])));
        assert!(help.contains("Examples:") && help.contains(&format!("imas {verb}")), "{verb}: {help}");
        let options = help.split("Examples:").next().unwrap();
        let global = options.split("Global options:").nth(1).unwrap_or_else(|| panic!("{verb}: {help}"));
        assert!(global.contains("--store") && !global.contains("--candidate"), "{verb}: {help}");
    }
    let pages = world.work().join("man");
    world.check([Path::new("manpages"), &pages]).success();
    let page = std::fs::read_to_string(pages.join("imas.1")).unwrap();
    for section in ["FILES", "ENVIRONMENT", "EXIT STATUS"] {
        assert!(page.contains(&format!(".SH \"{section}\"")), "{section}");
    }
    for page in ["imas-bench.1", "imas-run.1", "imas-exclude-add.1", "imas-trim.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        for part in ["Examples:", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\"\nimas(1)"] {
            assert!(text.contains(part), "{page} lacks {part}: {text}");
        }
    }
    let settings = std::fs::read_to_string(pages.join("imas.toml.5")).unwrap();
    assert!(settings.contains("retest_s = 3600"), "{settings}");
    for file in ["imas.1", "imas.toml.5"] {
        let Ok(checked) = Command::new("man")
            .args(["--warnings", "-l"])
            .arg(pages.join(file))
            .env("MANWIDTH", "80")
            .output()
        else {
            imas_testing::skipped(&format!("how man formats {file}: man is not installed"));
            continue;
        };
        assert_eq!(stderr(&checked), "", "{file}");
    }
}

#[test]
fn completions_know_candidates_and_programs() {
    let world = World::new();
    assert!(world.start(["sort", "/dev/null"]).status.success());
    let complete = |words: &[&str]| {
        let mut imas = world.imas(["--"]);
        imas.args(words).env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        stdout(&output(
            imas.env("_CLAP_IFS", "\n")
                .env("_CLAP_COMPLETE_COMP_TYPE", "9")
                .env("_CLAP_COMPLETE_SPACE", "true"),
        ))
    };
    assert!(complete(&["imas", "pin", "sort", "jem"]).lines().any(|line| line == "jemalloc"));
    assert!(complete(&["imas", "show", "so"]).lines().any(|line| line == "sort"));
    assert!(complete(&["imas", "run", "--candidate", "mim"]).lines().any(|line| line == "mimalloc"));
    // These verbs are programs of their own, which answer for themselves.
    for (words, wanted) in [
        (&["imas", "top", "--on"][..], "--once"),
        (&["imas", "serve", "--lis"], "--listen"),
        (&["imas", "kube", "pol"], "policy"),
    ] {
        if crate::support::built("imas").with_file_name(format!("imas-{}", words[1])).exists() {
            let proposed = complete(words);
            assert!(proposed.lines().any(|line| line == wanted), "{words:?}: {proposed}");
        } else {
            imas_testing::skipped(&format!("imas-{} was not built", words[1]));
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&output(&mut world.imas(["completions", shell])));
        assert!(script.contains("COMPLETE"), "{shell}: {script}");
    }
}

// ---- what is known of a program ----------------------------------------------------------------------------

const WORK: &str = "my @a = map { \"number $_\" } 1 .. 60000";

/// A candidate that a bench measured needs no trial by a start.
#[test]
fn a_bench_is_remembered() {
    let world = World::new();
    world.configure("candidates = ['mimalloc']");
    let perl = crate::support::real("perl").to_string_lossy().into_owned();
    let adaptive = |words: &[&str]| {
        let mut imas = world.imas(words);
        imas.args(["--policy", "adaptive"]);
        stdout(&succeeded(output(&mut imas)))
    };
    succeeded(output(&mut world.imas(["bench", "-n", "4", "--with", "mimalloc", "--", &perl, "-e", WORK])));
    let shown: serde_json::Value = serde_json::from_str(&adaptive(&["show", &perl, "--json"])).unwrap();
    assert_eq!((&shown["trials"], &shown["of_bench"]), (&8.into(), &8.into()), "{shown:#}");
    assert_eq!(shown["next"]["trial"], false, "{shown:#}");
    assert!(shown["picks"].is_object(), "rounds of a bench are a comparison: {shown:#}");
    assert_eq!(list(&shown, "/standings").iter().filter(|one| one["rounds"] == 4).count(), 2, "{shown:#}");
    let explained = adaptive(&["explain", &perl]);
    assert!(explained.contains("measured by imas bench: 8 of 8 trials"), "{explained}");
    assert!(explained.contains("imas pin perl system") && !explained.contains("together"), "{explained}");
    // A program that is not short of work is proven nothing of by a bench of a program that starts others.
    let shell = format!("{perl} -e '{WORK}'; {perl} -e 1");
    succeeded(output(&mut world.imas(["bench", "-n", "2", "--with", "mimalloc", "--", "sh", "-c", &shell])));
    let of_shell = output(&mut world.imas(["show", "sh", "--json"]));
    assert!(!stdout(&of_shell).contains("measured by imas bench"), "{}", describe(&of_shell));
}

#[test]
fn a_program_that_is_hardly_known_is_one_line() {
    let world = World::new();
    world.configure("candidates = ['mimalloc', 'jemalloc']\nretest_s = 0");
    let perl = crate::support::real("perl").to_string_lossy().into_owned();
    for _ in 0..2 {
        let words = ["run", "--policy", "adaptive", "--", &perl, "-e", WORK];
        succeeded(output(&mut world.imas(words)));
    }
    let explained = stdout(&output(&mut world.imas(["explain", &perl, "--policy", "adaptive"])));
    assert_eq!(explained.lines().count(), 1, "{explained}");
    assert!(explained.contains(": nothing proven: 2 trials; next: "), "{explained}");
}

// ---- a bundle ---------------------------------------------------------------------------------------------

/// Starts a program with only the variables of the bundle's file.
fn with_bundle(program: &str, folder: &Path) -> String {
    let lines = std::fs::read_to_string(folder.join("imas.env")).unwrap();
    let mut command = Command::new(program);
    command.env_clear().envs(lines.lines().map(|line| line.split_once('=').unwrap()));
    stdout(&output(&mut command))
}

#[test]
fn a_bundle_is_all_that_is_needed() {
    let world = World::new();
    let who = who(&world);
    let at: PathBuf = world.work().join("elsewhere/imas");
    let at_text = at.to_string_lossy().into_owned();
    let out = world.work().join("bundle");
    for (candidate, serves) in [("jemalloc", "jemalloc "), ("glibc:lean", "libc")] {
        let mut imas = world.imas(["bundle", candidate, "--at", &at_text, "--out"]);
        let made = succeeded(output(imas.arg(&out)));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::rename(&out, &at).unwrap();
        assert!(with_bundle(&who, &at).starts_with(serves), "{candidate}: {}", describe(&made));
        let inherited = with_bundle("/usr/bin/env", &at);
        assert!(
            inherited.contains("IMAS_FOLLOW=1\n"),
            "{candidate}: children need the variables: {inherited}"
        );
        let readme = stdout(&made);
        assert!(readme.contains("bundle:/") || readme.contains("env-file bundle/"), "its own name: {readme}");
        assert!(readme.lines().all(|line| line.chars().count() <= 100), "{readme}");
        assert_eq!(readme.contains("glibc 2.26 or later"), candidate.starts_with("glibc"), "{readme}");
        let licences = std::fs::read_to_string(at.join("LICENCES")).unwrap();
        assert!(licences.contains("Apache License"), "{licences}");
        assert_eq!(licences.contains("jemalloc"), candidate.starts_with("jemalloc"));
        std::fs::remove_dir_all(&at).unwrap();
    }
    for (name, listing) in [("imas.tar", "-tf"), ("imas.tar.gz", "-tzf"), ("imas.tgz", "-tzf")] {
        let archive = world.work().join(name);
        succeeded(output(world.imas(["bundle", "mimalloc", "--out"]).arg(&archive)));
        let held = stdout(&output(Command::new("tar").arg(listing).arg(&archive)));
        for file in ["libimas-guard.so", "libmimalloc.so", "LICENCES", "README", "imas.env"] {
            assert!(held.lines().any(|line| line == format!("./{file}")), "{name}: {file}: {held}");
        }
    }
    let of_zip = output(&mut world.imas(["bundle", "mimalloc", "--out", "imas.zip"]));
    crate::support::assert_hinted(&of_zip, "an archive of this kind");
    assert!(!world.work().join("imas.zip").exists());
    std::fs::write(world.work().join("mine"), "").unwrap();
    let full = output(world.imas(["bundle", "mimalloc", "--out"]).arg(world.work()));
    crate::support::assert_hinted(&full, "other files");
}

/// In an image without libstdc++ no program starts under a library that is linked with it.
#[test]
fn a_bundle_that_needs_libstdcxx_says_so() {
    let world = World::new();
    if !world.lib_dir().join("allocators/libtcmalloc-google.so").exists() {
        return imas_testing::skipped("tcmalloc-google was not built");
    }
    let out = world.work().join("google");
    let made = succeeded(output(world.imas(["bundle", "tcmalloc-google", "--out"]).arg(&out)));
    assert!(stderr(&made).contains("for images with libstdc++ and glibc 2."), "{}", describe(&made));
    assert!(std::fs::read_to_string(out.join("README")).unwrap().contains("with libstdc++ and glibc 2."));
}

/// An entry point that is a script executes the server, which is reached.
#[test]
fn settings_for_containers_reach_what_an_entry_point_executes() {
    let world = World::new();
    let env = ["env", "--candidate", "jemalloc", "--bundle", "/opt/imas", "--format"];
    for format in ["dockerfile", "compose", "kubernetes"] {
        let plain = succeeded(output(world.imas(env).arg(format)));
        assert!(stdout(&plain).contains("IMAS_FOLLOW"), "{format}: {}", describe(&plain));
    }
    let out = world.work().join("bundle");
    succeeded(output(world.imas(["bundle", "jemalloc", "--out"]).arg(&out)));
    let readme = std::fs::read_to_string(out.join("README")).unwrap();
    assert!(readme.contains("everything that executes in turn"), "{readme}");
}

#[test]
fn env_prints_paths_of_a_bundle_or_of_an_installation() {
    let world = World::new();
    let of_bundle = |format: &str| {
        let words = ["env", "--candidate", "jemalloc", "--bundle", "/opt/imas", "--format", format];
        let output = succeeded(output(&mut world.imas(words)));
        stdout(&output)
    };
    let checkout = crate::support::workspace().to_string_lossy().into_owned();
    for format in ["sh", "systemd", "dockerfile", "compose", "kubernetes"] {
        let printed = of_bundle(format);
        assert!(
            printed.contains("/opt/imas/libimas-guard.so:/opt/imas/libjemalloc.so"),
            "{format}: {printed}"
        );
        assert!(!printed.contains(&checkout), "{format}: {printed}");
    }
    let wrong = output(&mut world.imas([
        "env",
        "--candidate",
        "jemalloc",
        "--format",
        "kubernetes",
        "--image",
        "Imas",
    ]));
    assert!(stderr(&wrong).contains("names are in small letters"), "{}", describe(&wrong));
    let compose = of_bundle("compose");
    assert!(compose.contains("source: \"./imas\"\n        target: \"/opt/imas\"\n"), "{compose}");
    assert!(compose.contains("imas bundle jemalloc --out imas\n"), "{compose}");
    let mut unnamed = world.imas(["env", "--candidate", "jemalloc"]);
    let from_checkout = output(unnamed.env_remove("IMAS_LIB_DIR"));
    if !stderr(&from_checkout).contains("no catalogue.toml") {
        assert_eq!(from_checkout.status.code(), Some(2), "{}", describe(&from_checkout));
        crate::support::assert_hinted(&from_checkout, "checkout");
    }
}
