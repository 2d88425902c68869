// SPDX-License-Identifier: Apache-2.0
//! The small file of a program: in the folder of the store's pages, which is this user's alone and in memory.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use imas_linux::fnv::fnv64;
use imas_linux::page;
use imas_linux::program::Program;
use imas_linux::replace_file::replace;
use rustix::fs::{Mode, OFlags, open};

use super::settled_start::SettledStart;

const FOLDER: &str = "settled";
/// Most files; beyond it all are removed: programs with ever new names must not fill the memory.
const MOST_FILES: usize = 500;
/// A longer file is none of ours.
const MOST_BYTES: u64 = 64 << 10;

fn place(pages: &Path, program: &Program) -> PathBuf {
    let key = [program.path.as_os_str().as_encoded_bytes(), b"\0", program.detail.as_bytes()].concat();
    pages.join(FOLDER).join(format!("{:016x}", fnv64(&key)))
}

/// The program's settled start, if its file is there, is this user's, and is whole.
pub(super) fn read(pages: &Path, program: &Program) -> Option<SettledStart> {
    let path = place(pages, program);
    page::check_private(path.parent()?).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(open(&path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    let is_ours = about.is_file()
        && about.uid() == nix::unistd::getuid().as_raw()
        && about.mode() & 0o022 == 0
        && about.len() <= MOST_BYTES;
    let mut text = String::new();
    let read = is_ours.then(|| file.take(MOST_BYTES).read_to_string(&mut text).ok()).flatten();
    read.and_then(|_| SettledStart::decoded(&text))
}

/// Writes the file in place of an earlier one. None where that fails.
pub(super) fn write(pages: &Path, settled: &SettledStart) -> Option<()> {
    let path = place(pages, &settled.program());
    let folder = path.parent()?;
    page::private_folder(folder).ok()?;
    if std::fs::read_dir(folder).ok()?.count() > MOST_FILES {
        std::fs::remove_dir_all(folder).ok()?;
        page::private_folder(folder).ok()?;
    }
    replace(&path, settled.encoded()?.as_bytes()).ok()
}
