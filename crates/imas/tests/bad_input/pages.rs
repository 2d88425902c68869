// SPDX-License-Identifier: Apache-2.0
//! Pages that are damaged, belong to another user, or are not files.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{assert_started_untouched, who};
use crate::support::{World, describe, list, output, stderr, stdout, succeeded, text};

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
