// SPDX-License-Identifier: Apache-2.0
//! The machine's dynamic linkers, and what each puts for `$LIB`. They are asked: it depends on how the
//! distribution built them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Places where a dynamic linker can be: its path, whether it is for programs of this build's kind, and the
/// folder with our library for its programs below the library folder.
#[cfg(target_arch = "x86_64")]
const KNOWN: &[(&str, bool, &str)] =
    &[("/lib64/ld-linux-x86-64.so.2", true, ""), ("/lib/ld-linux.so.2", false, "i386")];
#[cfg(target_arch = "aarch64")]
const KNOWN: &[(&str, bool, &str)] =
    &[("/lib/ld-linux-aarch64.so.1", true, ""), ("/lib/ld-linux-armhf.so.3", false, "armhf")];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const KNOWN: &[(&str, bool, &str)] = &[];

/// One dynamic linker.
#[derive(Debug, Clone)]
pub struct Loader {
    /// The file itself.
    pub path: PathBuf,
    /// Whether the dynamic linker is that of programs like this.
    pub native: bool,
    /// Folder of our library for its programs, below the library folder.
    pub folder: &'static str,
    /// Text that the dynamic linker puts for `$LIB`, like `lib/x86_64-linux-gnu`.
    pub lib: String,
}

/// Dynamic linkers that are here and answer, this command's own first.
#[must_use]
pub fn all() -> Vec<Loader> {
    let asked = KNOWN.iter().filter_map(|&(path, native, folder)| {
        let path = PathBuf::from(path);
        let lib = ask(&path)?;
        Some(Loader { path, native, folder, lib })
    });
    asked.collect()
}

/// Text that the dynamic linker of programs like this puts for `$LIB`. It is asked once a process, which
/// takes about a millisecond.
#[must_use]
pub fn own_lib() -> Option<&'static str> {
    static LIB: OnceLock<Option<String>> = OnceLock::new();
    let ask_native =
        || KNOWN.iter().find(|(_, native, _)| *native).and_then(|(path, ..)| ask(Path::new(path)));
    LIB.get_or_init(ask_native).as_deref()
}

/// `ld.so --list-diagnostics` (glibc 2.33 and later) prints `dl_dst_lib="lib/x86_64-linux-gnu"`.
fn ask(loader: &Path) -> Option<String> {
    let mut command = Command::new(loader);
    command.arg("--list-diagnostics").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let answer = command.output().ok()?.stdout;
    lib_of(&String::from_utf8_lossy(&answer))
}

fn lib_of(diagnostics: &str) -> Option<String> {
    let line = diagnostics.lines().find_map(|line| line.strip_prefix("dl_dst_lib=\""))?;
    let lib = line.strip_suffix('"')?;
    // It becomes a folder below ours.
    let plain = !lib.is_empty()
        && !lib.starts_with('/')
        && lib.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain.then(|| lib.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_a_relative_folder() {
        assert_eq!(
            lib_of("a=\"b\"\ndl_dst_lib=\"lib/x86_64-linux-gnu\"\n").as_deref(),
            Some("lib/x86_64-linux-gnu")
        );
        for bad in
            ["", "dl_dst_lib=\"\"", "dl_dst_lib=\"../x\"", "dl_dst_lib=\"/lib\"", "dl_dst_lib=\"a//b\""]
        {
            assert_eq!(lib_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_machines_linker_answers() {
        assert!(all().first().is_some_and(|loader| loader.native && loader.lib.starts_with("lib")));
        assert_eq!(own_lib(), all().first().map(|loader| loader.lib.as_str()));
    }
}
