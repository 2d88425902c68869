// SPDX-License-Identifier: Apache-2.0
//! Mappings of a process in which its C library and its heaps lie.

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::figures::NotReadable;
use crate::library_name::{self, CLibrary};

/// A mapping that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub begin: u64,
    /// Address after the last.
    pub end: u64,
    /// Kind of the region.
    pub kind: RegionKind,
}

/// Kind of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// The C library's code and constants.
    LibraryText,
    /// The C library's variables.
    LibraryData,
    /// `[heap]`.
    MainHeap,
    /// Private memory of no file, where heaps may lie.
    Anonymous,
}

/// Names of libraries with another malloc.
const OTHERS: [&str; 7] = ["jemalloc", "tcmalloc", "mimalloc", "hoard", "snmalloc", "rpmalloc", "scudo"];

/// The regions of a process.
pub(super) fn regions(maps: &[MemoryMap]) -> Result<Vec<Region>, NotReadable> {
    let mut regions: Vec<Region> = vec![];
    for map in maps {
        let follows_data = regions
            .last()
            .is_some_and(|last| last.kind == RegionKind::LibraryData && last.end == map.address.0);
        if let Some(kind) = kind(map, follows_data) {
            regions.push(Region { begin: map.address.0, end: map.address.1, kind });
        }
    }
    if regions.iter().any(|region| region.kind == RegionKind::LibraryText) {
        Ok(regions)
    } else {
        Err(NotReadable::because(foreign_libc(maps)))
    }
}

/// `follows_data`: the mapping begins where the C library's variables end.
fn kind(map: &MemoryMap, follows_data: bool) -> Option<RegionKind> {
    let is_writable = map.perms.contains(MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE);
    match &map.pathname {
        MMapPath::Path(file) if CLibrary::of_file(file) == Some(CLibrary::Glibc) => {
            Some(if is_writable { RegionKind::LibraryData } else { RegionKind::LibraryText })
        }
        MMapPath::Heap if is_writable => Some(RegionKind::MainHeap),
        MMapPath::Anonymous | MMapPath::Other(_) if is_writable && follows_data => {
            Some(RegionKind::LibraryData)
        }
        MMapPath::Anonymous | MMapPath::Other(_) if is_writable => Some(RegionKind::Anonymous),
        _ => None,
    }
}

/// Name of the mapped file; empty where there is none.
fn file_name(map: &MemoryMap) -> &str {
    let MMapPath::Path(path) = &map.pathname else { return "" };
    library_name::file_name(path)
}

fn foreign_libc(maps: &[MemoryMap]) -> &'static str {
    match maps.iter().any(|map| file_name(map).contains("musl")) {
        true => "its C library is musl",
        false => "it has no C library of glibc: it is linked statically, or its C library is another one",
    }
}

/// Library with another malloc that is mapped.
pub(super) fn other_malloc(maps: &[MemoryMap]) -> Option<&str> {
    let names = maps.iter().map(file_name);
    names.into_iter().find(|name| OTHERS.iter().any(|other| name.contains(other)))
}
