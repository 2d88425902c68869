// SPDX-License-Identifier: Apache-2.0
//! Mappings of a process in which its C library and its heaps lie.

use std::io::Result;

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

/// Most regions: more are not looked at.
const MOST_REGIONS: usize = 1 << 18;

/// What the mappings of a process show.
#[derive(Debug, Default)]
pub(super) struct Found {
    regions: Vec<Region>,
    has_musl: bool,
    /// Library with another malloc.
    other_malloc: Option<String>,
}

impl Found {
    pub(super) fn of(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<Self> {
        let mut found = Self::default();
        for map in maps {
            found.add(&map?);
        }
        Ok(found)
    }

    fn add(&mut self, map: &MemoryMap) {
        let last = self.regions.last();
        let follows_data =
            last.is_some_and(|last| last.kind == RegionKind::LibraryData && last.end == map.address.0);
        if let Some(kind) = kind(map, follows_data).filter(|_| self.regions.len() <= MOST_REGIONS) {
            self.regions.push(Region { begin: map.address.0, end: map.address.1, kind });
        }
        if let MMapPath::Path(file) = &map.pathname {
            self.has_musl |= CLibrary::of_file(file) == Some(CLibrary::Musl);
            if self.other_malloc.is_none() {
                self.other_malloc = library_name::allocator(file).map(str::to_owned);
            }
        }
    }

    /// The regions; why there are none that can be looked at.
    pub(super) fn regions(&self) -> std::result::Result<&[Region], NotReadable> {
        if self.regions.len() > MOST_REGIONS {
            return Err(NotReadable::because("it has too many mappings"));
        }
        if self.regions.iter().any(|region| region.kind == RegionKind::LibraryText) {
            return Ok(&self.regions);
        }
        Err(NotReadable::because(match self.has_musl {
            true => "its C library is musl",
            false => "it has no C library of glibc: it is linked statically, or its C library is another one",
        }))
    }

    /// The reason, with the library that has another malloc.
    pub(super) fn with_other_malloc(&self, reason: NotReadable) -> NotReadable {
        match &self.other_malloc {
            Some(other) => NotReadable::because(format!("{reason} ({other} is loaded)")),
            None => reason,
        }
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
