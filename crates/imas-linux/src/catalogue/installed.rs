// SPDX-License-Identifier: Apache-2.0
//! Libraries of the distribution: where the loader would find them, and which build they are.

use std::path::{Path, PathBuf};

use crate::elf;

/// The folders of the common distributions, in the order of glibc's loader: multiarch first, then the plain
/// ones.
fn folders() -> impl Iterator<Item = PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual =
        [format!("/lib/{multiarch}"), format!("/usr/lib/{multiarch}"), "/lib64".into(), "/usr/lib64".into()];
    let plain = ["/lib", "/usr/lib", "/usr/local/lib"].map(String::from);
    usual.into_iter().chain(plain).map(PathBuf::from)
}

/// The library of that soname, if it is installed.
pub(crate) fn find(soname: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(soname)).find(|file| file.is_file())
}

/// `build` and the first 12 digits of its build-id: the version that changes whenever the library does.
/// `None` without one.
#[must_use]
pub fn build_of(library: &Path) -> Option<String> {
    let id = elf::build_id(library).ok()??;
    Some(format!("build {}", id.get(..12).unwrap_or(&id)))
}
