// SPDX-License-Identifier: Apache-2.0
//! The name by which a file was started, where it makes another program of the file: `redis-server` is a link to
//! `redis-check-rdb`, and `xzcat` one to `xz` (docs/decisions/0037).
//!
//! A name does not count where it leads to the same program by another path: a link of the alternatives, of a version
//! (`python3` to `python3.11`) or of a target (`gcc` to `x86_64-linux-gnu-gcc-12`), and that of an interpreter, whose
//! programs are told apart by what they run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::interpreter_target::Interpreter;

/// How the name is written in place of what an interpreter is given: `as NAME`.
const AS: &str = "as ";
/// Links that the machine's operator may lead to another file of the same purpose.
const ALTERNATIVES: &str = "/etc/alternatives";
/// Number of links that the kernel follows.
const MOST_LINKS: usize = 40;
/// Path of a program that is named without its folder.
const FOLDERS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

/// The detail of the program that is started as `started`, a path that leads to the file `real`. Empty where the file
/// alone says what program it is.
#[must_use]
pub fn detail(real: &Path, started: &Path) -> String {
    let names = started.file_name().zip(real.file_name());
    let Some((name, file)) = names.filter(|(name, file)| name != file) else { return String::new() };
    let is_same = Interpreter::of(real).is_some() || is_variant(name, file) || is_alternative(started);
    if is_same { String::new() } else { format!("{AS}{}", name.to_string_lossy()) }
}

/// The detail of a running process of the file `real`, from its first argument: only a name under which a link to the
/// file is found. A path that the process names is looked at: only a helper may ([`crate::foreign_process`]).
#[must_use]
pub(crate) fn detail_of_running(real: &Path, first_argument: &OsStr) -> String {
    detail_by_link(real, first_argument, true)
}

/// The detail of a running process of the file `real` that may be anybody's, from its first argument. No path
/// that the process names is looked at, only links beside the file and in the folders of programs.
#[must_use]
pub fn detail_of_foreign(real: &Path, first_argument: &OsStr) -> String {
    detail_by_link(real, first_argument, false)
}

fn detail_by_link(real: &Path, first_argument: &OsStr, is_trusted: bool) -> String {
    // Daemons write what they do after their name.
    let word = first_argument.as_bytes().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let word = Path::new(OsStr::from_bytes(word.strip_suffix(b":").unwrap_or(word)));
    let Some(name) = word.file_name().filter(|name| real.file_name() != Some(*name)) else {
        return String::new();
    };
    let beside = real.parent().map(|folder| folder.join(name));
    let named = Some(word.to_owned()).filter(|word| is_trusted && word.is_absolute());
    let elsewhere = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let places = named.into_iter().chain(beside).chain(elsewhere);
    let leads_there = |place: &PathBuf| std::fs::canonicalize(place).is_ok_and(|found| found == real);
    places.into_iter().find(leads_there).map_or_else(String::new, |started| detail(real, &started))
}

/// The name in such a detail.
#[must_use]
pub fn name_of_detail(detail: &str) -> Option<&str> {
    detail.strip_prefix(AS)
}

/// Whether a program of that detail is meant by another one: itself, or the file where its name is not known.
#[must_use]
pub fn is_meant(known: &str, running: &str) -> bool {
    known == running || (known.is_empty() && name_of_detail(running).is_some())
}

/// Whether one name is the other with a version behind it, or a target before it.
fn is_variant(name: &OsStr, file: &OsStr) -> bool {
    let stem = |name: &OsStr| {
        let is_version = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        name.to_string_lossy().trim_end_matches(is_version).to_owned()
    };
    let (name, file) = (stem(name), stem(file));
    name == file || file.strip_suffix(&name).is_some_and(|target| target.ends_with('-'))
}

/// Whether the path leads through a link of the alternatives.
fn is_alternative(started: &Path) -> bool {
    let mut path = started.to_owned();
    for _ in 0..MOST_LINKS {
        if path.starts_with(ALTERNATIVES) {
            return true;
        }
        let Ok(target) = std::fs::read_link(&path) else { return false };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_or_a_target_is_the_same_program() {
        let of = |name: &str, file: &str| detail(&Path::new("/b").join(file), &Path::new("/b").join(name));
        for (name, file) in [
            ("redis-server", "redis-check-rdb"),
            ("xzcat", "xz"),
            ("ls", "busybox"),
            ("clang++", "clang"),
            ("ld.lld", "lld"),
            ("unpigz", "pigz"),
        ] {
            assert_eq!(of(name, file), format!("as {name}"));
        }
        for (name, file) in [
            ("python3", "python3.11"),
            ("gcc", "gcc-12"),
            ("gcc", "x86_64-linux-gnu-gcc-12"),
            ("sort", "sort"),
            ("sh", "dash"),
            ("node", "nodejs"),
        ] {
            assert_eq!(of(name, file), "", "{name} is {file}");
        }
    }

    #[test]
    fn a_running_process_is_named_by_a_link_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let real = folder.join("multi");
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink("multi", folder.join("one")).unwrap();
        let of = |argument: &str| detail_of_running(&real, OsStr::new(argument));
        assert_eq!(of("one"), "as one");
        assert_eq!(of(&format!("{}/one *:6379", folder.display())), "as one");
        assert_eq!(of("one: worker"), "as one");
        for other in ["multi", "two", "", "sort"] {
            assert_eq!(of(other), "", "{other}");
        }
        assert_eq!(name_of_detail("as one"), Some("one"));
        assert!(is_meant("", "as one") && is_meant("as one", "as one") && !is_meant("as two", "as one"));
        assert!(!is_meant("", "/script"));
    }
}
