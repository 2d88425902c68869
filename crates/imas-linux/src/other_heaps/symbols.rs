// SPDX-License-Identifier: Apache-2.0
//! Symbols of a mapped file that show an allocator inside, and lead to its counters. Both tables of a file are read, the
//! dynamic one and the one that a linker leaves; most distributions remove the second.
//!
//! A file is read once: what was found is kept as long as the file is the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, FileHeader64, PT_LOAD, ProgramHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
    SectionHeader64, Sym64,
};
use object::{LittleEndian, pod};

use crate::reach::mapped_file;

/// Sections and segments that are looked through, and bytes of one table.
const MOST_HEADERS: u16 = 512;
const MOST_TABLE: u64 = 64 << 20;
/// A longer name is none of those.
const LONGEST_NAME: usize = 96;
/// Files whose symbols are kept.
const MOST_KEPT: usize = 1024;
/// Symbols of one allocator that are kept.
const MOST_SYMBOLS: usize = 32;

/// An allocator that shows itself by the names that it defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AllocatorKind {
    Jemalloc,
    Mimalloc,
    /// gperftools'.
    Tcmalloc,
    GoogleTcmalloc,
}

impl AllocatorKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Tcmalloc => "tcmalloc (gperftools)",
            Self::GoogleTcmalloc => "tcmalloc (Google)",
        }
    }

    /// Kind and short name of a symbol. Programs that build jemalloc in give it a begin of their own.
    fn of(symbol: &str) -> Option<(Self, &'static str)> {
        const OF_JEMALLOC: [&str; 3] = ["arenas", "bin_infos", "sz_index2size_tab"];
        let of_jemalloc =
            |short: &&&str| symbol.strip_suffix(**short).is_some_and(|begin| begin.ends_with("je_"));
        if let Some(short) = OF_JEMALLOC.iter().find(of_jemalloc) {
            return Some((Self::Jemalloc, short));
        }
        match symbol {
            "mallctl" | "je_mallctl" | "_rjem_mallctl" | "duckdb_je_mallctl" => {
                Some((Self::Jemalloc, "mallctl"))
            }
            "mi_malloc" => Some((Self::Mimalloc, "mi_malloc")),
            "mi_version" => Some((Self::Mimalloc, "mi_version")),
            "_mi_page_map" => Some((Self::Mimalloc, "_mi_page_map")),
            "tc_malloc" => Some((Self::Tcmalloc, "tc_malloc")),
            "_ZN8tcmalloc6Static9pageheap_E" => Some((Self::Tcmalloc, "pageheap_")),
            "MallocExtension_Internal_GetNumericProperty" => Some((Self::GoogleTcmalloc, "numeric")),
            _ => None,
        }
    }

    /// Test whether these symbols are enough: a program may have a function of one such name.
    fn is_shown_by(self, found: &BTreeMap<&'static str, (u64, u64)>) -> bool {
        let has = |name: &str| found.contains_key(name);
        match self {
            Self::Jemalloc => has("mallctl") || has("arenas") && has("bin_infos"),
            Self::Mimalloc => has("mi_malloc") || has("_mi_page_map"),
            Self::Tcmalloc => has("tc_malloc") || has("pageheap_"),
            Self::GoogleTcmalloc => true,
        }
    }
}

/// Symbols of one allocator in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllocatorSymbols {
    pub(crate) kind: AllocatorKind,
    /// Address in the file and size, by short name.
    found: BTreeMap<&'static str, (u64, u64)>,
    /// Address in the file of what is mapped first.
    first: u64,
}

impl AllocatorSymbols {
    /// The address of a symbol in a process where the file begins at `begin`.
    pub(crate) fn address(&self, name: &str, begin: u64) -> Option<u64> {
        let (address, _) = self.found.get(name)?;
        begin.checked_add(address.checked_sub(self.first)?)
    }

    /// Size of a symbol.
    pub(crate) fn bytes(&self, name: &str) -> u64 {
        self.found.get(name).map_or(0, |(_, bytes)| *bytes)
    }
}

/// A file as it is now: device, number, size, time.
type FileKey = (u64, u64, u64, i64);
static KEPT: LazyLock<Mutex<HashMap<FileKey, Arc<Vec<AllocatorSymbols>>>>> = LazyLock::new(Mutex::default);

/// Allocators of a file that a task has mapped.
pub(super) fn of_mapped(task: u32, first: &Range<u64>, path: &Path) -> Arc<Vec<AllocatorSymbols>> {
    let Some((file, about)) = mapped_file(task, first, path)
        .and_then(|file| Some((file.metadata().ok()?, file)))
        .map(|(about, file)| (file, about))
    else {
        return Arc::default();
    };
    let key = (about.dev(), about.ino(), about.size(), about.mtime_nsec() ^ (about.mtime() << 30));
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept().get(&key) {
        return Arc::clone(known);
    }
    let found = Arc::new(of_file(&file).unwrap_or_default());
    let mut kept = kept();
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    kept.insert(key, Arc::clone(&found));
    found
}

/// Allocators of an ELF file of 64 bits; `None` where it is none.
fn of_file(file: &File) -> Option<Vec<AllocatorSymbols>> {
    let header = bytes_at(file, 0, size_of::<FileHeader64<LittleEndian>>() as u64)?;
    let (header, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(&header).ok()?;
    let is_one = header.e_ident.magic == *b"\x7fELF"
        && header.e_ident.class == ELFCLASS64
        && header.e_ident.data == ELFDATA2LSB;
    if !is_one {
        return None;
    }
    let endian = LittleEndian;
    let first = first_address(file, header)?;
    let sections = headers::<SectionHeader64<LittleEndian>>(
        file,
        header.e_shoff.get(endian),
        header.e_shnum.get(endian),
    )?;
    let mut found: BTreeMap<AllocatorKind, BTreeMap<&'static str, (u64, u64)>> = BTreeMap::new();
    // A file has one table of each kind; more would only take time.
    let mut seen = BTreeSet::new();
    for section in &sections {
        let kind = section.sh_type.get(endian);
        if !matches!(kind, SHT_SYMTAB | SHT_DYNSYM) || !seen.insert(kind) {
            continue;
        }
        let Some(names) = sections.get(section.sh_link.get(endian) as usize) else { continue };
        let part = |one: &SectionHeader64<LittleEndian>| {
            bytes_at(file, one.sh_offset.get(endian), one.sh_size.get(endian))
        };
        let (Some(symbols), Some(names)) = (part(section), part(names)) else { continue };
        note(&symbols, &names, &mut found);
    }
    let shown = found.into_iter().filter(|(kind, found)| kind.is_shown_by(found));
    Some(shown.map(|(kind, found)| AllocatorSymbols { kind, found, first }).collect())
}

/// Address in the file of its first segment, at the begin of a page.
fn first_address(file: &File, header: &FileHeader64<LittleEndian>) -> Option<u64> {
    let (offset, count) = (header.e_phoff.get(LittleEndian), header.e_phnum.get(LittleEndian));
    let segments = headers::<ProgramHeader64<LittleEndian>>(file, offset, count)?;
    let loaded = segments.iter().find(|one| one.p_type.get(LittleEndian) == PT_LOAD)?;
    Some(loaded.p_vaddr.get(LittleEndian).checked_sub(loaded.p_offset.get(LittleEndian))? & !0xfff)
}

fn headers<T: pod::Pod + Copy>(file: &File, offset: u64, count: u16) -> Option<Vec<T>> {
    let count = count.min(MOST_HEADERS);
    let bytes = bytes_at(file, offset, u64::from(count) * size_of::<T>() as u64)?;
    pod::slice_from_bytes::<T>(&bytes, usize::from(count)).ok().map(|(all, _)| all.to_vec())
}

fn bytes_at(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    // A file with holes may claim a table that is as large as it likes.
    if bytes > MOST_TABLE || offset.checked_add(bytes)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut read = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut read, offset).ok()?;
    Some(read)
}

/// Notes the symbols of a table that are looked for.
fn note(
    symbols: &[u8],
    names: &[u8],
    found: &mut BTreeMap<AllocatorKind, BTreeMap<&'static str, (u64, u64)>>,
) {
    let whole = symbols.len() / size_of::<Sym64<LittleEndian>>();
    let (symbols, _) = pod::slice_from_bytes::<Sym64<LittleEndian>>(symbols, whole).unwrap_or_default();
    for symbol in symbols.iter().filter(|one| one.st_shndx.get(LittleEndian) != SHN_UNDEF) {
        let Some(name) = names.get(symbol.st_name.get(LittleEndian) as usize..) else { continue };
        let name = &name[..name.len().min(LONGEST_NAME)];
        let Some(end) = name.iter().position(|byte| *byte == 0) else { continue };
        let Some((kind, short)) = std::str::from_utf8(&name[..end]).ok().and_then(AllocatorKind::of) else {
            continue;
        };
        let of_kind = found.entry(kind).or_default();
        if of_kind.len() < MOST_SYMBOLS {
            of_kind.insert(short, (symbol.st_value.get(LittleEndian), symbol.st_size.get(LittleEndian)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_an_allocator_whoever_has_built_it_in() {
        let of = |symbol: &str| AllocatorKind::of(symbol).map(|(kind, short)| (kind.name(), short));
        for (symbol, expected) in [
            ("je_arenas", Some(("jemalloc", "arenas"))),
            ("je_arrow_private_je_bin_infos", Some(("jemalloc", "bin_infos"))),
            ("_rjem_mallctl", Some(("jemalloc", "mallctl"))),
            ("ctl_arenas", None),
            ("arenas", None),
            ("_mi_page_map", Some(("mimalloc", "_mi_page_map"))),
            ("malloc", None),
        ] {
            assert_eq!(of(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn a_file_without_any_and_a_file_that_is_none_show_nothing() {
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(of_file(&own), Some(vec![]));
        assert_eq!(of_file(&File::open("/etc/passwd").unwrap()), None);
        let library = std::fs::read("/proc/self/exe").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken");
        for at in (0..64).chain(library.len().saturating_sub(256)..library.len()) {
            let mut bytes = library[..library.len().min(1 << 16)].to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0xff;
            }
            std::fs::write(&path, &bytes).unwrap();
            let _ = of_file(&File::open(&path).unwrap());
        }
    }
}
