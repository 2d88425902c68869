// SPDX-License-Identifier: Apache-2.0
//! Dynamic symbols, looked through in small pieces: however many a file has or claims to have, the memory for
//! it stays the same.
//!
//! The texts in a file that end with a zero byte, looked through in small pieces.
//!
//! Requirements of a library: the version of glibc, and libstdc++.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader, Sym};
use object::{Endianness, pod};

use super::headers::{Part, Table};
use super::{ElfError, library_bytes};

/// Bytes that are read at once: a multiple of the size of a symbol, be it of 32 or 64 bits.
const PIECE_BYTES: usize = 48 << 10;
/// A linker stores a name once, or at the end of a longer one. More occurrences than this have another
/// purpose.
const MOST_NAMES: usize = 4096;
/// Names that are looked for. The sanitizers are present as a definition with a static runtime, as a
/// reference with a shared one.
const NAMES: [&[u8]; 6] =
    [b"malloc", b"__asan_init", b"__tsan_init", b"__msan_init", b"__hwasan_init", b"__lsan_init"];
/// Bytes of the longest of the names.
const LONGEST: usize = 13;

/// Facts that the symbols show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    pub(super) malloc: bool,
    pub(super) sanitizer: Option<String>,
}

/// Looks through a table, if no more than `left` bytes have to be read for it.
pub(super) fn read(
    source: &mut (impl Read + Seek),
    table: Option<Table>,
    left: u64,
) -> Result<Symbols, ElfError> {
    let Some(table) = table else { return Ok(Symbols::default()) };
    if table.symbols.bytes.saturating_add(table.names.bytes) > left {
        return Err(ElfError::TooLarge);
    }
    let names = names(source, table.names)?;
    let mut found = Symbols::default();
    if names.is_empty() {
        return Ok(found);
    }
    pieces(source, table.symbols, |piece, _| {
        if table.is_64 {
            note::<FileHeader64<Endianness>>(piece, table.endian, &names, &mut found)
        } else {
            note::<FileHeader32<Endianness>>(piece, table.endian, &names, &mut found)
        }
    })?;
    Ok(found)
}

/// Names of one file beyond this number of bytes are not looked through for a match; a thousand times what
/// programs have.
const MOST_NAME_BYTES: u64 = 4 << 20;

/// Which symbols of a file are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Symbols that the file refers to and does not define.
    Undefined,
    /// Functions that the file defines for others.
    Defined,
}

/// Hands over the name of each symbol of that kind. No more than `left` bytes are read.
pub(super) fn names_of(
    source: &mut (impl Read + Seek),
    table: Option<Table>,
    left: u64,
    kind: Kind,
    each: &mut impl FnMut(&str),
) -> Result<(), ElfError> {
    let Some(table) = table.filter(|table| table.is_64) else { return Ok(()) };
    let names = table.names.bytes;
    if names > MOST_NAME_BYTES || table.symbols.bytes.saturating_add(names) > left {
        return Err(ElfError::TooLarge);
    }
    let mut text = Vec::new();
    pieces(source, table.names, |piece, _| {
        text.extend_from_slice(piece);
        Ok(())
    })?;
    pieces(source, table.symbols, |piece, _| {
        names_in(piece, table.endian, &text, kind).for_each(&mut *each);
        Ok(())
    })
}

/// A symbol with a longer name is not one that anybody looks for. Without this bound a file of few pages,
/// whose table of names has no end, would be read for an hour.
const LONGEST_NAME: usize = 128;

type Symbol = elf::Sym64<Endianness>;

impl Kind {
    fn has(self, symbol: &Symbol, endian: Endianness) -> bool {
        match self {
            Self::Undefined => symbol.st_shndx(endian) == elf::SHN_UNDEF,
            Self::Defined => {
                let types = [elf::STT_FUNC, elf::STT_GNU_IFUNC, elf::STT_NOTYPE];
                let is_reached = [elf::STV_DEFAULT, elf::STV_PROTECTED].contains(&symbol.st_visibility());
                is_definition(symbol, endian, &types) && is_reached && symbol.st_bind() != elf::STB_LOCAL
            }
        }
    }
}

/// Names of the symbols of that kind in a piece of the table.
fn names_in<'a>(
    piece: &'a [u8],
    endian: Endianness,
    names: &'a [u8],
    kind: Kind,
) -> impl Iterator<Item = &'a str> {
    let whole = piece.len() / size_of::<Symbol>();
    let (symbols, _) = pod::slice_from_bytes::<Symbol>(piece, whole).unwrap_or_default();
    symbols.iter().filter(move |symbol| kind.has(symbol, endian)).filter_map(move |symbol| {
        let name = names.get(symbol.st_name(endian) as usize..)?;
        let name = &name[..name.len().min(LONGEST_NAME)];
        let end = name.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&name[..end]).ok()
    })
}

/// Names, of those wanted, that the table of names has. At most `left` bytes are read.
pub(super) fn among(
    source: &mut (impl Read + Seek),
    names: Part,
    left: u64,
    wanted: &[&'static str],
) -> io::Result<BTreeSet<&'static str>> {
    let mut found = BTreeSet::new();
    let (mut name, mut is_long) = (Vec::with_capacity(LONGEST_NAME), false);
    let part = Part { bytes: names.bytes.min(left), ..names };
    let read = pieces(source, part, |piece, _| {
        for &byte in piece {
            if byte != 0 {
                is_long |= name.len() == LONGEST_NAME;
                if !is_long {
                    name.push(byte);
                }
                continue;
            }
            found.extend(wanted.iter().find(|one| !is_long && one.as_bytes() == name));
            name.clear();
            is_long = false;
        }
        Ok(())
    });
    match read {
        Err(ElfError::Read(error)) => Err(error),
        _ => Ok(found),
    }
}

/// Names of ours in the table of names: the index in [`NAMES`], by the offset in the table.
fn names(source: &mut (impl Read + Seek), part: Part) -> Result<HashMap<u32, usize>, ElfError> {
    let mut found = HashMap::new();
    // The end of the piece before, in which a name may have begun.
    let mut text: Vec<u8> = Vec::with_capacity(PIECE_BYTES + LONGEST);
    pieces(source, part, |piece, at| {
        let kept = text.len().min(LONGEST);
        text.drain(..text.len() - kept);
        text.extend_from_slice(piece);
        for (end, _) in text.iter().enumerate().skip(kept).filter(|(_, byte)| **byte == 0) {
            for (which, name) in NAMES.iter().enumerate().filter(|(_, name)| text[..end].ends_with(name)) {
                let offset = (at + end as u64) - (kept + name.len()) as u64;
                found.insert(u32::try_from(offset).unwrap_or(u32::MAX), which);
            }
        }
        if found.len() > MOST_NAMES { Err(ElfError::TooLarge) } else { Ok(()) }
    })?;
    Ok(found)
}

fn note<Elf: FileHeader<Endian = Endianness>>(
    piece: &[u8],
    endian: Endianness,
    names: &HashMap<u32, usize>,
    found: &mut Symbols,
) -> Result<(), ElfError> {
    let whole = piece.len() / size_of::<Elf::Sym>();
    let (symbols, _) = pod::slice_from_bytes::<Elf::Sym>(piece, whole).unwrap_or_default();
    for symbol in symbols {
        match names.get(&symbol.st_name(endian)).map(|which| NAMES[*which]) {
            None => {}
            Some(b"malloc") => {
                found.malloc |=
                    is_definition(symbol, endian, &[elf::STT_FUNC, elf::STT_OBJECT, elf::STT_NOTYPE]);
            }
            Some(name) => {
                let name = String::from_utf8_lossy(name);
                found.sanitizer = Some(name.trim_start_matches('_').trim_end_matches("_init").to_owned());
            }
        }
    }
    Ok(())
}

fn is_definition<S: Sym<Endian = Endianness>>(
    symbol: &S,
    endian: Endianness,
    types: &[elf::SymbolType],
) -> bool {
    let section = symbol.st_shndx(endian);
    let is_somewhere = !section.is_special() || section == elf::SHN_XINDEX;
    is_somewhere && types.contains(&symbol.st_type())
}

/// Hands over a part of the file piece by piece, with the offset of each in the part.
fn pieces(
    source: &mut (impl Read + Seek),
    part: Part,
    mut each: impl FnMut(&[u8], u64) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    let mut piece = vec![0; PIECE_BYTES];
    source.seek(SeekFrom::Start(part.offset)).map_err(beyond_the_end)?;
    let mut at = 0;
    while at < part.bytes {
        let bytes = usize::try_from(part.bytes - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        source.read_exact(&mut piece[..bytes]).map_err(beyond_the_end)?;
        each(&piece[..bytes], at)?;
        at += bytes as u64;
    }
    Ok(())
}

/// The file is shorter than its header claims: damaged, or truncated while it was read. The kernel refuses an
/// offset that no file can have.
fn beyond_the_end(error: io::Error) -> ElfError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => ElfError::Truncated,
        _ => error.into(),
    }
}

/// A longer text is no name that anybody looks for.
const LONGEST_TEXT: usize = 64;

/// Whether a text of the file, at this offset, is one that is looked for. What is read is taken off `left`; the rest of a
/// larger file is not looked at.
pub(super) fn any_text(
    source: &mut (impl Read + Seek),
    left: &mut u64,
    mut is_wanted: impl FnMut(u64, &str) -> bool,
) -> io::Result<bool> {
    source.seek(SeekFrom::Start(0))?;
    let mut source = source.take(*left);
    let (mut piece, mut text, mut at) = (vec![0; PIECE_BYTES], Vec::with_capacity(LONGEST_TEXT), 0_u64);
    loop {
        let got = source.read(&mut piece)?;
        if got == 0 {
            return Ok(false);
        }
        *left = left.saturating_sub(got as u64);
        for byte in &piece[..got] {
            if *byte != 0 {
                // One byte more than the longest shows that it is too long.
                if text.len() <= LONGEST_TEXT {
                    text.push(*byte);
                }
            } else {
                let begin = at - text.len() as u64;
                let is_short = (1..=LONGEST_TEXT).contains(&text.len());
                if is_short && std::str::from_utf8(&text).is_ok_and(|text| is_wanted(begin, text)) {
                    return Ok(true);
                }
                text.clear();
            }
            at += 1;
        }
    }
}

/// Newest version of glibc, major and minor, of whose symbols a library asks for one; an older glibc refuses the library.
/// `None` where it asks for none.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn glibc_asked(library: &Path) -> Result<Option<(u16, u16)>, ElfError> {
    Ok(asked(library)?.iter().filter_map(|name| of_glibc(name)).max())
}

/// Whether a library asks for symbols of libstdc++, which an image may lack: no program starts there with it.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn asks_for_libstdcxx(library: &Path) -> Result<bool, ElfError> {
    Ok(asked(library)?.iter().any(|name| name.starts_with(b"GLIBCXX_")))
}

/// Names of the versions of symbols for which a library asks.
fn asked(library: &Path) -> Result<Vec<Vec<u8>>, ElfError> {
    let bytes = library_bytes(library)?;
    match object::File::parse(&*bytes)? {
        object::File::Elf32(elf) => Ok(version_names(&elf)?),
        object::File::Elf64(elf) => Ok(version_names(&elf)?),
        _ => Ok(vec![]),
    }
}

fn version_names<Elf: FileHeader>(file: &ElfFile<'_, Elf>) -> Result<Vec<Vec<u8>>, object::Error> {
    let (endian, data, sections) = (file.endian(), file.data(), file.elf_section_table());
    let Some((mut needed, names)) = sections.gnu_verneed(endian, data)? else { return Ok(vec![]) };
    let names = sections.strings(endian, data, names)?;
    let mut asked = vec![];
    while let Some((_, versions)) = needed.next()? {
        for version in versions {
            asked.push(version?.name(endian, names)?.to_vec());
        }
    }
    Ok(asked)
}

/// Major and minor number of a version such as `GLIBC_2.2.5`; `None` for versions of other libraries.
fn of_glibc(name: &[u8]) -> Option<(u16, u16)> {
    let mut numbers = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_part_that_no_file_can_have_is_damage() {
        let part = Part { offset: u64::MAX, bytes: 1 };
        let read = pieces(&mut tempfile::tempfile().unwrap(), part, |_, _| Ok(()));
        assert!(matches!(read, Err(ElfError::Truncated)), "{read:?}");
    }

    /// Without the bound on a name's length each of these symbols reads four million bytes, and has a name.
    #[test]
    fn names_without_an_end_cost_no_time() {
        const SYMBOLS: u64 = 200_000;
        let (symbols, names) = (SYMBOLS * size_of::<elf::Sym64<Endianness>>() as u64, 4 << 20);
        let mut file = vec![0; usize::try_from(symbols).unwrap()];
        file.resize(file.len() + (4 << 20) - 1, b'x');
        file.push(0);
        let table = Table {
            symbols: Part { offset: 0, bytes: symbols },
            names: Part { offset: symbols, bytes: names },
            is_64: true,
            endian: Endianness::Little,
        };
        let refers = |left| {
            let mut look = |name: &str| panic!("a name of {} bytes was read", name.len());
            names_of(&mut Cursor::new(&file), Some(table), left, Kind::Undefined, &mut look)
        };
        refers(symbols + names).unwrap();
        assert!(matches!(refers(symbols), Err(ElfError::TooLarge)), "more than may be read");
    }

    fn has(file: &[u8], name: &str, mut left: u64) -> bool {
        any_text(&mut Cursor::new(file), &mut left, |_, text| text == name).unwrap()
    }

    #[test]
    fn whole_texts_are_found_across_pieces_and_within_the_bound() {
        let mut file = vec![b'x'; PIECE_BYTES - 3];
        file.extend_from_slice(b"\0mallctl\0tail");
        assert!(has(&file, "mallctl", u64::MAX) && !has(&file, "allctl", u64::MAX));
        assert!(!has(&file, "tail", u64::MAX), "it has no end");
        assert!(!has(&file, "mallctl", PIECE_BYTES as u64), "beyond what may be read");
        let at = |wanted: u64| {
            any_text(&mut Cursor::new(&file), &mut u64::MAX.clone(), |at, _| at == wanted).unwrap()
        };
        assert!(at(PIECE_BYTES as u64 - 2), "where it begins");
    }

    #[test]
    fn the_newest_version_of_glibc_counts() {
        assert_eq!(of_glibc(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(of_glibc(b"GLIBC_PRIVATE"), None);
        assert_eq!(of_glibc(b"GLIBCXX_3.4.21"), None);
        let folder = tempfile::tempdir().unwrap();
        let asked = |text: &str| {
            let flags = ["-shared", "-fPIC", "-nostartfiles"];
            glibc_asked(&imas_testing::compiled(folder.path(), "a.so", text, &flags)).unwrap()
        };
        assert_eq!(asked("int one(void) { return 1; }"), None);
        let gettid = "int gettid(void); int getpid(void); int two(void) { return gettid() + getpid(); }";
        assert_eq!(asked(gettid), Some((2, 30)));
        assert!(glibc_asked(&folder.path().join("a.c")).is_err());
        assert!(!asks_for_libstdcxx(&folder.path().join("a.so")).unwrap());
    }
}
