// SPDX-License-Identifier: Apache-2.0
//! The version of a JDK, from the file `release` in its folder.

use std::path::Path;

use super::{FoundRuntime, Runtime, is_version};
use crate::plain_file;

/// Such a file has about a kibibyte.
const MOST_BYTES: usize = 64 << 10;
/// Folders above the launcher that are looked into: `bin`, and before Java 9 `jre/bin`.
const MOST_ABOVE: usize = 3;

/// The runtime with its version, for a launcher at this path.
#[must_use]
pub fn with_version(mut found: FoundRuntime, launcher: &Path) -> FoundRuntime {
    if found.runtime == Runtime::Jvm && found.version.is_none() {
        let folders = launcher.ancestors().skip(1).take(MOST_ABOVE);
        found.version = folders.filter_map(|folder| version_in(&folder.join("release"))).next();
    }
    found
}

fn version_in(release: &Path) -> Option<String> {
    let bytes = plain_file::read(release, MOST_BYTES).ok()?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    let version = value.trim().trim_matches('"');
    // Before Java 9 they began with `1.`.
    let version = version.strip_prefix("1.").unwrap_or(version);
    is_version(version).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeEntry;

    fn version(release: &str, launcher: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("release"), release).unwrap();
        let found = FoundRuntime {
            runtime: Runtime::Jvm,
            by: String::new(),
            version: None,
            entry: RuntimeEntry::Own,
        };
        with_version(found, &folder.path().join(launcher)).version
    }

    #[test]
    fn the_version_is_that_of_the_folder_above_the_launcher() {
        let release = "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"17.0.15\"\nLIBC=\"gnu\"\n";
        assert_eq!(version(release, "bin/java").unwrap(), "17.0.15");
        assert_eq!(version("JAVA_VERSION=\"1.8.0_402\"\n", "jre/bin/java").unwrap(), "8.0_402");
        assert_eq!(version(release, "a/b/c/java"), None, "not looked for further up");
    }

    #[test]
    fn nonsense_is_no_version() {
        for bad in ["", "JAVA_VERSION=", "JAVA_VERSION=\"a b\"", "JAVA_VERSION=\"17\x1b[2J\"", "X"] {
            assert_eq!(version(bad, "bin/java"), None, "{bad:?}");
        }
        assert_eq!(version(&"x".repeat(MOST_BYTES + 1), "bin/java"), None);
    }
}
