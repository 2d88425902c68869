// SPDX-License-Identifier: Apache-2.0
//! Notices files that come into a folder of the exchange, and wakes nobody while none comes.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// How often a watched folder is looked at all the same: another one may be in its place.
const LOOK: Duration = Duration::from_secs(20);

/// A folder into which files are renamed.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    folder: PathBuf,
    /// Events of inotify. `None` where the kernel refuses them: this user may have too many.
    events: Option<Receiver>,
    /// `None` while the folder is not there.
    watch: Option<i32>,
}

impl FolderWatch {
    /// A watch of the folder, which may not be there yet.
    pub(crate) fn new(folder: PathBuf) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        // It is waited for and read as a pipe is; tokio's type for other descriptors needs unsafe code.
        let events = inotify.and_then(|inotify| Receiver::from_owned_fd_unchecked(inotify).ok());
        let mut watch = Self { folder, events, watch: None };
        watch.renew();
        watch
    }

    /// Waits until there may be something new. Where nothing can be watched, it does not wait.
    pub(crate) async fn changed(&mut self) {
        if let (Some(events), Some(_)) = (&self.events, self.watch) {
            let _ = tokio::time::timeout(LOOK, take(events)).await; // either way the caller looks
        }
        self.renew();
    }

    /// Watches the folder that is there now. Of a folder that is watched already this changes nothing.
    fn renew(&mut self) {
        let Some(events) = &self.events else { return };
        let flags = WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let now = inotify::add_watch(events, self.folder.as_path(), flags).ok();
        if let Some(before) = self.watch.filter(|before| Some(*before) != now) {
            let _ = inotify::remove_watch(events, before); // it is gone with its folder
        }
        self.watch = now;
    }
}

/// Waits for events, and takes all that there are.
async fn take(events: &Receiver) {
    let _ = events.readable().await; // fails when the agent ends
    let mut room = [0; 4096];
    while events.try_read(&mut room).is_ok_and(|read| read > 0) {}
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt as _;

    use super::*;

    /// Puts a file into the folder, as imasd does.
    fn put(folder: &Path, name: &str) {
        let unfinished = folder.join(format!("{name}.new"));
        std::fs::write(&unfinished, "1").unwrap();
        std::fs::rename(unfinished, folder.join(name)).unwrap();
    }

    async fn is_noticed(watch: &mut FolderWatch) -> bool {
        tokio::time::timeout(LOOK / 4, watch.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn files_are_noticed_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = FolderWatch::new(folder.path().to_owned());
        assert!(watch.changed().now_or_never().is_none());
        for name in ["1.json", "2.json"] {
            put(folder.path(), name);
            assert!(is_noticed(&mut watch).await);
        }
        let again = tokio::time::timeout(Duration::from_millis(50), watch.changed()).await;
        assert!(again.is_err());
    }

    #[tokio::test]
    async fn a_folder_in_the_place_of_another_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = folder.path().join("outbox");
        let mut watch = FolderWatch::new(outbox.clone());
        assert!(watch.changed().now_or_never().is_some(), "a folder that is not there is not waited for");
        std::fs::create_dir(&outbox).unwrap();
        watch.changed().now_or_never().unwrap();
        std::fs::remove_dir(&outbox).unwrap();
        assert!(is_noticed(&mut watch).await, "the folder is gone");
        std::fs::create_dir(&outbox).unwrap();
        watch.changed().now_or_never().unwrap();
        put(&outbox, "1.json");
        assert!(is_noticed(&mut watch).await);
    }
}
