// SPDX-License-Identifier: Apache-2.0
//! Files of raw runs made small enough to be kept with a source tree: gzip, without keys that say nothing.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

/// What a gzip file begins with.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

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
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text"))
}

/// Lines that were packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packed {
    /// Headers and runs.
    pub lines: usize,
    /// Lines that are no JSON object, such as a torn last one, and are not in it.
    pub skipped: usize,
    /// Size of the file.
    pub bytes: u64,
}

/// Packs files, one after the other, into one, which is there whole or not at all. Numbers stay as they are.
///
/// # Errors
/// When a file cannot be read or the packed one not be written.
pub fn write(texts: &[String], path: &Path) -> Result<Packed> {
    let partial = path.with_extension("partial");
    let mut gzip = GzEncoder::new(File::create(&partial)?, Compression::best());
    let mut packed = Packed::default();
    for line in texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty()) {
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(line) else {
            packed.skipped += 1;
            continue;
        };
        let said: Map<String, Value> = object.into_iter().filter(|(_, value)| !value.is_null()).collect();
        serde_json::to_writer(&mut gzip, &said)?;
        gzip.write_all(b"\n")?;
        packed.lines += 1;
    }
    let file = gzip.finish()?;
    file.sync_all()?;
    packed.bytes = file.metadata()?.len();
    std::fs::rename(&partial, path)?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read_back_without_nulls_and_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl.gz");
        let text = "{\"a\":0.1234567890123,\"b\":null}\n{\"c\":1}\n{\"d\":".to_owned();
        let packed = write(&[text, "{\"e\":2}\n".to_owned()], &path).unwrap();
        assert_eq!((packed.lines, packed.skipped), (3, 1));
        assert_eq!(read(&path).unwrap(), "{\"a\":0.1234567890123}\n{\"c\":1}\n{\"e\":2}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::write(&path, &std::fs::read(&path).unwrap()[..20]).unwrap();
        assert!(read(&path).is_err(), "a damaged file is not taken for a short one");
    }
}
