// SPDX-License-Identifier: Apache-2.0
//! Broken catalogues, settings and installations, and missing parts of the environment. Then full and read-only disks and a
//! missing `/proc`, in a mount namespace of their own; and pages that are damaged, belong to another user, or are not files.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use imas_core::sample::Ended;
use imas_testing::skipped;

use super::{assert_started_untouched, who};
use crate::support::{
    INGEST, World, assert_hinted, assert_printed, assert_refused, candidate, describe, lib_dir, list, output,
    stderr, stdout, succeeded, text, wait_until,
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

/// The reason why a test of this file cannot run.
const NO_MOUNT: &str = "mounting is not allowed here, not even in a user namespace";

/// Runs imas with a file system of `options` mounted at a folder, in a mount namespace. `None` if mounting is
/// not allowed.
fn with_mount(options: &str, folder: &Path, imas: &Command) -> Option<Output> {
    let script = "mount -t tmpfs -o \"$1\" imas-test \"$2\" || exit 77; shift 2; exec \"$@\"";
    let arguments: Vec<_> =
        std::iter::once(imas.get_program()).chain(imas.get_args()).map(OsStr::to_owned).collect();
    let environment: Vec<_> =
        imas.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    for namespace in [&["-m"][..], &["-r", "-m"]] {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", script, "sh", options]).arg(folder).args(&arguments);
        let output = output(command.env_clear().envs(environment.iter().cloned()).stdin(Stdio::null()));
        let refused = output.status.code() == Some(77) || stderr(&output).contains("unshare");
        if !refused {
            return Some(output);
        }
    }
    None
}

#[test]
fn a_full_disk_for_pages_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let mut imas = world.imas(["run", "--retest", "0", "--"]);
    imas.arg(&program);
    let Some(started) = with_mount("size=4k,mode=700", world.runtime(), &imas) else {
        return skipped(NO_MOUNT);
    };
    assert_started_untouched(&started, "no trial page: ");
    assert!(stderr(&started).contains("No space left"), "{}", describe(&started));
}

/// A chroot in which nothing is mounted has no `/proc` either.
#[test]
fn a_missing_proc_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let mut imas = world.imas(["run", "--retest", "0", "--"]);
    imas.arg(&program);
    let Some(started) = with_mount("size=4k", Path::new("/proc"), &imas) else { return skipped(NO_MOUNT) };
    assert_eq!(started.status.code(), Some(0), "{}", describe(&started));
    assert!(!stdout(&started).is_empty(), "{}", describe(&started));
}

#[test]
fn a_full_or_read_only_disk_for_the_store_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    let folder = world.store_path().parent().unwrap().to_owned();
    std::fs::create_dir_all(&folder).unwrap();
    for options in ["size=4k", "size=16k", "size=40k", "size=64k", "ro"] {
        let mut imas = world.imas(["run", "--retest", "0", "--"]);
        imas.arg(&program);
        let Some(started) = with_mount(options, &folder, &imas) else { return skipped(NO_MOUNT) };
        assert_eq!(
            (started.status.code(), stdout(&started).as_str()),
            (Some(0), "libc\n"),
            "{options}: {}",
            describe(&started)
        );
        assert!(stderr(&started).contains("store"), "{options}: {}", describe(&started));
        let rejected = stderr(&started).contains("does not fit this version");
        assert!(
            !rejected,
            "{options}: a full disk must not be reported as a wrong version: {}",
            describe(&started)
        );
    }
}

/// A finished trial that cannot be stored must stay until it can.
#[test]
fn no_sample_is_lost_to_a_full_disk() {
    let world = World::new();
    let program = who(&world);
    assert!(world.start([&program]).status.success());
    let kept = page(&world);
    let folder = world.store_path().parent().unwrap().to_owned();
    for options in ["size=4k", "size=40k", "size=100k", "ro"] {
        if with_mount(options, &folder, &world.imas(INGEST)).is_none() {
            return skipped(NO_MOUNT);
        }
        assert!(kept.exists(), "{options}");
    }
    assert_eq!(world.trials().len(), 1);
    assert!(!kept.exists());
}

/// A whole bundle is there afterwards, or nothing.
#[test]
fn a_full_disk_leaves_no_partial_bundle() {
    let world = World::new();
    let disk = world.work().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let imas = crate::support::built("imas");
    for out in ["disk/bundle", "disk", "disk/bundle.tar"] {
        let line = format!("{} bundle jemalloc --out {out}; echo $?; ls -A disk", imas.display());
        let mut shell = world.command("sh");
        shell.args(["-c", &format!("cd '{}' && {line}", world.work().display())]);
        let Some(made) = with_mount("size=64k", &disk, &shell) else { return skipped(NO_MOUNT) };
        assert_eq!(stdout(&made), "2\n", "{out}: {}", describe(&made));
        let told = stderr(&made);
        assert!(
            ["No space left", "tar failed"].iter().any(|why| told.contains(why)),
            "{out}: {}",
            describe(&made)
        );
    }
}

/// Path of the only page.
pub(crate) fn page(world: &World) -> PathBuf {
    let names = world.page_files();
    let [name] = &names[..] else { panic!("{names:?}") };
    world.pages().join(name)
}

fn age(file: &Path) {
    let opened = std::fs::File::options().write(true).open(file).unwrap();
    opened.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

#[test]
fn damaged_pages_are_set_aside_with_a_message() {
    let world = World::new();
    let program = who(&world);
    world.tests_six("");
    world.start([&program]);
    let good = std::fs::read(page(&world)).unwrap();
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let hostile: [(&str, Vec<u8>); 7] = [
        ("empty", vec![]),
        ("garbage", b"garbage\n".repeat(2048)),
        ("cut", good[..good.len() / 2].to_vec()),
        ("long", [&good[..], b"x"].concat()),
        ("magic", changed(0, 0)),
        ("version", changed(8, 200)),
        ("kind", changed(16, 9)),
    ];
    for (name, bytes) in &hostile {
        let file = world.pages().join(format!("{name}.page"));
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        age(&file);
    }
    let started = world.start([&program]);
    assert_eq!(stdout(&started), "libc\n", "{}", describe(&started));
    for (name, bytes) in &hostile {
        let aside = world.pages().join(format!("{name}.page.damaged"));
        assert_eq!(&std::fs::read(&aside).unwrap(), bytes, "{name} must be kept unchanged");
        assert!(stderr(&started).contains(&format!("{name}.page.damaged")), "{name}: {}", describe(&started));
    }
    let quiet = world.start([&program]);
    assert_eq!(stderr(&quiet), "", "the message must appear once");
    let doctor = world.json(["doctor", "--json"]);
    let pages = list(&doctor, "/findings").iter().find(|finding| finding["what"] == "trial pages").unwrap();
    assert_eq!(pages["state"], "note");
    assert!(text(pages, "/says").contains("7 damaged"), "{pages:#}");
    assert_eq!(world.trials().len(), 3, "the good pages must be stored");
}

/// An entry that is not a file must neither block nor be followed.
#[test]
fn only_a_regular_file_is_read_as_a_page() {
    let world = World::new();
    let program = who(&world);
    world.tests_six("");
    world.start([&program]);
    world.trials();
    let pages = world.pages();
    std::fs::create_dir(pages.join("folder.page")).unwrap();
    symlink("/etc/passwd", pages.join("link.page")).unwrap();
    symlink("/dev/zero", pages.join("device.page")).unwrap();
    symlink("/no/such/file", pages.join("dangling.page")).unwrap();
    let made = output(world.command("mkfifo").arg(pages.join("pipe.page")));
    assert!(made.status.success());
    let started = succeeded(world.start([&program]));
    assert!(stdout(&started).starts_with("libc"), "{}", describe(&started));
    assert_eq!(world.trials().len(), 2);
    assert!(Path::new("/etc/passwd").is_file());
}

/// A page that belongs to another user, or claims to, must not count.
#[test]
fn a_page_of_another_user_is_rejected() {
    let world = World::new();
    let program = who(&world);
    world.tests_six("");
    world.start([&program]);
    let file = page(&world);
    let mut bytes = std::fs::read(&file).unwrap();
    // Bytes 24 to 27 hold the uid.
    bytes[24..28].copy_from_slice(&12_345_u32.to_ne_bytes());
    std::fs::write(&file, bytes).unwrap();
    age(&file);
    let started = world.start([&program]);
    assert!(stderr(&started).contains("could not be read"), "{}", describe(&started));
    assert_eq!(world.trials().len(), 1);
}

#[test]
fn a_folder_of_pages_that_others_reach_is_refused() {
    let world = World::new();
    let program = who(&world);
    let (of_user, of_store) = (world.runtime().join("imas"), world.pages());
    for folder in [&of_user, &of_store] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let started = world.start([&program]);
        assert_started_untouched(&started, "not a folder of this user with mode 0700");
        std::fs::remove_dir(folder).unwrap();
        std::fs::write(folder, "a file").unwrap();
        assert_started_untouched(&world.start([&program]), "not a folder of this user");
        std::fs::remove_file(folder).unwrap();
        // The one for all stores, as it should be, for the next round.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(&of_user);
    }
}
