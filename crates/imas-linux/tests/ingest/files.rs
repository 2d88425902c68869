// SPDX-License-Identifier: Apache-2.0
//! Which files are read as pages, and which are not.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::common::changed;
use imas_abi::Page as Raw;
use imas_linux::ingest::{ExpectedPage, PageError, ParsedPage, ReadError, read_page_at, read_page_file};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use tempfile::TempDir;

const NOW_S: f64 = 1_800_000_000.0;

struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A page of the user who runs the test, at `page`.
    fn page(&self, change: impl FnOnce(&mut Raw)) -> PathBuf {
        let bytes = changed(|p| {
            p.header.uid = geteuid().as_raw();
            change(p);
        });
        fs::write(self.path("page"), bytes).unwrap();
        self.path("page")
    }

    /// Reads by path and by directory, and checks that both say the same.
    fn read(&self, name: &str) -> Result<ParsedPage, ReadError> {
        let expected = ExpectedPage { uid: geteuid().as_raw(), now_unix_s: NOW_S };
        let by_path = read_page_file(&self.path(name), &expected);
        let by_dir = read_page_at(File::open(self.dir.path()).unwrap(), OsStr::new(name), &expected);
        assert_eq!(format!("{by_path:?}"), format!("{by_dir:?}"));
        by_path
    }
}

#[test]
fn an_honest_file_is_read() {
    let folder = Folder::new();
    folder.page(|_| ());
    assert_eq!(folder.read("page").unwrap().pid, 4321);
}

#[test]
fn a_page_dated_in_the_future_gets_the_present_time() {
    let folder = Folder::new();
    folder.page(|p| p.header.made_unix_ns = 1_900_000_000_000_000_000);
    assert_eq!(folder.read("page").unwrap().made_unix_s, NOW_S);
}

#[test]
fn links_are_refused() {
    let folder = Folder::new();
    let page = folder.page(|_| ());
    symlink(&page, folder.path("link")).unwrap();
    let error = folder.read("link").unwrap_err();
    let eloop = rustix::io::Errno::LOOP.raw_os_error();
    assert!(matches!(&error, ReadError::Io(e) if e.raw_os_error() == Some(eloop)), "{error}");
    fs::hard_link(&page, folder.path("hard")).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Links(2))));
}

#[test]
fn only_regular_files_are_read_and_a_pipe_does_not_block() {
    let folder = Folder::new();
    mknodat(CWD, folder.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(matches!(folder.read("pipe"), Err(ReadError::NotRegular)));
    fs::create_dir(folder.path("dir")).unwrap();
    assert!(matches!(folder.read("dir"), Err(ReadError::NotRegular)));
    assert!(matches!(folder.read("none"), Err(ReadError::Io(_))));
}

#[test]
fn a_file_of_another_size_is_not_even_read() {
    let folder = Folder::new();
    let page = folder.page(|_| ());
    File::options().write(true).open(&page).unwrap().set_len(16_383).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Page(PageError::Size(16_383)))));
    File::options().write(true).open(&page).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(folder.read("page"), Err(ReadError::Page(PageError::Size(_)))));
}

#[test]
fn the_owner_must_be_the_expected_one() {
    let folder = Folder::new();
    let page = folder.page(|p| p.header.uid = 77);
    assert!(matches!(folder.read("page"), Err(ReadError::Owner { found: 77, .. })));
    let stranger = ExpectedPage { uid: geteuid().as_raw() + 1, now_unix_s: NOW_S };
    let found = geteuid().as_raw();
    assert!(matches!(read_page_file(&page, &stranger), Err(ReadError::Owner { found: f, .. }) if f == found));
}

#[test]
fn a_name_is_not_a_path() {
    let folder = Folder::new();
    folder.page(|_| ());
    let expected = ExpectedPage { uid: geteuid().as_raw(), now_unix_s: NOW_S };
    let dir = File::open(folder.dir.path()).unwrap();
    assert!(matches!(read_page_at(&dir, OsStr::new("./page"), &expected), Err(ReadError::Name)));
}

#[test]
fn an_error_names_what_failed_and_why() {
    let error = ReadError::Owner { found: 5, expected: 1000 };
    assert_eq!(error.to_string(), "trial page belongs to uid 5, not to uid 1000");
}
