// SPDX-License-Identifier: Apache-2.0
//! The C library of a process: its version, and its variables. Both are read from the process's memory, so that
//! containers and files that were replaced by an upgrade need no further thought.

use super::figures::NotReadable;
use super::found::{Region, RegionKind};
use super::layout::Layout;
use super::memory::{Memory, PageState};

/// Version of a C library of glibc, from the bytes of its file.
pub(crate) fn version_of_file(bytes: &[u8]) -> Option<String> {
    let found = bytes.windows(BANNER.len()).position(|part| part == BANNER)?;
    version_in(&bytes[found..bytes.len().min(found + LINE)])
}

/// Beginning of glibc's line about itself.
const BANNER: &[u8] = b"GNU C Library (";
/// Text in front of the version of the C library.
const RELEASE: &str = "release version ";
/// Most bytes of that line.
const LINE: usize = 256;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Mappings of each kind that are read; more of them are no C library.
const MOST_MAPPINGS: usize = 8;
/// Most bytes of a mapping that are searched, and most bytes of variables in one.
const MOST_TEXT: u64 = 4 << 20;
const MOST_DATA: u64 = 1 << 20;
/// Header of an ELF file of 64 bits.
const ELF_64: &[u8] = b"\x7fELF\x02";

/// The C library of a process.
pub(super) struct Library {
    pub(super) version: String,
    pub(super) layout: Layout,
    /// Its variables, mapping by mapping: address, words.
    pub(super) data: Vec<(u64, Vec<u64>)>,
}

impl Library {
    pub(super) fn of(memory: &dyn Memory, regions: &[Region]) -> Result<Self, NotReadable> {
        let of_kind = |kind| regions.iter().filter(move |region| region.kind == kind).take(MOST_MAPPINGS);
        let texts: Vec<&Region> = of_kind(RegionKind::LibraryText).collect();
        let first = texts.first();
        let mut header = [0; ELF_64.len()];
        let read = first.map(|first| memory.read(first.begin, &mut header));
        if let Some(Err(error)) = &read {
            return Err(NotReadable::of(error));
        }
        if header != ELF_64 {
            return Err(NotReadable::because("it is not a process of 64 bits"));
        }
        let line = texts.iter().rev().find_map(|region| banner(memory, region));
        let version = line.as_deref().and_then(version_in).unwrap_or_default();
        let layout = minor(&version).and_then(Layout::of);
        let layout = layout.ok_or_else(|| match version.is_empty() {
            true => NotReadable::because("its C library does not say which version it is"),
            false => NotReadable::because(format!("the layout of glibc {version} is not known")),
        })?;
        let data = of_kind(RegionKind::LibraryData).map(|region| (region.begin, words(memory, region)));
        Ok(Self { version, layout, data: data.collect() })
    }
}

/// glibc's line about itself, with what follows.
fn banner(memory: &dyn Memory, region: &Region) -> Option<Vec<u8>> {
    let end = region.end.min(region.begin + MOST_TEXT);
    let mut bytes = vec![0; PIECE + LINE];
    for at in (region.begin..end).step_by(PIECE) {
        let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
        let got = memory.read(at, &mut bytes[..room]).unwrap_or(0);
        if let Some(found) = bytes[..got].windows(BANNER.len()).position(|part| part == BANNER) {
            return Some(bytes[found..got.min(found + LINE)].to_vec());
        }
    }
    None
}

/// The version in glibc's line about itself: two numbers.
fn version_in(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.split_once(RELEASE)?;
    let version: String = rest.chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
    Some(version.trim_end_matches('.').to_owned())
}

fn minor(version: &str) -> Option<u32> {
    let mut numbers = version.split('.');
    let is_two = numbers.next() == Some("2");
    numbers.next().filter(|_| is_two)?.parse().ok()
}

/// Words of a mapping; 0 where nothing is resident.
fn words(memory: &dyn Memory, region: &Region) -> Vec<u64> {
    let end = region.end.min(region.begin + MOST_DATA);
    let page_bytes = memory.page_bytes();
    let mut words = vec![];
    let mut page = vec![0; usize::try_from(page_bytes).unwrap_or(0)];
    for at in (region.begin..end).step_by(page.len()) {
        let mut state = [PageState::Absent];
        let known = memory.pages(at / page_bytes, &mut state);
        page.fill(0);
        if known.is_ok() && state[0] != PageState::Absent {
            let _ = memory.read(at, &mut page); // what cannot be read is 0
        }
        words.extend(page.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_lines_of_distributions() {
        for (line, version, number) in [
            (
                "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopy",
                "2.36",
                Some(36),
            ),
            ("GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8) stable release version 2.39.\n", "2.39", Some(39)),
            ("GNU C Library (GNU libc) development release version 2.42.9000.\n", "2.42.9000", Some(42)),
            ("GNU C Library (x) stable release version 3.1.\n", "3.1", None),
        ] {
            assert_eq!(version_in(line.as_bytes()).as_deref(), Some(version));
            assert_eq!(minor(version), number);
        }
        assert_eq!(version_in(b"GNU C Library (x)"), None);
    }
}
