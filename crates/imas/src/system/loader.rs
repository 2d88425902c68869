// SPDX-License-Identifier: Apache-2.0
//! The machine's dynamic linkers, and what each puts for `$LIB`. They are asked: it depends on how the distribution built them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a dynamic linker can be, which programs it is for, and the folder with our library for them below the library folder.
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
pub(super) struct Loader {
    pub(super) path: PathBuf,
    /// Whether it is the one of programs like this.
    pub(super) native: bool,
    /// Folder of our library for its programs, below the library folder.
    pub(super) folder: &'static str,
    /// What it puts for `$LIB`, like `lib/x86_64-linux-gnu`.
    pub(super) lib: String,
}

/// Those that are here and answer, this command's own first.
pub(super) fn all() -> Vec<Loader> {
    let asked = KNOWN.iter().filter_map(|&(path, native, folder)| {
        let path = PathBuf::from(path);
        let lib = ask(&path)?;
        Some(Loader { path, native, folder, lib })
    });
    asked.collect()
}

/// `ld.so --list-diagnostics` (glibc 2.33 and later) prints `dl_dst_lib="lib/x86_64-linux-gnu"`.
fn ask(loader: &Path) -> Option<String> {
    let mut command = Command::new(loader);
    command.arg("--list-diagnostics").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().ok()?.stdout;
    lib_of(&String::from_utf8_lossy(&said))
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
    }
}
