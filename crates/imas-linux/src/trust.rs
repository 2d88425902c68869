// SPDX-License-Identifier: Apache-2.0
//! Whether a file may be loaded into other people's processes, and whether this user may go by it.
//!
//! Libraries that only root, or the owner of a private tree, can change.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use imas_abi::FileIdentity;
use nix::unistd::{Gid, Group, Uid, User};

use crate::files::mtime_ns;

/// Why a file is not used: another user could change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum Untrusted {
    #[error("{}: a relative path", .0.display())]
    Relative(PathBuf),
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{}: belongs to user {owner}, not to user {wanted}", path.display())]
    Owner { path: PathBuf, owner: u32, wanted: u32 },
    #[error("{}: may be written by others than its owner (mode {mode:03o})", path.display())]
    Writable { path: PathBuf, mode: u32 },
}

/// Judgement of a folder that all may write to, but where only owners may delete (`/tmp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StickyFolder {
    /// Writable: once the file is gone, anyone may create one of its name. For a file that is found by its
    /// path alone later on.
    Writable,
    /// Safe: other users cannot replace a file that is there. Only for a file whose identity is written down
    /// and compared whenever it is used.
    Safe,
}

/// Why `file`, its target where it is a link, or a folder above either could be changed by anyone but `owner`
/// and root; `None` when no other user can. Needed of every library that is loaded system-wide by its path.
#[must_use]
pub fn untrusted(file: &Path, owner: u32) -> Option<Untrusted> {
    if file.is_relative() {
        return Some(Untrusted::Relative(file.to_owned()));
    }
    let real = match std::fs::canonicalize(file) {
        Ok(real) => real,
        Err(error) => return Some(Untrusted::Unreadable { path: file.to_owned(), why: error.to_string() }),
    };
    let above_link = file.parent().into_iter().flat_map(Path::ancestors);
    real.ancestors().chain(above_link).find_map(|path| one(path, owner, StickyFolder::Writable))
}

/// Why this one file or folder could be changed by anyone but `wanted` and root; `None` when no other user
/// can. `path` is no link, or its target counts.
pub(crate) fn one(path: &Path, wanted: u32, sticky: StickyFolder) -> Option<Untrusted> {
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) => return Some(Untrusted::Unreadable { path: path.to_owned(), why: error.to_string() }),
    };
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    if owner != wanted && owner != 0 {
        return Some(Untrusted::Owner { path: path.to_owned(), owner, wanted });
    }
    let is_safe = sticky == StickyFolder::Safe && about.is_dir() && mode & 0o1000 != 0;
    (mode & 0o022 != 0 && !is_safe).then(|| Untrusted::Writable { path: path.to_owned(), mode })
}

/// Why a file that this process goes by (settings, a library, a store) may be another user's doing; `None` where it is
/// not, and where there is no file. Owner and writers must be root or this user: of the file, of the links that lead to
/// it, and of each folder on the way. In a folder with the sticky bit only owners replace what is there.
#[must_use]
pub fn foreign(file: &Path) -> Option<Untrusted> {
    let way = Way::to(file);
    way.fault.filter(|_| way.is_there)
}

/// Why a place in which this process may have to make a file is another user's, as [`foreign`] judges it, whether
/// something is there or not.
#[must_use]
pub fn foreign_place(file: &Path) -> Option<Untrusted> {
    Way::to(file).fault
}

/// Most symbolic links of one path, as the kernel has it.
const MOST_LINKS: u32 = 40;

/// The way to a file, as the kernel takes it.
#[derive(Debug, Default)]
struct Way {
    fault: Option<Untrusted>,
    /// False only where it is known that there is no such file.
    is_there: bool,
}

impl Way {
    fn to(file: &Path) -> Self {
        let Ok(file) = std::path::absolute(file) else {
            return Self { fault: Some(Untrusted::Relative(file.to_owned())), is_there: true };
        };
        let trusted = Trusted::here();
        let mut way = Self { fault: None, is_there: true };
        let (mut at, mut left, mut links) = (PathBuf::from("/"), names(&file), 0);
        while let Some(name) = left.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(name);
            let about = match std::fs::symlink_metadata(&next) {
                Ok(about) => about,
                Err(error) => {
                    way.is_there = !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                    break;
                }
            };
            way.fault = way.fault.or_else(|| trusted.fault(&next, &about));
            if !about.is_symlink() {
                at = next;
                continue;
            }
            links += 1;
            let Some(target) = std::fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS) else { break };
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(names(&target));
        }
        way
    }
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Users who may own what this process goes by: root, itself, the owner of `/`, who has all files in his hand (in a user
/// namespace root's files belong to nobody), and the owner of the program that runs here, who could have changed that.
#[derive(Debug)]
struct Trusted {
    me: u32,
    of_all: u32,
    of_program: u32,
}

impl Trusted {
    fn here() -> Self {
        let owner = |path: &str| std::fs::metadata(path).map_or(0, |about| about.uid());
        let (of_all, of_program) = (owner("/"), owner("/proc/self/exe"));
        Self { me: nix::unistd::geteuid().as_raw(), of_all, of_program }
    }

    fn has(&self, uid: u32) -> bool {
        [0, self.me, self.of_all, self.of_program].contains(&uid)
    }

    /// Reason why another user can change this file or folder, or put another in its place.
    fn fault(&self, path: &Path, about: &Metadata) -> Option<Untrusted> {
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        if !self.has(owner) {
            return Some(Untrusted::Owner { path: path.to_owned(), owner, wanted: self.me });
        }
        // A device such as /dev/null does not give back the bytes that are written to it.
        let is_device = about.file_type().is_char_device();
        let is_kept = is_device || about.is_symlink() || (about.is_dir() && mode & 0o1000 != 0);
        let is_ours_alone = || mode & 0o002 == 0 && !has_acl(path) && self.has_group(about.gid());
        let is_writable = !is_kept && mode & 0o022 != 0 && !is_ours_alone();
        is_writable.then(|| Untrusted::Writable { path: path.to_owned(), mode })
    }

    /// Whether nobody else is in that group: root's, or the one that many distributions give to each user, with the
    /// user's own name, and with folders that it may write to.
    fn has_group(&self, gid: u32) -> bool {
        let Ok(Some(group)) = Group::from_gid(Gid::from_raw(gid)) else { return false };
        let is_trusted = |name: &String| {
            User::from_name(name).is_ok_and(|user| user.is_some_and(|user| self.has(user.uid.as_raw())))
        };
        let is_of = |uid: u32| {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            user.is_some_and(|user| user.name == group.name)
        };
        group.mem.iter().all(is_trusted) && (gid == 0 || is_of(self.me) || is_of(self.of_program))
    }
}

/// Whether more users than owner and group have rights: the bits of the group are then the most that any of these has.
fn has_acl(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 0]).is_ok_and(|bytes| bytes > 0)
}

/// Follows links, then checks the owner and mode of the library and of all folders above it.
pub(crate) fn approve(
    library: &Path,
    trusted: u32,
    sticky: StickyFolder,
) -> Result<(PathBuf, FileIdentity), String> {
    if !library.is_absolute() {
        return Err(format!("{}: not an absolute path", library.display()));
    }
    let resolved =
        std::fs::canonicalize(library).map_err(|error| format!("{}: {error}", library.display()))?;
    if resolved.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$' | b'\n' | b'\t')) {
        return Err(format!(
            "{}: a path with a space, a colon or a dollar sign cannot be preloaded",
            resolved.display()
        ));
    }
    let about =
        std::fs::symlink_metadata(&resolved).map_err(|error| format!("{}: {error}", resolved.display()))?;
    if !about.is_file() {
        return Err(format!("{}: not a regular file", resolved.display()));
    }
    if let Some(why) = resolved.ancestors().find_map(|path| one(path, trusted, sticky)) {
        return Err(why.to_string());
    }
    let identity = identity(&about);
    Ok((resolved, identity))
}

pub(crate) fn identity(about: &Metadata) -> FileIdentity {
    FileIdentity { dev: about.dev(), ino: about.ino(), bytes: about.len(), mtime_ns: mtime_ns(about) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        assert!(matches!(untrusted(Path::new("libx.so"), 0), Some(Untrusted::Relative(_))));
        assert!(matches!(untrusted(Path::new("/no/such.so"), 0), Some(Untrusted::Unreadable { .. })));
        // Root alone may change it, on any machine that runs these tests.
        assert_eq!(untrusted(Path::new("/usr/bin/env"), 0), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libx.so");
        std::fs::write(&file, "x").unwrap();
        let me = std::fs::metadata(&file).unwrap().uid();
        set(&file, 0o646);
        let found = untrusted(&file, me).unwrap();
        assert_eq!(found, Untrusted::Writable { path: std::fs::canonicalize(&file).unwrap(), mode: 0o646 });
        assert!(found.to_string().contains("646"), "{found}");
        set(&file, 0o644);
        set(folder.path(), 0o777);
        assert!(matches!(untrusted(&file, me), Some(Untrusted::Writable { mode: 0o777, .. })));
        assert_eq!(one(&file, me, StickyFolder::Writable), None);
        if me == 0 {
            std::os::unix::fs::chown(&file, Some(1), None).unwrap(); // root's own files are trusted by all
        }
        assert!(matches!(one(&file, me + 2, StickyFolder::Safe), Some(Untrusted::Owner { .. })));
    }

    #[test]
    fn a_sticky_folder_is_trusted_only_if_the_caller_allows_it() {
        let folder = tempfile::tempdir().unwrap();
        let me = std::fs::metadata(folder.path()).unwrap().uid();
        let is_trusted = |path: &Path, sticky| one(path, me, sticky).is_none();
        set(folder.path(), 0o1777);
        assert!(is_trusted(folder.path(), StickyFolder::Safe));
        assert!(!is_trusted(folder.path(), StickyFolder::Writable));
        set(folder.path(), 0o777);
        assert!(!is_trusted(folder.path(), StickyFolder::Safe), "others may replace what is in it");
        let file = folder.path().join("libx.so");
        std::fs::write(&file, "x").unwrap();
        set(&file, 0o1666);
        assert!(!is_trusted(&file, StickyFolder::Safe), "the bit says nothing of a file");
    }

    #[test]
    fn what_this_user_goes_by_is_its_own_or_roots() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("imas.toml");
        assert_eq!(
            (foreign(&file), foreign_place(&file)),
            (None, None),
            "/tmp is everybody's, and keeps owners apart"
        );
        std::fs::write(&file, "").unwrap();
        assert_eq!((foreign(&file), foreign(Path::new("/usr/bin/env"))), (None, None));
        for device in ["/dev/null", "/dev/full/imas.db"] {
            assert_eq!(foreign_place(Path::new(device)), None, "XDG_CONFIG_HOME=/dev/null is usual");
        }
        set(&file, 0o646);
        assert_eq!(foreign(&file), Some(Untrusted::Writable { path: file.clone(), mode: 0o646 }));
        set(&file, 0o600);
        set(folder.path(), 0o777);
        let writable = Some(Untrusted::Writable { path: folder.path().to_owned(), mode: 0o777 });
        assert_eq!(foreign(&file), writable);
        let absent = folder.path().join("sub/none");
        assert_eq!(
            (foreign(&absent), foreign_place(&absent)),
            (None, writable),
            "where nothing is, nothing is read"
        );
        set(folder.path(), 0o1777);
        assert_eq!(foreign(&file), None);
        assert_eq!(foreign(&file.join("no-folder")), None);
    }

    #[test]
    fn every_folder_on_the_way_counts_through_links_as_well() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = other.path().join("open");
        std::fs::create_dir(&open).unwrap();
        let file = folder.path().join("imas.toml");
        std::fs::write(&file, "").unwrap();
        // There and back: the link in the middle is in a folder that others may write to.
        std::os::unix::fs::symlink(folder.path(), open.join("back")).unwrap();
        std::os::unix::fs::symlink("../there", folder.path().join("self")).unwrap();
        std::os::unix::fs::symlink(open.join("back"), folder.path().join("there")).unwrap();
        let named = folder.path().join("there/../there/imas.toml");
        assert_eq!(std::fs::canonicalize(folder.path().join("there/imas.toml")).unwrap(), file);
        assert_eq!(foreign(&folder.path().join("there/imas.toml")), None);
        set(&open, 0o777);
        assert!(
            matches!(foreign(&folder.path().join("there/imas.toml")), Some(Untrusted::Writable { path, .. }) if path == open)
        );
        assert!(foreign_place(&named).is_some());
        // Without an end.
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        assert_eq!(foreign_place(&folder.path().join("loop")), None);
        assert!(foreign_place(&open.join("x")).is_some());
    }

    #[test]
    fn what_belongs_to_another_user_is_foreign() {
        let trusted = Trusted { me: 4_000_000_001, of_all: 0, of_program: 0 };
        let folder = tempfile::tempdir().unwrap();
        let about = std::fs::metadata(folder.path()).unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let is_mine = Trusted { me, of_all: 0, of_program: 0 }.fault(folder.path(), &about);
        assert_eq!(is_mine, None);
        let theirs = trusted.fault(folder.path(), &about);
        let expected = Untrusted::Owner { path: folder.path().to_owned(), owner: me, wanted: trusted.me };
        assert_eq!(theirs, (me != 0).then_some(expected), "root's files are trusted by all");
        for (of_all, of_program) in [(me, 0), (0, me)] {
            let trusted = Trusted { me: 4_000_000_001, of_all, of_program };
            assert_eq!(trusted.fault(folder.path(), &about), None);
        }
    }

    #[test]
    fn a_group_counts_as_nobody_else_only_where_it_is() {
        let me = nix::unistd::geteuid().as_raw();
        let trusted = Trusted { me, of_all: 0, of_program: 0 };
        assert!(!trusted.has_group(4_000_000_001), "who is in it is not known");
        let own = User::from_uid(Uid::from_raw(me)).unwrap().unwrap();
        let group = Group::from_gid(own.gid).unwrap().unwrap();
        assert_eq!(
            trusted.has_group(own.gid.as_raw()),
            group.name == own.name && group.mem.iter().all(|one| *one == own.name)
        );
        let everybodys = Group::from_name("users").unwrap();
        assert!(everybodys.is_none_or(|users| !trusted.has_group(users.gid.as_raw())));
    }
}
