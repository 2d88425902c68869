// SPDX-License-Identifier: Apache-2.0
//! Class of an object by its first word: the table of its class lies in a file of the program, whose symbols name it.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use imas_core::printable;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};
use serde::{Deserialize, Serialize};

use super::space::Space;
use crate::mapping_text::file_name;

/// Symbols of a larger file are not read, bytes.
const MOST_FILE: u64 = 256 << 20;
/// Longest name of a class that is shown.
const LONGEST_NAME: usize = 200;

/// Owner of a kind of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectClass {
    /// Name of the file into which the first word leads.
    pub file: String,
    /// Name of the class, where a symbol of the file is the table of its virtual functions.
    pub class: Option<String>,
}

/// Class of the objects that begin with a word.
pub(super) fn class_of(task: u32, space: &Space, word: u64) -> Option<ObjectClass> {
    let mapping = space.at(word)?;
    let (index, offset) = mapping.file?;
    let path = space.files.get(index as usize)?;
    let file = printable::name(file_name(path)).into_owned();
    let place = (word - mapping.begin).checked_add(offset)?;
    let class = mapped_file(task, &(mapping.begin..mapping.end), path).and_then(|file| table_at(file, place));
    Some(ObjectClass { file, class })
}

/// The mapped file: itself where the kernel lets us (root), else what has its name in the folders of the user's own
/// process.
pub(crate) fn mapped_file(task: u32, mapping: &Range<u64>, path: &Path) -> Option<File> {
    let Range { start: begin, end } = mapping;
    let file = File::open(format!("/proc/{task}/map_files/{begin:x}-{end:x}"));
    let within = || File::open(format!("/proc/{task}/root{}", path.display()));
    let file = match file {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => within(),
        file => file,
    };
    let file = file.ok()?;
    file.metadata().is_ok_and(|about| about.is_file() && about.len() <= MOST_FILE).then_some(file)
}

/// The class whose table is at a place of the file.
fn table_at(file: File, place: u64) -> Option<String> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    let address = elf.elf_program_headers().iter().find_map(|part| {
        let (begin, bytes) = part.file_range(endian);
        let within = place.checked_sub(begin).filter(|within| *within < bytes)?;
        part.p_vaddr(endian).checked_add(within)
    })?;
    elf.symbols().chain(elf.dynamic_symbols()).find_map(|symbol| {
        let within = address.checked_sub(symbol.address())?;
        let is_it = within < symbol.size().max(1);
        is_it.then(|| symbol.name().ok().and_then(class_in))?
    })
}

/// The class in the name of its table (`_ZTV...`). Arguments of a template are left out.
fn class_in(symbol: &str) -> Option<String> {
    let mut rest = symbol.strip_prefix("_ZTV")?;
    let mut parts: Vec<&str> = vec![];
    let is_nested = rest.starts_with('N');
    rest = rest.strip_prefix('N').unwrap_or(rest);
    if let Some(of_std) = rest.strip_prefix("St") {
        parts.push("std");
        rest = of_std;
    }
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(length) = rest.get(..digits)?.parse::<usize>() else { break };
        let part = rest.get(digits..digits.checked_add(length)?)?;
        parts.push(if part.starts_with("_GLOBAL__N") { "(anonymous namespace)" } else { part });
        rest = rest.get(digits + length..)?;
        if !is_nested {
            break;
        }
    }
    let is_template = rest.starts_with('I');
    let is_whole = is_template || rest.is_empty() || is_nested && rest == "E";
    if !is_whole || parts.is_empty() || symbol.len() > LONGEST_NAME && !is_template {
        return None;
    }
    let name = printable::name(&parts.join("::")).into_owned();
    Some(if is_template { name + "<...>" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_by_their_tables() {
        for (symbol, class) in [
            ("_ZTV7Session", Some("Session")),
            ("_ZTVN3app3net7SessionE", Some("app::net::Session")),
            ("_ZTVN12_GLOBAL__N_17SessionE", Some("(anonymous namespace)::Session")),
            (
                "_ZTVSt23_Sp_counted_ptr_inplaceI7SessionSaIvELN9__gnu_cxx12_Lock_policyE2EE",
                Some("std::_Sp_counted_ptr_inplace<...>"),
            ),
            ("_ZTI7Session", None),
            ("_ZTV99Session", None),
            ("_ZTV", None),
            ("_ZTVN3appE7", None),
            ("main", None),
        ] {
            assert_eq!(class_in(symbol).as_deref(), class, "{symbol}");
        }
    }

    #[test]
    fn a_file_that_is_no_library_names_nothing() {
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(table_at(file, u64::MAX), None);
        assert_eq!(table_at(File::open("/etc/passwd").unwrap(), 0), None);
    }
}
