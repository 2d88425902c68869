// SPDX-License-Identifier: Apache-2.0
//! Notices files that the agent delivers or removes, and costs nothing while it does neither.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// Readings at once: files that are written faster do not keep the daemon busy without end.
const MOST_READS: usize = 16;

/// The watched inbox.
#[derive(Debug)]
pub(crate) struct InboxWatch {
    inotify: Inotify,
    inbox: PathBuf,
    /// `None` while the folder is not there.
    watch: Option<WatchDescriptor>,
}

/// Files that were delivered or removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Names of files.
    pub(crate) names: Vec<OsString>,
    /// Look at all.
    pub(crate) all: bool,
}

impl InboxWatch {
    pub(crate) fn new(inbox: PathBuf) -> std::io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut watch = Self { inotify, inbox, watch: None };
        watch.renew();
        Ok(watch)
    }

    /// To be waited for.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Watches the folder that is there now; whether that is another one than before.
    pub(crate) fn renew(&mut self) -> bool {
        // Of a folder that is watched already this changes nothing.
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        let now = self.inotify.add_watch(&self.inbox, flags).ok();
        let is_another = now != self.watch;
        if is_another && let Some(before) = self.watch {
            let _ = self.inotify.rm_watch(before); // it is gone with its folder
        }
        self.watch = now;
        is_another
    }

    pub(crate) fn read(&self) -> Delivered {
        let mut delivered = Delivered::default();
        for _ in 0..MOST_READS {
            let Ok(events) = self.inotify.read_events() else { return delivered };
            for event in events {
                delivered.all |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                delivered.names.extend(event.name);
            }
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivered_file_is_reported_and_so_is_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inbox = folder.path().join("inbox");
        let mut watch = InboxWatch::new(inbox.clone()).unwrap();
        std::fs::create_dir(&inbox).unwrap();
        assert!(watch.renew() && !watch.renew());
        std::fs::write(folder.path().join("x"), "1").unwrap();
        std::fs::rename(folder.path().join("x"), inbox.join("a.json")).unwrap();
        assert_eq!(watch.read().names, ["a.json"]);
        assert_eq!(watch.read(), Delivered::default());
        std::fs::remove_file(inbox.join("a.json")).unwrap();
        assert_eq!(watch.read().names, ["a.json"]);
        std::fs::rename(&inbox, folder.path().join("old")).unwrap();
        std::fs::create_dir(&inbox).unwrap();
        assert!(watch.renew() && !watch.renew());
        std::fs::write(inbox.join("b.json"), "1").unwrap();
        assert!(watch.read().names.contains(&"b.json".into()));
    }
}
