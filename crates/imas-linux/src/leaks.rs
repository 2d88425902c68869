// SPDX-License-Identifier: Apache-2.0
//! Leaks in glibc's heaps of a running process, by two or three searches from outside ([`crate::heap::reach`]).
//!
//! The helper searches and keeps what it needs for the next search, so that the time between two of them belongs to
//! the caller. What a search may take: four seconds, and a quarter of the free memory.

use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use imas_core::printable;
use procfs::process::{MMapPath, Process};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding};
use crate::heap::ProcessMemory;
use crate::heap::figures::NotReadable;
use crate::heap::libc::Found;
use crate::heap::memory::Memory;
use crate::heap::reach::{ProcessRoots, SearchBounds, Searches, Watch, epoll_words, search_in, stack_ends};
use crate::mapping_text::{file_name, living_thread, of_task};
use crate::{control_group, process};

/// A search takes so long at most.
const LONGEST: Duration = Duration::from_secs(4);
/// Share of the free memory that a search may take.
const SHARE: u64 = 4;
/// Longest name of a class.
const NAME_BYTES: usize = 256;
/// The begin of an object lies no further from its parts.
const MOST_OFFSET: i64 = 1 << 30;

/// Searches a process for the first time. The next search of the same process is [`again`].
///
/// # Errors
/// When it cannot be searched, with the reason.
pub fn first(pid: u32) -> std::result::Result<Searches, NotReadable> {
    asked(pid, Finding::FirstSearch, first_text)
}

/// Searches a process once more, and compares with the searches since [`first`].
///
/// # Errors
/// As [`first`]; and when there is no search of this process to compare with.
pub fn again(pid: u32) -> std::result::Result<Searches, NotReadable> {
    asked(pid, Finding::NextSearch, next_text)
}

fn asked(
    pid: u32,
    finding: Finding,
    here: foreign_process::OwnAnswer,
) -> std::result::Result<Searches, NotReadable> {
    let text = foreign_process::find_out(pid, finding, here).map_err(|error| NotReadable::of(&error))?;
    let answer: Answer = serde_json::from_slice(&text)
        .map_err(|_| NotReadable::because("the answer of the helper is not one"))?;
    match answer {
        Answer::Found(reach) => Ok(*reach),
        Answer::Not(reason) => Err(reason),
    }
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Found(Box<Searches>),
    Not(NotReadable),
}

/// The process that is watched: its id, its start, and what was found until now.
static WATCHED: Mutex<Option<(u32, u64, Watch)>> = Mutex::new(None);

/// The first search, as a text for [`first`]. All is read in this very process.
pub(crate) fn first_text(pid: u32) -> Result<Vec<u8>> {
    text_of(pid, Some(Watch::default()))
}

/// The next search, as a text for [`again`]. All is read in this very process.
pub(crate) fn next_text(pid: u32) -> Result<Vec<u8>> {
    text_of(pid, None)
}

fn text_of(pid: u32, new: Option<Watch>) -> Result<Vec<u8>> {
    let start = process::start_ticks(pid).map_err(|_| ErrorKind::NotFound)?;
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = watched.take().filter(|(of, at, _)| new.is_none() && (*of, *at) == (pid, start));
    let answer = match new.or(known.map(|(.., watch)| watch)) {
        Some(mut watch) => {
            let searched = searched(pid, &mut watch)?;
            *watched = Some((pid, start, watch));
            searched
        }
        None => Err(NotReadable::because("the search before is gone: search once more")),
    };
    let answer = answer.map_or_else(Answer::Not, |reach| Answer::Found(Box::new(reach)));
    serde_json::to_vec(&answer).map_err(std::io::Error::other)
}

fn searched(pid: u32, watch: &mut Watch) -> Result<std::result::Result<Searches, NotReadable>> {
    let begun = Instant::now();
    let task = living_thread(pid);
    let swapped = swapped_bytes(task);
    if swapped > 0 {
        return Ok(Err(NotReadable::because(format!(
            "{} KiB of it are swapped out: pointers may be there, and a search would bring them back",
            swapped >> 10
        ))));
    }
    let memory = ProcessMemory::open(task)?;
    let mut roots = ProcessRoots::default();
    let maps = memory.maps().inspect(|map| {
        if let Ok(map) = map {
            roots.add(map);
        }
    });
    let found = match Found::of(maps) {
        Ok(found) => found,
        Err(error) if error.raw_os_error().is_some() => return Err(error),
        Err(_) => return Ok(Err(NotReadable::because("its mappings make no sense"))),
    };
    if roots.is_cut {
        return Ok(Err(NotReadable::because("it has too many mappings")));
    }
    let roots = roots.roots(&stack_ends(pid), epoll_words(task));
    let bounds = SearchBounds { bytes: room(), until: begun + LONGEST };
    let search = found.regions().and_then(|regions| search_in(&memory, regions, &roots, bounds));
    let reach = search.map(|search| {
        let mut reach = watch.add(&search, begun);
        let lost = reach.leaks.iter_mut().chain(&mut reach.lost).map(|one| (one.first_word, &mut one.class));
        let grown = reach.grown.iter_mut().map(|one| (one.first_word, &mut one.class));
        for (word, class) in lost.chain(grown).filter(|(word, _)| *word != 0) {
            *class = class_of(&memory, &roots.files, task, word);
        }
        reach
    });
    Ok(reach.map_err(|reason| found.with_other_malloc(reason)))
}

/// Bytes that a search may take.
fn room() -> u64 {
    let free = <procfs::Meminfo as procfs::Current>::current().ok().and_then(|memory| memory.mem_available);
    let free = free.unwrap_or(0).min(control_group::memory_left().unwrap_or(u64::MAX));
    free / SHARE
}

fn swapped_bytes(task: u32) -> u64 {
    let status = Process::new(i32::try_from(task).unwrap_or(0)).and_then(|process| process.status());
    status.ok().and_then(|status| status.vmswap).unwrap_or(0) << 10
}

/// The class of blocks that begin with this address, or where in which file it leads.
fn class_of(memory: &dyn Memory, files: &[Range<u64>], task: u32, word: u64) -> Option<String> {
    let file = file_of(task, word)?;
    let class = class_by_type_info(memory, files, word);
    let text = class.map_or_else(
        || format!("begins with an address in {}", file.1),
        |class| format!("class {class} of {}", file.1),
    );
    Some(printable::name(&text).into_owned())
}

/// First address, and name, of the file that is mapped there.
fn file_of(task: u32, address: u64) -> Option<(u64, String)> {
    let map = of_task(task, "maps")
        .ok()?
        .map_while(Result::ok)
        .find(|map| (map.address.0..map.address.1).contains(&address))?;
    match &map.pathname {
        MMapPath::Path(path) => Some((map.address.0, file_name(path).to_owned())),
        _ => None,
    }
}

/// Name of a C++ class by its table of virtual functions: the word in front of the table leads to the type's
/// description, and its second word to the name (Itanium C++ ABI).
fn class_by_type_info(memory: &dyn Memory, files: &[Range<u64>], table: u64) -> Option<String> {
    let is_in_file = |address: u64| files.iter().any(|file| file.contains(&address));
    let [offset, info] = words(memory, table.checked_sub(16)?)?;
    let is_offset = offset.cast_signed().abs() <= MOST_OFFSET;
    let [kind, name] = words(memory, Some(info).filter(|info| is_offset && is_in_file(*info))?)?;
    if !is_in_file(kind) || !is_in_file(name) {
        return None;
    }
    let mut bytes = vec![0; NAME_BYTES];
    let got = memory.read(name, &mut bytes).ok()?;
    let end = bytes[..got].iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| readable(text.trim_start_matches('*')))
}

fn words(memory: &dyn Memory, address: u64) -> Option<[u64; 2]> {
    let mut words = [[0; 8]; 2];
    let got = memory.read(address, words.as_flattened_mut()).ok()?;
    (got == 16).then(|| words.map(u64::from_ne_bytes))
}

/// `app::Session` of `N3app7SessionE`, and `Session` of `7Session`. Other names, as those of templates, stay as they
/// are.
fn readable(mangled: &str) -> String {
    let nested = mangled.strip_prefix('N').and_then(|rest| rest.strip_suffix('E'));
    let mut rest = nested.unwrap_or(mangled);
    let mut parts = vec![];
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: Option<usize> = rest[..digits].parse().ok();
        let Some(part) =
            length.and_then(|length| rest[digits..].get(..length)).filter(|part| !part.is_empty())
        else {
            return mangled.to_owned();
        };
        parts.push(part);
        rest = &rest[digits + part.len()..];
    }
    parts.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes_are_readable() {
        let cases =
            [("7Session", "Session"), ("N3app7SessionE", "app::Session"), ("St6vectorIiE", "St6vectorIiE")];
        for (mangled, name) in cases {
            assert_eq!(readable(mangled), name);
        }
        for other in ["", "99x", "N", "7Sess\u{e9}", "0", "18446744073709551616x"] {
            assert_eq!(readable(other), other, "anything but a panic");
        }
    }
}
