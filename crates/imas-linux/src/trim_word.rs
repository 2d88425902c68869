// SPDX-License-Identifier: Apache-2.0
//! The word by which a running process is asked to give its free pages back (`abi/imas_trim.h`).
//!
//! It lies in the process's memory, in the variables of `libimas-giveback.so`, and is read and written through
//! `/proc/PID/mem`: the kernel lets the process's owner and root do that, and nobody else. What is read is untrusted. Both
//! happen in a helper ([`crate::process_trim`]). The open file stays with the memory that was found, whatever becomes of
//! the process's number.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;

use imas_abi::{TRIM_MAGIC, TRIM_MAGIC_2, TRIM_UNKNOWN, TRIM_VERSION, TrimWord, trim_answers};
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use zerocopy::FromBytes as _;

use crate::environment::GIVE_BACK;
use crate::mapping_text::{file_name, of_task};

/// Most mappings of variables of the library, and most bytes of one, that are searched.
const MOST_MAPPINGS: usize = 4;
const MOST_BYTES: u64 = 64 << 10;
/// The word begins at a multiple of its size.
const WORD: usize = size_of::<TrimWord>();
/// A later time is not believed.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Who answers in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// Nobody any more: it forbade itself system calls, ends, or its allocator has nothing to do it with.
    Nobody,
    /// Its thread; in a process of one thread, that one when it is about to wait.
    Process,
    /// Its thread for that alone: a process of one thread does not answer.
    Thread,
}

/// The word, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Who answers.
    pub answers: Answers,
    /// Number of the last request.
    pub request: u64,
    /// Number of the last request that was answered.
    pub answered: u64,
    /// Pages that were returned then; None where the process cannot see it.
    pub returned_pages: Option<u64>,
    /// Time that it took, ns.
    pub took_ns: u64,
}

impl Asked {
    /// Whether the last request is answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.request == self.answered
    }
}

/// The word in the text of a helper.
///
/// # Errors
/// When the text is not one of `text_of`.
pub fn parsed(text: &[u8]) -> Result<Option<Asked>> {
    if text.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| ErrorKind::InvalidData)?;
    let words: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let words = words.and_then(|words| <[u64; 5]>::try_from(words).ok());
    let Some([answers, request, answered, returned_pages, took_ns]) = words else {
        return Err(ErrorKind::InvalidData.into());
    };
    Ok(Some(Asked {
        answers: match u32::try_from(answers) {
            Ok(trim_answers::PROCESS) => Answers::Process,
            Ok(trim_answers::THREAD) => Answers::Thread,
            _ => Answers::Nobody,
        },
        request,
        answered,
        returned_pages: Some(returned_pages).filter(|pages| *pages != TRIM_UNKNOWN),
        took_ns: took_ns.min(LONGEST_NS),
    }))
}

/// The word of the process as a text, empty where it has none. Read in this very process. `asks`: makes a request of it
/// first, where there is none without an answer.
pub(crate) fn text_of(pid: u32, asks: bool) -> Result<Vec<u8>> {
    let mem = OpenOptions::new().read(true).write(asks).open(format!("/proc/{pid}/mem"))?;
    let Some((address, mut word)) = found(&mem, of_task(pid, "maps")?)? else { return Ok(vec![]) };
    if asks && word.asked == word.answered && word.answers != trim_answers::NOBODY {
        word.asked = word.asked.wrapping_add(1).max(1);
        mem.write_all_at(&word.asked.to_ne_bytes(), address + offset_of!(TrimWord, asked) as u64)?;
    }
    let TrimWord { answers, asked, answered, returned_pages, took_ns, .. } = word;
    Ok(format!("{answers} {asked} {answered} {returned_pages} {took_ns}").into_bytes())
}

/// The word and its address.
fn found(mem: &File, maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<Option<(u64, TrimWord)>> {
    let is_asked = |map: &Result<MemoryMap>| map.as_ref().map_or(true, is_of_its_variables);
    for map in maps.filter(is_asked).take(MOST_MAPPINGS) {
        if let Some(word) = in_mapping(mem, map?.address) {
            return Ok(Some(word));
        }
    }
    Ok(None)
}

fn in_mapping(mem: &File, (begin, end): (u64, u64)) -> Option<(u64, TrimWord)> {
    let room = usize::try_from(end.saturating_sub(begin).min(MOST_BYTES)).ok()?;
    let mut bytes = vec![0; room];
    let got = mem.read_at(&mut bytes, begin).ok()?;
    let words = bytes.get(..got)?.chunks_exact(WORD).zip((begin..).step_by(WORD));
    words.filter_map(|(bytes, at)| Some((at, TrimWord::read_from_bytes(bytes).ok()?))).find(is_word)
}

fn is_word((_, word): &(u64, TrimWord)) -> bool {
    (word.magic, word.magic_2, word.version) == (TRIM_MAGIC, TRIM_MAGIC_2, TRIM_VERSION)
}

/// Private memory that can be written: nothing that is written there reaches a file or another process.
fn is_of_its_variables(map: &MemoryMap) -> bool {
    let MMapPath::Path(path) = &map.pathname else { return false };
    file_name(path) == GIVE_BACK
        && map.perms.contains(MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_helper_is_read_and_anything_else_is_refused() {
        let asked = parsed(b"1 3 2 18446744073709551615 5").unwrap().unwrap();
        assert_eq!((asked.answers, asked.request, asked.answered), (Answers::Process, 3, 2));
        assert_eq!((asked.returned_pages, asked.took_ns, asked.is_answered()), (None, 5, false));
        let forged = parsed(b"77 3 3 4096 18446744073709551615").unwrap().unwrap();
        assert_eq!((forged.answers, forged.took_ns), (Answers::Nobody, LONGEST_NS));
        assert_eq!((forged.returned_pages, forged.is_answered()), (Some(4096), true));
        assert_eq!(parsed(b"").unwrap(), None);
        for text in [&b"x"[..], b"1 2 3 4 -5", b"\xff", b"1 2"] {
            assert!(parsed(text).is_err());
        }
    }
}
