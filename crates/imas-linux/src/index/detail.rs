// SPDX-License-Identifier: Apache-2.0
//! What distinguishes programs of one executable.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use imas_abi::detail_kind;
use serde::{Deserialize, Serialize};

use crate::fnv::fnv64;
use crate::interpreter_target::InterpreterTarget;

/// Detail that distinguishes programs of one executable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Detail {
    /// Nothing: the entry of the executable itself, used when none with a detail fits.
    None,
    /// Script or jar, by the file itself.
    File {
        /// Device of the file.
        dev: u64,
        /// Inode of the file.
        ino: u64,
    },
    /// Module, main class, or `-c` with the hash of the code, by its text.
    Text(Vec<u8>),
    /// A text that is too long to be kept: its hash and its length.
    LongText([u64; 2]),
    /// systemd unit, by its name.
    Unit(String),
    /// The name by which the executable is started ([`crate::started_name`]).
    Name(String),
}

impl Detail {
    /// Detail of an interpreter's target, in a process whose working directory is `folder`.
    #[must_use]
    pub fn of(target: &InterpreterTarget, folder: &Path) -> Self {
        match target {
            InterpreterTarget::Nothing => Self::None,
            InterpreterTarget::Code(option) => Self::Text(option.as_bytes().to_vec()),
            InterpreterTarget::Named(option, name) => Self::file(folder, name)
                .unwrap_or_else(|| Self::Text([option.as_bytes(), b" ", name.as_bytes()].concat())),
            InterpreterTarget::Word(word) => {
                Self::file(folder, word).unwrap_or_else(|| Self::Text(word.as_bytes().to_vec()))
            }
        }
    }

    fn file(folder: &Path, word: &OsStr) -> Option<Self> {
        let about = std::fs::metadata(folder.join(word)).ok().filter(|_| !word.is_empty())?;
        about.is_file().then(|| Self::File { dev: about.dev(), ino: about.ino() })
    }

    /// Key that an entry of the index holds: [`imas_abi::detail_kind`] and two numbers.
    #[must_use]
    pub fn key(&self) -> (u32, [u64; 2]) {
        let hashed = |text: &[u8]| [fnv64(text), text.len() as u64];
        match self {
            Self::None => (detail_kind::NONE, [0, 0]),
            Self::File { dev, ino } => (detail_kind::FILE, [*dev, *ino]),
            Self::Text(text) => (detail_kind::TEXT, hashed(text)),
            Self::LongText(key) => (detail_kind::TEXT, *key),
            Self::Unit(name) => (detail_kind::UNIT, hashed(name.as_bytes())),
            Self::Name(name) => (detail_kind::NAME, hashed(name.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_by_the_file_and_a_module_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.py"), "").unwrap();
        let about = std::fs::metadata(folder.path().join("s.py")).unwrap();
        let file = Detail::File { dev: about.dev(), ino: about.ino() };
        assert_eq!(Detail::of(&InterpreterTarget::Word("s.py".into()), folder.path()), file);
        assert_eq!(Detail::of(&InterpreterTarget::Named("-jar".into(), "s.py".into()), folder.path()), file);
        let module = InterpreterTarget::Named("-m".into(), "http".into());
        assert_eq!(Detail::of(&module, folder.path()), Detail::Text(b"-m http".to_vec()));
        assert_eq!(Detail::of(&InterpreterTarget::Word("".into()), folder.path()), Detail::Text(Vec::new()));
    }
}
