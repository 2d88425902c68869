// SPDX-License-Identifier: Apache-2.0
//! Full and read-only disks and a missing `/proc`, in a mount namespace of their own; and pages that are damaged,
//! belong to another user, or are not files.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use imas_testing::skipped;

use super::{assert_started_untouched, who};
use crate::support::{World, describe, list, output, stderr, stdout, succeeded, text};

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
        if with_mount(options, &folder, &world.imas(["harvest"])).is_none() {
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
