// SPDX-License-Identifier: Apache-2.0
//! The accounts of this machine as its files list them: `/etc/passwd` and `/etc/subuid`. Both are root's to
//! write and are believed.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first uid of people; those below belong to the system.
pub(crate) const FIRST_USER: u32 = 1000;

/// Whom a range of subordinate uids was given to, as `/etc/subuid` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    Uid(u32),
    Name(String),
}

/// The uids from `first` on that one account may use for its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
    holder: Holder,
}

/// State in which a file was read: device, inode, size, modification time.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Accounts and ranges of the two files.
#[derive(Debug)]
pub(crate) struct Accounts {
    passwd: PathBuf,
    subuid: PathBuf,
    read: (Stamp, Stamp),
    uids: HashSet<u32>,
    by_name: HashMap<String, u32>,
    ranges: Vec<Range>,
}

impl Accounts {
    /// Reads both files below `etc`. A missing file counts as empty.
    pub(crate) fn read(etc: &Path) -> Self {
        let (passwd, subuid) = (etc.join("passwd"), etc.join("subuid"));
        let mut accounts = Self {
            passwd,
            subuid,
            read: (None, None),
            uids: HashSet::new(),
            by_name: HashMap::new(),
            ranges: Vec::new(),
        };
        accounts.read_again();
        accounts
    }

    /// Reads them again if one has changed; whether one had.
    pub(crate) fn refresh(&mut self) -> bool {
        let has_changed = (stamp(&self.passwd), stamp(&self.subuid)) != self.read;
        if has_changed {
            self.read_again();
        }
        has_changed
    }

    fn read_again(&mut self) {
        // Taken before reading: what is written meanwhile is read at the next look.
        self.read = (stamp(&self.passwd), stamp(&self.subuid));
        let text = |file: &Path| {
            std::fs::read(file)
                .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
        };
        self.by_name = text(&self.passwd).lines().filter_map(account).collect();
        self.uids = self.by_name.values().copied().collect();
        self.ranges = text(&self.subuid).lines().filter_map(range).collect();
    }

    /// Whether an account has this uid.
    pub(crate) fn has(&self, uid: u32) -> bool {
        self.uids.contains(&uid)
    }

    /// The uid of the account of that name.
    pub(crate) fn uid_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Holder of the subordinate uid.
    pub(crate) fn holder_of(&self, uid: u32) -> Option<&Holder> {
        let has = |range: &&Range| uid.checked_sub(range.first).is_some_and(|at| at < range.count);
        self.ranges.iter().find(has).map(|range| &range.holder)
    }
}

fn stamp(file: &Path) -> Stamp {
    let about = std::fs::metadata(file).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

/// A line of passwd(5): name, password, uid and more.
fn account(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with(['+', '-', '#']))?;
    Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
}

/// A line of subuid(5): name or uid, first, count.
fn range(line: &str) -> Option<Range> {
    let mut fields = line.trim().split(':');
    let holder = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let holder = holder.parse().map_or_else(|_| Holder::Name(holder.to_owned()), Holder::Uid);
    Some(Range { first: fields.next()?.parse().ok()?, count: fields.next()?.parse().ok()?, holder })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder with these two files.
    pub(crate) fn etc(passwd: &str, subuid: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("passwd"), passwd).unwrap();
        std::fs::write(folder.path().join("subuid"), subuid).unwrap();
        folder
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let etc = etc(
            "root:x:0:0::/:/bin/sh\n\n+::::::\n#old:x:7:7:::\nbroken\nbig:x:99999999999:1:::\nmallory:x:1000:1000::/home:/bin/sh\n",
            "mallory:100000:65536\n1001:200000:10\n# none\nx:y:z\nlast:4294967290:4294967295\n",
        );
        let accounts = Accounts::read(etc.path());
        assert!(accounts.has(0) && accounts.has(1000) && !accounts.has(7));
        assert_eq!((accounts.uid_of("mallory"), accounts.uid_of("big")), (Some(1000), None));
        let mallory = Holder::Name("mallory".to_owned());
        assert_eq!(accounts.holder_of(100_000), Some(&mallory));
        assert_eq!(accounts.holder_of(165_535), Some(&mallory));
        assert_eq!(accounts.holder_of(165_536), None);
        assert_eq!(accounts.holder_of(200_009), Some(&Holder::Uid(1001)));
        assert_eq!(accounts.holder_of(u32::MAX), Some(&Holder::Name("last".to_owned())));
    }

    #[test]
    fn they_are_read_again_when_they_change() {
        let etc = etc("a:x:1000:1::/:/bin/sh\n", "");
        let mut accounts = Accounts::read(etc.path());
        assert!(!accounts.refresh());
        std::fs::write(etc.path().join("passwd.new"), "a:x:1000:1::/:/bin/sh\nb:x:1001:1::/:/bin/sh\n")
            .unwrap();
        std::fs::rename(etc.path().join("passwd.new"), etc.path().join("passwd")).unwrap();
        assert!(accounts.refresh() && accounts.has(1001));
        std::fs::remove_file(etc.path().join("passwd")).unwrap();
        assert!(accounts.refresh() && !accounts.has(1000), "a file that is gone has no accounts");
    }
}
