// SPDX-License-Identifier: Apache-2.0
//! Reads a file that somebody else may have put there: a regular one, up to a size.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _, Result};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The bytes of the file.
///
/// # Errors
/// When it cannot be read. `InvalidInput` for a folder, FIFO, socket or device; `FileTooLarge` for one with more than
/// `most` bytes.
pub fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    // An open of a FIFO would wait, and one of a terminal take that over.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut bytes = vec![];
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_file_is_read_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert_eq!(read(&file, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(read(&fifo, 5).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(Path::new("/dev/zero"), 5).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
