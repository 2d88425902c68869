// SPDX-License-Identifier: Apache-2.0
//! The users' folders of pages, `state/u/UID`: made by us, owned by the user, closed to all others.
//! Everything in them is the user's to write, so nothing is opened there by path and nothing is followed.
//!
//! Users whose programs this daemon serves: everybody on the machine, or one user's own tree of processes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imas_store::samples::Domain;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, open, openat, renameat, statat, unlinkat};

use crate::owners::{Owner, Owners};
use crate::process_info::{self, Identity, ProcessInfo};

/// Events are read so often at once, some hundred each time: a user who writes faster than that does not keep
/// the daemon busy without end.
const MOST_READS: usize = 16;

/// Limit for the number of folders. Further users are served without trials.
const MOST_FOLDERS: usize = 4096;
/// Entries that are taken at once out of a folder in the place of a page.
const MOST_EMPTIED: usize = 4096;

/// A page in a user's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageName {
    /// Owner of the folder.
    pub(crate) uid: u32,
    /// Name of the page in its folder.
    pub(crate) name: OsString,
}

/// The folders, open and watched.
#[derive(Debug)]
pub(crate) struct Folders {
    root: OwnedFd,
    path: PathBuf,
    inotify: Inotify,
    open: BTreeMap<u32, OwnedFd>,
    watches: HashMap<WatchDescriptor, u32>,
    /// Users who have no folder because none could be made, as the log says.
    without: BTreeSet<u32>,
    /// Whether each folder is given to its user; not in a user's own tree.
    give_away: bool,
}

/// Events of the folders that the kernel reported.
#[derive(Debug, Default)]
pub(crate) struct FolderEvents {
    /// Pages that were written and closed.
    pub(crate) written: Vec<PageName>,
    /// Events were lost: look everywhere.
    pub(crate) lost: bool,
    /// There are further events.
    pub(crate) more: bool,
}

impl Folders {
    /// Opens `state/u`, making it if need be, and the folders in it.
    pub(crate) fn open(state: &Path, give_away: bool) -> std::io::Result<Self> {
        let path = state.join("u");
        let made = mkdirat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o711));
        made.or_else(|error| if error == rustix::io::Errno::EXIST { Ok(()) } else { Err(error) })?;
        let root = open(&path, DIRECTORY, Mode::empty())?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut folders = Self {
            root,
            path,
            inotify,
            open: BTreeMap::new(),
            watches: HashMap::new(),
            without: BTreeSet::new(),
            give_away,
        };
        for entry in std::fs::read_dir(&folders.path)?.flatten() {
            if let Some(uid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                folders.welcome(uid);
            }
        }
        Ok(folders)
    }

    /// Makes sure that the user has a folder.
    pub(crate) fn welcome(&mut self, uid: u32) {
        if self.open.contains_key(&uid) || self.open.len() >= MOST_FOLDERS {
            return;
        }
        match self.add(uid) {
            Ok(()) => {
                self.without.remove(&uid);
            }
            // Once: it is tried again with each process of the user, who may have caused it.
            Err(error) if self.without.len() < MOST_FOLDERS && self.without.insert(uid) => {
                tracing::warn!(UID = uid, "no folder for this user's pages, so no trials either: {error}");
            }
            Err(_) => {}
        }
    }

    fn add(&mut self, uid: u32) -> std::io::Result<()> {
        let name = uid.to_string();
        match mkdirat(&self.root, &name, Mode::from_raw_mode(0o700)) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        // The folder is still the daemon's own, so no user can have put a link here.
        let folder = openat(&self.root, &name, DIRECTORY, Mode::empty())?;
        let about = fstat(&folder)?;
        if self.give_away && about.st_uid != uid {
            rustix::fs::fchown(&folder, Some(rustix::process::Uid::from_raw(uid)), None)?;
        }
        let about = fstat(&folder)?;
        if about.st_uid != uid || about.st_mode & 0o077 != 0 {
            return Err(std::io::Error::other("it is not this user's alone"));
        }
        let watch = self.inotify.add_watch(&self.path.join(name), AddWatchFlags::IN_CLOSE_WRITE)?;
        self.watches.insert(watch, uid);
        self.open.insert(uid, folder);
        Ok(())
    }

    /// Folders that were removed are made again: without one, a user's programs start untouched.
    pub(crate) fn restore(&mut self) {
        let removed: Vec<_> = self.open.keys().copied().filter(|uid| !self.stands(*uid)).collect();
        for uid in removed {
            self.open.remove(&uid);
            self.watches.retain(|_, theirs| *theirs != uid);
            self.welcome(uid);
        }
    }

    /// Whether the folder that is open is the one that programs find.
    fn stands(&self, uid: u32) -> bool {
        let found = statat(&self.root, uid.to_string(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let held = self.open.get(&uid).and_then(|folder| fstat(folder).ok());
        let number = |about: rustix::fs::Stat| (about.st_dev, about.st_ino);
        found.map(number) == held.map(number)
    }

    /// The watch's descriptor.
    pub(crate) fn events(&self) -> impl AsFd {
        &self.inotify
    }

    /// Events since the last call.
    pub(crate) fn read_events(&self) -> FolderEvents {
        let mut found = FolderEvents { more: true, ..FolderEvents::default() };
        for _ in 0..MOST_READS {
            let Ok(events) = self.inotify.read_events() else {
                found.more = false;
                break;
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    found.lost = true;
                }
                let uid = self.watches.get(&event.wd).copied();
                if let (Some(uid), Some(name)) = (uid, event.name) {
                    found.written.push(PageName { uid, name });
                }
            }
        }
        found.written.dedup();
        found
    }

    /// Every name in every folder.
    pub(crate) fn all(&self) -> Vec<PageName> {
        self.open.keys().flat_map(|uid| self.names(*uid)).collect()
    }

    /// Time since the page was last changed; `None` when it is gone. The kernel sets the time that is read. The time
    /// of the last write would be the owner's to set, also to a time that never comes.
    pub(crate) fn age(&self, page: &PageName) -> Option<Duration> {
        let about = statat(self.open.get(&page.uid)?, &page.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let changed_s = u64::try_from(about.st_ctime).unwrap_or(0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Some(now.saturating_sub(Duration::from_secs(changed_s)))
    }

    /// Whether the file is there, and nothing was written into it.
    pub(crate) fn is_empty(&self, page: &PageName) -> bool {
        let folder = self.open.get(&page.uid);
        let about = folder.and_then(|folder| statat(folder, &page.name, AtFlags::SYMLINK_NOFOLLOW).ok());
        about.is_some_and(|about| about.st_size == 0)
    }

    /// Every name in the user's folder.
    pub(crate) fn names(&self, uid: u32) -> Vec<PageName> {
        let Some(folder) = self.open.get(&uid) else { return vec![] };
        let Ok(entries) = rustix::fs::Dir::read_from(folder) else { return vec![] };
        let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        names
            .filter(|name| name != b"." && name != b"..")
            .map(|name| PageName { uid, name: OsStr::from_bytes(&name).to_owned() })
            .collect()
    }

    /// Users who have a folder.
    pub(crate) fn uids(&self) -> impl Iterator<Item = u32> {
        self.open.keys().copied()
    }

    /// The user's folder.
    pub(crate) fn of(&self, uid: u32) -> Option<&OwnedFd> {
        self.open.get(&uid)
    }

    /// Whether the page still stands.
    pub(crate) fn has(&self, page: &PageName) -> bool {
        let folder = self.open.get(&page.uid);
        folder.is_some_and(|folder| statat(folder, &page.name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Puts a file for the user in the place of that name, whatever is there. Nothing of the user's is opened.
    pub(crate) fn replace(&self, page: &PageName, bytes: &[u8]) -> std::io::Result<()> {
        let folder = self.open.get(&page.uid).ok_or(std::io::ErrorKind::NotFound)?;
        let mut beside = page.name.clone();
        beside.push(".new");
        let put = || -> std::io::Result<()> {
            let mut file = File::from(openat(folder, &beside, NEW, Mode::from_raw_mode(0o600))?);
            file.write_all(bytes)?;
            if self.give_away {
                rustix::fs::fchown(&file, Some(rustix::process::Uid::from_raw(page.uid)), None)?;
            }
            Ok(renameat(folder, &beside, folder, &page.name)?)
        };
        let done = put();
        if done.is_err() {
            let _ = unlinkat(folder, &beside, AtFlags::empty()); // the error is the first one
        }
        done
    }

    /// Removes the page, whatever it is; a folder in its place too, with what is in it.
    pub(crate) fn remove(&self, page: &PageName) {
        let Some(folder) = self.open.get(&page.uid) else { return };
        if unlinkat(folder, &page.name, AtFlags::empty()).is_err() {
            remove_folder(folder, &page.name);
        }
    }
}

/// Removes a folder in the place of a page: what is in it takes up the room of all users. A folder in it is moved
/// up first, so that no depth matters. What is left of a large one is found again, and is old then.
fn remove_folder(folder: &OwnedFd, name: &OsStr) {
    let mut names = vec![name.to_owned()];
    let mut left = MOST_EMPTIED;
    while let Some(name) = names.pop() {
        let Ok(inner) = openat(folder, &name, DIRECTORY, Mode::empty()) else { continue };
        let Ok(entries) = rustix::fs::Dir::read_from(&inner) else { continue };
        for entry in entries.flatten().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
            if left == 0 {
                return;
            }
            left -= 1;
            let entry_name = entry.file_name();
            let remove = |flags| unlinkat(&inner, entry_name, flags).is_ok();
            if remove(AtFlags::empty()) || remove(AtFlags::REMOVEDIR) {
                continue;
            }
            let above = OsString::from(format!("{}.folder", entry.ino()));
            if renameat(&inner, entry_name, folder, &above).is_ok() {
                names.push(above);
            }
        }
        let _ = unlinkat(folder, &name, AtFlags::REMOVEDIR); // its owner may put more into it meanwhile
    }
}

/// A link in the place of a new file is not followed, and what is there already is not opened.
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The users, and who answers for each of their uids.
#[derive(Debug)]
pub(super) struct ServedUsers {
    /// The run folder of a user's own tree; `None` where everybody is served.
    tree: Option<PathBuf>,
    owners: RefCell<Owners>,
}

impl ServedUsers {
    /// Everybody, by the accounts of this machine.
    pub(super) fn everybody() -> Self {
        Self { tree: None, owners: RefCell::new(Owners::read(Path::new("/etc"))) }
    }

    /// The user who runs this process, as far as processes read the index of that run folder.
    pub(super) fn own_tree(run_dir: &Path) -> Self {
        Self { tree: Some(run_dir.to_owned()), ..Self::everybody() }
    }

    /// Whether everybody on the machine is served.
    pub(super) fn is_machine(&self) -> bool {
        self.tree.is_none()
    }

    /// Takes up what has changed in the accounts.
    pub(super) fn refresh(&self) {
        self.owners.borrow_mut().refresh();
    }

    /// User whose pages count without a process that was seen: root, or the user of an own tree.
    pub(super) fn own_uid(&self) -> u32 {
        if self.tree.is_some() { nix::unistd::geteuid().as_raw() } else { 0 }
    }

    /// Owner who answers for the uid.
    pub(super) fn owner_of(&self, uid: u32) -> Owner {
        self.owners.borrow_mut().of(uid)
    }

    /// A number for who answers for the uid: all uids of a person have one. A system account has its own.
    pub(super) fn number_of(&self, uid: u32) -> u64 {
        match self.owner_of(uid) {
            Owner::System => u64::from(uid),
            Owner::Person(person) => u64::from(person),
            Owner::Unknown => u64::MAX - 1,
        }
    }

    /// Owner who answers for the programs of a domain.
    pub(super) fn owner_of_domain(&self, domain: Domain) -> Owner {
        match domain {
            Domain::Own | Domain::Everybody => Owner::System,
            Domain::User(uid) => self.owner_of(uid),
        }
    }

    /// Whether processes of the uid count as the system's. In a user's own tree all do.
    pub(super) fn is_system(&self, uid: u32) -> bool {
        self.tree.is_some() || self.owner_of(uid) == Owner::System
    }

    /// Domain of the samples that a process of this uid makes.
    pub(super) fn domain_of(&self, uid: u32) -> Domain {
        if self.is_system(uid) { Domain::Everybody } else { Domain::User(uid) }
    }

    /// Whether the process is one of a container whose root and system accounts are not this machine's,
    /// though its samples would decide for everybody.
    pub(super) fn is_foreign(&self, process: &ProcessInfo) -> bool {
        let is_of_container = self.tree.is_none() && process.in_container;
        is_of_container && self.domain_of(process.uid) == Domain::Everybody
    }

    /// Whether the process belongs to what is served.
    pub(super) fn serves(&self, identity: Identity) -> bool {
        self.tree.as_ref().is_none_or(|run_dir| process_info::reads_index_below(identity, run_dir))
    }

    /// Whether pages of the two uids share one limit: a person's do, under all uids together; a system
    /// account's count by themselves.
    pub(super) fn share_limits(&self, uid: u32, other: u32) -> bool {
        uid == other || (!self.is_system(uid) && self.owner_of(uid) == self.owner_of(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_in_a_folder_is_reported_and_can_be_removed() {
        let state = tempfile::tempdir().unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let mut folders = Folders::open(state.path(), false).unwrap();
        folders.welcome(me);
        let folder = state.path().join("u").join(me.to_string());
        std::fs::write(folder.join("a.page"), "x").unwrap();
        let page = PageName { uid: me, name: "a.page".into() };
        assert_eq!(folders.read_events().written, std::slice::from_ref(&page));
        assert_eq!(folders.all(), std::slice::from_ref(&page));
        assert!(folders.has(&page));
        folders.remove(&page);
        assert!(!folders.has(&page) && !folder.join("a.page").exists());
        std::fs::create_dir(folder.join("d.page")).unwrap();
        folders.remove(&PageName { uid: me, name: "d.page".into() });
        assert!(!folder.join("d.page").exists());
        std::fs::create_dir_all(folder.join("d.page/inner/deep")).unwrap();
        std::fs::write(folder.join("d.page/inner/deep/file"), "x").unwrap();
        std::os::unix::fs::symlink(state.path(), folder.join("d.page/link")).unwrap();
        folders.remove(&PageName { uid: me, name: "d.page".into() });
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(state.path().join("u").exists(), "no link is followed");
        assert_eq!(Folders::open(state.path(), false).unwrap().open.len(), 1, "found again");
    }

    #[test]
    fn the_owner_of_a_page_does_not_say_how_old_it_is() {
        let state = tempfile::tempdir().unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let mut folders = Folders::open(state.path(), false).unwrap();
        folders.welcome(me);
        let page = PageName { uid: me, name: "a.page".into() };
        let path = state.path().join("u").join(me.to_string()).join("a.page");
        std::fs::write(&path, "x").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(folders.age(&page).unwrap() < Duration::from_secs(3600));
    }

    #[test]
    fn an_answer_takes_the_place_of_a_file_and_follows_no_link() {
        let state = tempfile::tempdir().unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let mut folders = Folders::open(state.path(), false).unwrap();
        folders.welcome(me);
        let folder = state.path().join("u").join(me.to_string());
        let page = PageName { uid: me, name: "1-2.account".into() };
        let (other, answer, beside) =
            (state.path().join("other"), folder.join("1-2.account"), folder.join("1-2.account.new"));
        std::fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, &answer).unwrap();
        assert!(!folders.is_empty(&page), "a link has a length");
        folders.replace(&page, b"{}").unwrap();
        assert_eq!(std::fs::read(&answer).unwrap(), b"{}");
        assert!(std::fs::symlink_metadata(&answer).unwrap().is_file());
        std::os::unix::fs::symlink(&other, &beside).unwrap();
        assert!(folders.replace(&page, b"x").is_err() && !beside.exists());
        assert_eq!(std::fs::read(&other).unwrap(), b"");
        std::fs::write(&answer, "").unwrap();
        assert!(folders.is_empty(&page));
    }

    #[test]
    fn an_answer_belongs_to_its_user() {
        use std::os::unix::fs::MetadataExt;
        if !nix::unistd::geteuid().is_root() {
            return imas_testing::skipped("root alone gives files away");
        }
        let (state, uid) = (tempfile::tempdir().unwrap(), 12_345);
        let mut folders = Folders::open(state.path(), true).unwrap();
        folders.welcome(uid);
        folders.replace(&PageName { uid, name: "1-2.account".into() }, b"{}").unwrap();
        let about = std::fs::metadata(state.path().join("u/12345/1-2.account")).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (uid, 0o600));
    }

    #[test]
    fn a_folder_that_was_removed_is_made_again_and_watched() {
        let state = tempfile::tempdir().unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let mut folders = Folders::open(state.path(), false).unwrap();
        folders.welcome(me);
        let folder = state.path().join("u").join(me.to_string());
        std::fs::write(folder.join("old.page"), "x").unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        folders.restore();
        std::fs::write(folder.join("a.page"), "x").unwrap();
        let page = PageName { uid: me, name: "a.page".into() };
        assert!(folders.read_events().written.contains(&page) && folders.has(&page));
    }

    #[test]
    fn a_folder_that_others_reach_into_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let me = nix::unistd::geteuid().as_raw();
        let folder = state.path().join("u").join(me.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
        let mut folders = Folders::open(state.path(), false).unwrap();
        assert!(folders.of(me).is_none() && folders.without.contains(&me));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        folders.welcome(me);
        assert!(folders.of(me).is_some() && folders.without.is_empty());
    }
}
