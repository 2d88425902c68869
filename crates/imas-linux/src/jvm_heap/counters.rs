// SPDX-License-Identifier: Apache-2.0
//! HotSpot's file of counters: a head of 32 bytes, then entries, each with a name, a type and a value. Numbers are of
//! the byte order of the machine.

use imas_core::printable;

const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
const HEAD: usize = 32;
const ENTRY: usize = 20;
/// Version of the format.
const MAJOR: u8 = 2;
/// A JVM has about 200 entries.
const MOST_ENTRIES: usize = 4096;
/// Longest text that is shown.
const LONGEST: usize = 64;

/// Counters of one file.
pub(super) struct Counters<'a> {
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

/// One entry.
struct Entry<'a> {
    name: &'a [u8],
    kind: u8,
    value: &'a [u8],
}

impl<'a> Counters<'a> {
    /// None if it is no such file.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let is_native = *bytes.get(4)? == u8::from(cfg!(target_endian = "little"));
        if !bytes.starts_with(&MAGIC) || !is_native || *bytes.get(5)? != MAJOR {
            return None;
        }
        let first = number(bytes, 24)?.max(HEAD);
        Some(Self { bytes, first, count: number(bytes, 28)?.min(MOST_ENTRIES) })
    }

    /// The number of that name.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let entry = self.entry(name, b'J')?;
        let value = i64::from_ne_bytes(entry.value.get(..8)?.try_into().ok()?);
        u64::try_from(value).ok()
    }

    /// The text of that name, fit to be shown.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.entry(name, b'B')?.value;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len()).min(LONGEST);
        Some(printable::name(&String::from_utf8_lossy(&value[..end])).into_owned())
    }

    fn entry(&self, name: &str, kind: u8) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.name == name.as_bytes() && entry.kind == kind)
    }

    /// The entries, as far as they lie in the file.
    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let (bytes, mut at) = (self.bytes, self.first);
        (0..self.count).map_while(move |_| {
            let length = number(bytes, at)?;
            let entry = bytes.get(at..at.checked_add(length)?).filter(|entry| entry.len() > ENTRY)?;
            at += length;
            let name = entry.get(number(entry, 4)?..)?;
            let end = name.iter().position(|byte| *byte == 0)?;
            Some(Entry { name: &name[..end], kind: entry[12], value: entry.get(number(entry, 16)?..)? })
        })
    }
}

/// The number of four bytes at that place.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(i32::from_ne_bytes(four)).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file with these numbers and texts.
    pub(in super::super) fn file(entries: &[(&str, Result<i64, &str>)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([u8::from(cfg!(target_endian = "little")), MAJOR, 0, 1]);
        bytes.resize(24, 0);
        bytes.extend(32_i32.to_ne_bytes());
        bytes.extend(i32::try_from(entries.len()).unwrap().to_ne_bytes());
        for (name, value) in entries {
            let value = value.map_or_else(|text| text.as_bytes().to_vec(), |number| number.to_ne_bytes().to_vec());
            let kind = if entries.iter().any(|(one, of)| one == name && of.is_ok()) { b'J' } else { b'B' };
            let value_at = ENTRY + name.len() + 1;
            let length = value_at + value.len() + 1;
            for part in [length, ENTRY, 0] {
                bytes.extend(i32::try_from(part).unwrap().to_ne_bytes());
            }
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(i32::try_from(value_at).unwrap().to_ne_bytes());
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(value);
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn numbers_and_texts_are_found_by_name_and_type() {
        let bytes = file(&[("a.b", Ok(7)), ("c", Err("x\x1b[2J")), ("d", Ok(-1))]);
        let counters = Counters::read(&bytes).unwrap();
        assert_eq!(counters.number("a.b"), Some(7));
        assert_eq!(counters.number("c"), None);
        assert!(!counters.text("c").unwrap().contains('\x1b'));
        assert_eq!(counters.number("d"), None, "no number of bytes");
        assert_eq!(counters.text("none"), None);
    }

    #[test]
    fn whatever_is_in_the_file_ends_the_reading() {
        let good = file(&[("a", Ok(7)), ("b", Err("text"))]);
        for at in 0..good.len() {
            assert!(Counters::read(&good[..at]).is_none_or(|cut| cut.text("b") != Some("text".into())), "{at}");
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Some(counters) = Counters::read(&bad) {
                    let _ = (counters.number("a"), counters.text("b"));
                }
            }
        }
        let mut endless = good;
        endless[32..36].copy_from_slice(&0_i32.to_ne_bytes());
        assert_eq!(Counters::read(&endless).unwrap().number("a"), None, "an entry without a length");
    }
}
