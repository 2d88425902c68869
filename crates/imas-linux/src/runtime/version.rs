// SPDX-License-Identifier: Apache-2.0
//! Ranges of versions, such as `>=17.0.9` or `>=1.19,<2`. Versions of runtimes have one number or several, so
//! semantic versions do not fit.
//!
//! Text of the Go linker in each program: the section `.go.buildinfo`.
//!
//! The version of a JDK, from the file `release` in its folder.

use std::cmp::Ordering;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FoundRuntime, Runtime};
use crate::files;

/// Limit for the length of a version.
const LONGEST: usize = 32;

/// Whether the text can be shown as a version: it begins with a digit, and has nothing odd in it.
#[must_use]
pub fn is_version(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-');
    text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(is_plain)
}

/// A range of versions; the empty one has all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionRange {
    text: String,
}

impl VersionRange {
    /// The range that the text means; `None` where it means none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_right = text.is_empty() || parts(text).all(|part| part.is_some());
        is_right.then(|| Self { text: text.to_owned() })
    }

    /// Whether the version is in the range.
    #[must_use]
    pub fn has(&self, version: &str) -> bool {
        self.is_everything()
            || parts(&self.text).flatten().all(|(sign, bound)| sign.allows(compare(version, bound)))
    }

    /// Whether every version is in the range.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether a version may be too new for it.
    #[must_use]
    pub fn has_end(&self) -> bool {
        parts(&self.text).flatten().any(|(sign, _)| matches!(sign, Sign::Below))
    }

    /// The range as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Debug, Clone, Copy)]
enum Sign {
    AtLeast,
    Below,
}

impl Sign {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::AtLeast => order != Ordering::Less,
            Self::Below => order == Ordering::Less,
        }
    }
}

fn parts(text: &str) -> impl Iterator<Item = Option<(Sign, &str)>> {
    text.split(',').map(|part| {
        let part = part.trim();
        let signs = [(">=", Sign::AtLeast), ("<", Sign::Below)];
        let (sign, bound) =
            signs.iter().find_map(|(sign, means)| Some((*means, part.strip_prefix(sign)?)))?;
        is_version(bound).then_some((sign, bound))
    })
}

/// Compares number by number; what is missing counts as 0.
fn compare(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        // A letter ends it: 1.21rc2 is 1.21, which it becomes.
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(text.len());
        text[..end].split(['.', '_']).map(|number| number.parse().unwrap_or(0)).collect()
    };
    let (mut a, mut b) = (numbers(a), numbers(b));
    let length = a.len().max(b.len());
    a.resize(length, 0);
    b.resize(length, 0);
    a.cmp(&b)
}

/// Bytes of the section that are looked at.
pub const GO_BUILD_BYTES: usize = 512;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Flags of the header: bit 1 says that the texts follow it. Before Go 1.18 pointers did.
const FLAGS_AT: usize = 15;
const TEXTS_FOLLOW: u8 = 2;
const TEXTS_AT: usize = 32;

/// Version of Go that made the program, such as `1.26.8`, from the beginning of the section. `None` if it is
/// no such section; `Some(None)` if it is one of an older Go.
#[must_use]
pub fn go_version(section: &[u8]) -> Option<Option<String>> {
    section.starts_with(MAGIC).then(|| version(section))
}

fn version(section: &[u8]) -> Option<String> {
    if section.get(FLAGS_AT)? & TEXTS_FOLLOW == 0 {
        return None;
    }
    // A varint; a version that needs two bytes for its length is none.
    let length = section.get(TEXTS_AT).filter(|length| **length < 0x80)?;
    let text = section.get(TEXTS_AT + 1..)?.get(..usize::from(*length))?;
    let text = std::str::from_utf8(text).ok()?.strip_prefix("go")?;
    super::is_version(text).then(|| text.to_owned())
}

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
    let bytes = files::read_plain(release, MOST_BYTES).ok()?;
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

    #[test]
    fn numbers_are_compared_and_not_letters() {
        let has = |range: &str, version: &str| VersionRange::parse(range).unwrap().has(version);
        assert!(has(">=17", "17") && has(">=17", "17.0.15") && has(">=17", "21") && !has(">=17", "8.0_402"));
        assert!(has(">=17.0.9", "17.0.15") && !has(">=17.0.9", "17.0.8.1") && has(">=17.0.9", "21"));
        assert!(has(">=1.19, <2", "1.26.8") && !has(">=1.19,<2", "2.0") && has(">=1.21", "1.21rc2"));
        assert!(has("", "0") && has(">=18.18", "18.18+"));
        assert!(
            [(">=17", false), ("<2", true), (">=1,<2", true), ("", false)]
                .iter()
                .all(|(range, has_end)| VersionRange::parse(range).unwrap().has_end() == *has_end)
        );
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in ["17", "=17", ">=", ">= x", ">=17,", "~1"] {
            assert!(VersionRange::parse(bad).is_none(), "{bad}");
        }
    }

    fn section(flags: u8, version: &[u8]) -> Vec<u8> {
        let mut section = MAGIC.to_vec();
        section.extend([8, flags]);
        section.resize(TEXTS_AT, 0);
        section.push(u8::try_from(version.len()).unwrap());
        section.extend(version);
        section
    }

    #[test]
    fn the_version_is_read_where_it_is_written_out() {
        let read = |section: &[u8]| go_version(section);
        assert_eq!(read(&section(2, b"go1.26.8")), Some(Some("1.26.8".to_owned())));
        assert_eq!(read(&section(0, b"go1.16")), Some(None), "pointers");
        assert_eq!(read(b"\x7fELF"), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn nonsense_is_no_build() {
        for bad in [&b"go\xff\xfe"[..], b"devel", b"go", b"go1.2; rm -rf", b"go1.2\n"] {
            assert_eq!(go_version(&section(2, bad)), Some(None), "{bad:?}");
        }
        let mut cut = section(2, b"go1.26.8");
        cut.truncate(TEXTS_AT + 4);
        assert_eq!(go_version(&cut), Some(None));
        let mut long = section(2, b"go1.26.8");
        long[TEXTS_AT] = 0xff;
        assert_eq!(go_version(&long), Some(None));
        assert_eq!(go_version(&section(2, b"")[..14]), Some(None));
    }

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
    fn nonsense_is_no_release() {
        for bad in ["", "JAVA_VERSION=", "JAVA_VERSION=\"a b\"", "JAVA_VERSION=\"17\x1b[2J\"", "X"] {
            assert_eq!(version(bad, "bin/java"), None, "{bad:?}");
        }
        assert_eq!(version(&"x".repeat(MOST_BYTES + 1), "bin/java"), None);
    }
}
