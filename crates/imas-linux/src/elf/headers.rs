// SPDX-License-Identifier: Apache-2.0
//! The small parts of an ELF file: what it is, its loader, its build-id, and where its dynamic symbols are.
//!
//! Reads a limited part of a file. The offsets and sizes in the file are not trusted.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::read::{Error, ReadCache, ReadRef};
use object::{Endianness, SectionIndex};

use super::Class;

/// Notes of more bytes are passed over: a build-id has forty.
const NOTE_BYTES: u64 = 64 << 10;

/// Place of a part in the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Part {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The table of dynamic symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) symbols: Part,
    pub(super) names: Part,
    pub(super) is_64: bool,
    pub(super) endian: Endianness,
}

/// Facts that the small parts of the file show.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) class: Class,
    pub(super) interpreter: Option<PathBuf>,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) table: Option<Table>,
    /// Names of all symbols, where the file is not stripped.
    pub(super) other_names: Option<Part>,
    /// Section that Go writes about its programs.
    pub(super) go_build: Option<Part>,
    /// Names of the functions of a program of Go, among other things.
    pub(super) go_names: Option<Part>,
    /// End of the last part of the file that its headers name, in bytes.
    pub(super) end: u64,
    /// Whether a note has an application for Node.js.
    pub(super) has_application: bool,
    /// Libraries that it is linked with, in their order; of a 64-bit file only.
    pub(super) needed: Vec<String>,
    /// Folders that it names to look for them in.
    pub(super) folders: Vec<String>,
}

/// Libraries and folders of one file beyond this number are not looked at.
const MOST_DYNAMIC: usize = 256;

/// Reads the headers.
pub(super) fn read<'data>(data: impl ReadRef<'data>) -> Result<Headers, Error> {
    match FileHeader64::<Endianness>::parse(data) {
        Ok(header) => of(header, data),
        Err(_) => of(FileHeader32::<Endianness>::parse(data)?, data),
    }
}

fn of<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<Headers, Error> {
    let (needed, folders) = dynamic(header, data).unwrap_or_default();
    Ok(Headers {
        class: class(header)?,
        interpreter: interpreter(header, data)?,
        build_id: build_id(header, data)?,
        table: table(header, data)?,
        other_names: other_names(header, data)?,
        go_build: section(header, data, b".go.buildinfo").unwrap_or(None),
        go_names: section(header, data, b".gopclntab").unwrap_or(None),
        end: end(header, data)?,
        has_application: has_application(header, data)?,
        needed,
        folders,
    })
}

fn class<Elf: FileHeader<Endian = Endianness>>(header: &Elf) -> Result<Class, Error> {
    let native = match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        "riscv64" => elf::EM_RISCV,
        _ => elf::EM_NONE,
    };
    let is_native = header.is_type_64() && header.e_machine(header.endian()?) == native;
    Ok(if is_native { Class::Native } else { Class::Foreign })
}

fn interpreter<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<Option<PathBuf>, Error> {
    let endian = header.endian()?;
    for segment in header.program_headers(endian, data)? {
        if let Some(bytes) = segment.interpreter(endian, data)? {
            return Ok(std::str::from_utf8(bytes).ok().map(PathBuf::from));
        }
    }
    Ok(None)
}

/// Build-id in the notes of the sections if there are any, else of the segments, as the linker's tools find
/// it.
fn build_id<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<Option<Vec<u8>>, Error> {
    let endian = header.endian()?;
    let sections = header.section_headers(endian, data)?;
    for section in sections.iter().filter(|section| section.sh_size(endian).into() <= NOTE_BYTES) {
        if let Some(id) =
            section.notes(endian, data)?.map(|notes| in_notes(notes, endian)).transpose()?.flatten()
        {
            return Ok(Some(id));
        }
    }
    if !sections.is_empty() {
        return Ok(None);
    }
    let segments = header.program_headers(endian, data)?;
    for segment in segments.iter().filter(|segment| segment.p_filesz(endian).into() <= NOTE_BYTES) {
        if let Some(id) =
            segment.notes(endian, data)?.map(|notes| in_notes(notes, endian)).transpose()?.flatten()
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn in_notes<Elf: FileHeader>(
    mut notes: NoteIterator<'_, Elf>,
    endian: Elf::Endian,
) -> Result<Option<Vec<u8>>, Error> {
    while let Some(note) = notes.next()? {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return Ok(Some(note.desc().to_vec()));
        }
    }
    Ok(None)
}

/// The libraries that the dynamic section names, and the folders (DT_RPATH, DT_RUNPATH).
fn dynamic<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<(Vec<String>, Vec<String>), Error> {
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, names)) = sections.dynamic(endian, data)? else { return Ok(Default::default()) };
    let names = sections.strings(endian, data, names)?;
    let texts = |wanted: &[elf::DynamicTag]| {
        let found = entries.iter().filter(|entry| wanted.contains(&entry.tag(endian)));
        let offsets = found.filter_map(|entry| u32::try_from(entry.val(endian)).ok());
        let texts = offsets.take(MOST_DYNAMIC).filter_map(|offset| names.get(offset).ok());
        texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    Ok((texts(&[elf::DT_NEEDED]), texts(&[elf::DT_RPATH, elf::DT_RUNPATH])))
}

fn table<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<Option<Table>, Error> {
    let endian = header.endian()?;
    let sections = header.section_headers(endian, data)?;
    let Some(symbols) = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNSYM) else {
        return Ok(None);
    };
    let names = sections.get(SectionIndex(symbols.sh_link(endian) as usize).0);
    let names = names.map_or(Part { offset: 0, bytes: 0 }, |names| part::<Elf>(names, endian));
    Ok(Some(Table { symbols: part::<Elf>(symbols, endian), names, is_64: header.is_type_64(), endian }))
}

fn part<Elf: FileHeader<Endian = Endianness>>(section: &Elf::SectionHeader, endian: Endianness) -> Part {
    Part { offset: section.sh_offset(endian).into(), bytes: section.sh_size(endian).into() }
}

fn end<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<u64, Error> {
    let endian = header.endian()?;
    let sections = header.section_headers(endian, data)?;
    let in_file = sections.iter().filter(|section| section.sh_type(endian) != elf::SHT_NOBITS);
    let ends = in_file.map(|section| part::<Elf>(section, endian).end());
    let segments = header.program_headers(endian, data)?;
    let segment_end = |segment: &Elf::ProgramHeader| {
        Part { offset: segment.p_offset(endian).into(), bytes: segment.p_filesz(endian).into() }.end()
    };
    let table = Part { offset: header.e_shoff(endian).into(), bytes: size_of_val(sections) as u64 }.end();
    Ok(ends.chain(segments.iter().map(segment_end)).fold(table, u64::max))
}

/// The name of the note into which postject puts one.
const APPLICATION: &[u8] = b"NODE_SEA";
/// Bytes of a note's head and its name.
const NOTE_HEAD_BYTES: u64 = 32;

fn has_application<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<bool, Error> {
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let notes = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_NOTE);
    let head = |segment: &Elf::ProgramHeader| {
        let bytes = NOTE_HEAD_BYTES.min(segment.p_filesz(endian).into());
        data.read_bytes_at(segment.p_offset(endian).into(), bytes).unwrap_or_default()
    };
    Ok(notes.map(head).any(|head| head.windows(APPLICATION.len()).any(|part| part == APPLICATION)))
}

fn other_names<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
) -> Result<Option<Part>, Error> {
    let endian = header.endian()?;
    let sections = header.section_headers(endian, data)?;
    let symbols = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB);
    let names = symbols.and_then(|symbols| sections.get(symbols.sh_link(endian) as usize));
    Ok(names.map(|names| part::<Elf>(names, endian)))
}

fn section<'data, Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    data: impl ReadRef<'data>,
    name: &[u8],
) -> Result<Option<Part>, Error> {
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let section = sections.section_by_name(endian, name);
    Ok(section.map(|(_, section)| part::<Elf>(section, endian)))
}

/// Bytes that a string of unknown length counts: the cache reads as much of it at once.
const STRING_BYTES: u64 = 256;

/// The file, what was read of it, and how much more may be. What is read twice counts twice.
#[derive(Debug)]
pub(super) struct Bounded<R: Read + Seek> {
    cache: ReadCache<R>,
    left: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl<R: Read + Seek> Bounded<R> {
    pub(super) fn new(source: R, bytes: u64) -> Self {
        Self { cache: ReadCache::new(source), left: Cell::new(bytes), is_exceeded: Cell::new(false) }
    }

    /// Whether more was asked for than may be read.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// The file, and what of the bound is left.
    pub(super) fn into_inner(self) -> (R, u64) {
        (self.cache.into_inner(), self.left.get())
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.is_exceeded.set(true);
                Err(())
            }
        }
    }
}

impl<'data, R: Read + Seek> ReadRef<'data> for &'data Bounded<R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.take(STRING_BYTES)?;
        let found = self.cache.read_bytes_at_until(range, delimiter)?;
        self.take((found.len() as u64).saturating_sub(STRING_BYTES))?;
        Ok(found)
    }
}

/// Limit for the bytes of a file that are read, counted over all reads.
#[derive(Debug)]
pub(super) struct Limited<R> {
    source: R,
    left: u64,
}

impl<R> Limited<R> {
    pub(super) fn new(source: R, bytes: u64) -> Self {
        Self { source, left: bytes }
    }

    /// Bytes that may still be read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        if most == 0 && !to.is_empty() {
            return Err(io::Error::other("more would have to be read than an ordinary program has"));
        }
        let got = self.source.read(&mut to[..most])?;
        self.left -= got as u64;
        Ok(got)
    }
}

impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}
