// SPDX-License-Identifier: Apache-2.0
//! Folders in which starts are recorded (`abi/imas_index.h`, `state/r`).
//!
//! A folder belongs to the user whose start may be recorded, because that process writes there. So everything in it
//! may be forged by that user: it decides nothing for others, as that user's pages do not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use imas_abi::{RECORD_CONTROL, RECORD_OFFER};
use imas_store::RowId;
use imas_trace::raw::{self, RecordingEnd};

/// The link to the folder of all recordings, in the state folder.
const LINK: &str = "r";
/// Beside the limit of a recording: headers and one buffer of each process.
const SLACK_BYTES: u64 = 16 << 20;

/// Names a recording: of which program, under which token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordingName {
    pub(crate) token: u64,
    pub(crate) program: RowId,
}

impl RecordingName {
    fn file_name(self) -> String {
        format!("{:016x}-{:016x}", self.token, self.program)
    }

    fn parse(name: &str) -> Option<Self> {
        let (token, program) =
            name.split_once('-').filter(|(token, program)| token.len() + program.len() == 32)?;
        let (token, program) =
            (u64::from_str_radix(token, 16).ok()?, RowId::from_str_radix(program, 16).ok()?);
        Some(Self { token, program })
    }
}

/// Bounds of one recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RecordingBounds {
    pub(crate) bytes: u64,
    pub(crate) window_s: f64,
}

impl RecordingBounds {
    fn control(self) -> Vec<u8> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a checked number of seconds; beyond u64 it is the longest time there is"
        )]
        let window_ns = (self.window_s * 1e9) as u64;
        raw::control(self.bytes, RecordingEnd::After(window_ns.max(1)))
    }
}

/// The folder of all recordings.
#[derive(Debug)]
pub(crate) struct RecordingOffers {
    folder: PathBuf,
}

impl RecordingOffers {
    /// Makes the folder, and the link to it below `state`.
    pub(crate) fn open(folder: PathBuf, state: &Path) -> std::io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&folder)?;
        // Those who are recorded pass through it; nobody lists it.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o711))?;
        let link = state.join(LINK);
        if std::fs::read_link(&link).ok().as_deref() != Some(folder.as_path()) {
            match std::fs::remove_file(&link) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => std::os::unix::fs::symlink(&folder, &link)?,
            }
        }
        Ok(Self { folder })
    }

    /// Where the children of imasd keep their own files, too.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, name: RecordingName) -> PathBuf {
        self.folder.join(name.file_name())
    }

    /// Offers the recording to the user's next start.
    pub(crate) fn offer(
        &self,
        name: RecordingName,
        uid: u32,
        bounds: RecordingBounds,
    ) -> std::io::Result<()> {
        let folder = self.path(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let offer = folder.join(RECORD_OFFER);
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&offer)?;
        file.write_all(&bounds.control())?;
        drop(file);
        let owner = Some(nix::unistd::Uid::from_raw(uid));
        nix::unistd::chown(&offer, owner, None)?;
        Ok(nix::unistd::chown(&folder, owner, None)?) // last: from here on it is the user's
    }

    /// Whether a process has taken it.
    pub(crate) fn is_taken(&self, name: RecordingName) -> bool {
        std::fs::symlink_metadata(self.path(name).join(RECORD_CONTROL)).is_ok()
    }

    /// The process that made the first raw file, by its own word.
    pub(crate) fn first_pid(&self, name: RecordingName) -> Option<u32> {
        let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        let path = self.path(name).join("0.raw");
        let file = std::fs::File::options().read(true).custom_flags(flags.bits()).open(path).ok()?;
        let mut bytes = vec![];
        file.take(64).read_to_end(&mut bytes).ok()?;
        raw::pid_of(&bytes)
    }

    /// The recordings that have a folder.
    pub(crate) fn all(&self) -> Vec<RecordingName> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| RecordingName::parse(entry.file_name().to_str()?)).collect()
    }

    /// Whether the folder is one of ours.
    pub(crate) fn owns(&self, folder: &Path) -> bool {
        folder.parent() == Some(self.folder.as_path())
    }

    /// Removes what children have left that were killed. Not while one runs.
    pub(crate) fn remove_scratch(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_scratch = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("imas-");
        for entry in entries.filter(|entry| is_scratch(&entry.file_name())) {
            self.remove(&entry.path());
        }
    }

    pub(crate) fn remove(&self, folder: &Path) {
        if !self.owns(folder) {
            return;
        }
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("{}: it stays: {error}", folder.display());
            }
            _ => {}
        }
    }
}

/// Why a folder is not what the recorder leaves behind within its bounds, if so.
pub(crate) fn unsound(folder: &Path, most_bytes: u64) -> Option<String> {
    let mut bytes = 0_u64;
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let about = std::fs::symlink_metadata(entry.path()).ok()?;
        if !about.is_file() || about.nlink() > 1 {
            return Some("its raw files are not those of a recording".to_owned());
        }
        bytes = bytes.saturating_add(about.len());
    }
    (bytes > most_bytes.saturating_add(SLACK_BYTES)).then(|| format!("its raw files have {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_offered_taken_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let offers = RecordingOffers::open(place.path().join("records"), &state).unwrap();
        let name = RecordingName { token: 0xabc, program: 7 };
        let bounds = RecordingBounds { bytes: 1 << 20, window_s: 2.0 };
        let me = nix::unistd::geteuid().as_raw();
        offers.offer(name, me, bounds).unwrap();
        assert!(offers.offer(name, me, bounds).is_err(), "it is there");
        let folder = state.join("r/0000000000000abc-0000000000000007");
        let about = std::fs::metadata(&folder).unwrap();
        assert_eq!((about.permissions().mode() & 0o7777, about.uid()), (0o700, me));
        assert!(!offers.is_taken(name) && offers.first_pid(name).is_none());
        std::fs::rename(folder.join(RECORD_OFFER), folder.join(RECORD_CONTROL)).unwrap();
        assert!(offers.is_taken(name) && offers.all() == [name]);
        offers.remove(&place.path().join("state"));
        assert!(state.exists(), "only what is ours is removed");
        offers.remove(&offers.path(name));
        assert!(offers.all().is_empty() && !folder.exists());
    }

    #[test]
    fn what_a_user_puts_there_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("0.raw"), vec![0; 1000]).unwrap();
        assert_eq!(unsound(place.path(), 1000), None);
        std::os::unix::fs::symlink("/etc/shadow", place.path().join("1.raw")).unwrap();
        assert!(unsound(place.path(), 1000).unwrap().contains("not those of a recording"));
        std::fs::remove_file(place.path().join("1.raw")).unwrap();
        std::fs::hard_link(place.path().join("0.raw"), place.path().join("1.raw")).unwrap();
        assert!(unsound(place.path(), 1000).is_some());
        std::fs::remove_file(place.path().join("1.raw")).unwrap();
        let large = std::fs::File::create(place.path().join("2.raw")).unwrap();
        large.set_len(SLACK_BYTES + 2000).unwrap();
        assert!(unsound(place.path(), 1000).unwrap().contains("bytes"));
    }

    #[test]
    fn only_folders_of_recordings_have_a_name() {
        for name in ["x", "0000000000000abc-7", "0000000000000abc-000000000000000g"] {
            assert_eq!(RecordingName::parse(name), None, "{name}");
        }
        let name = RecordingName { token: u64::MAX, program: 1 };
        assert_eq!(RecordingName::parse(&name.file_name()), Some(name));
    }
}
