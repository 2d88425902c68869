// SPDX-License-Identifier: Apache-2.0
//! Full and read-only disks and a missing `/proc`, in a mount namespace of their own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use imas_testing::skipped;

use super::pages::page;
use super::{assert_started_untouched, who};
use crate::support::{World, describe, output, stderr, stdout};

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
