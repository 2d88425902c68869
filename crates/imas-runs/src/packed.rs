// SPDX-License-Identifier: Apache-2.0
//! Files of raw runs, which are packed with gzip where they are kept with a source tree (`imas-lab suite
//! pack`).

use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// First bytes of a gzip file.
pub(crate) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The text of a file of raw runs, packed or not.
///
/// # Errors
/// When it cannot be read, is damaged or is no text.
pub fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path)?;
    let bytes = if bytes.starts_with(&MAGIC) {
        let mut plain = vec![];
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
        plain
    } else {
        bytes
    };
    String::from_utf8(bytes).or_else(|error| match error.utf8_error().error_len() {
        // The last line is cut off within a character.
        None => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Some(_) => Err(Error::new(ErrorKind::InvalidData, "it is no text")),
    })
}
