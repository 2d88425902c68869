// SPDX-License-Identifier: Apache-2.0
//! The texts in a file that end with a zero byte, looked through in small pieces.

use std::io::{self, Read, Seek, SeekFrom};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 48 << 10;
/// A longer text is no name that anybody looks for.
const LONGEST: usize = 64;

/// Whether a text of the file, at this offset, is one that is looked for. What is read is taken off `left`; the rest of a
/// larger file is not looked at.
pub(super) fn any(
    source: &mut (impl Read + Seek),
    left: &mut u64,
    mut is_wanted: impl FnMut(u64, &str) -> bool,
) -> io::Result<bool> {
    source.seek(SeekFrom::Start(0))?;
    let mut source = source.take(*left);
    let (mut piece, mut text, mut at) = (vec![0; PIECE_BYTES], Vec::with_capacity(LONGEST), 0_u64);
    loop {
        let got = source.read(&mut piece)?;
        if got == 0 {
            return Ok(false);
        }
        *left = left.saturating_sub(got as u64);
        for byte in &piece[..got] {
            if *byte != 0 {
                // One byte more than the longest shows that it is too long.
                if text.len() <= LONGEST {
                    text.push(*byte);
                }
            } else {
                let begin = at - text.len() as u64;
                let is_short = (1..=LONGEST).contains(&text.len());
                if is_short && std::str::from_utf8(&text).is_ok_and(|text| is_wanted(begin, text)) {
                    return Ok(true);
                }
                text.clear();
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn has(file: &[u8], name: &str, mut left: u64) -> bool {
        any(&mut Cursor::new(file), &mut left, |_, text| text == name).unwrap()
    }

    #[test]
    fn whole_texts_are_found_across_pieces_and_within_the_bound() {
        let mut file = vec![b'x'; PIECE_BYTES - 3];
        file.extend_from_slice(b"\0mallctl\0tail");
        assert!(has(&file, "mallctl", u64::MAX) && !has(&file, "allctl", u64::MAX));
        assert!(!has(&file, "tail", u64::MAX), "it has no end");
        assert!(!has(&file, "mallctl", PIECE_BYTES as u64), "beyond what may be read");
        let at =
            |wanted: u64| any(&mut Cursor::new(&file), &mut u64::MAX.clone(), |at, _| at == wanted).unwrap();
        assert!(at(PIECE_BYTES as u64 - 2), "where it begins");
    }
}
