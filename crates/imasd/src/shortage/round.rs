// SPDX-License-Identifier: Apache-2.0
//! One round of questions: those of the largest processes that can answer and could return most. Each step is bounded:
//! reading heaps costs time.

use std::cmp::Reverse;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use imas_core::printable;
use imas_linux::foreign_process::{ForeignFile, ForeignReader, owner_of};
use imas_linux::trim_word::{Answers, Asked, parsed};
use imas_linux::{control_group, process, process_heaps};

/// Processes with fewer resident bytes are not looked at.
const LEAST_RESIDENT: u64 = 16 << 20;
/// Largest processes that are looked at, those of them whose heaps are read, and those that are asked.
const MOST_LOOKED_AT: usize = 64;
const MOST_READ: usize = 8;
const MOST_ASKED: usize = 4;
/// Fewer bytes are not asked for.
const LEAST_RETURNABLE: u64 = 8 << 20;
/// The looks of one round take so long at most; the answers are waited for so long.
const LONGEST_LOOK: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(250);

/// Where memory is short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// On the machine.
    #[default]
    Machine,
    /// In the control group with this folder.
    Group(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => write!(f, "memory is short"),
            Self::Group(folder) => {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                write!(f, "{} is near its limit of memory", printable::name(&name))
            }
        }
    }
}

/// Answer of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Bytes that were given back; None where it cannot see that.
    pub(super) bytes: Option<u64>,
    pub(super) took_ns: u64,
}

impl Answer {
    pub(super) fn words(&self) -> String {
        let ms = self.took_ns as f64 / 1e6;
        let gave = self.bytes.map_or_else(
            || "gave free memory back".to_owned(),
            |bytes| format!("gave {:.1} MiB back", bytes as f64 / f64::from(1 << 20)),
        );
        format!("process {} ({}) was asked and {gave}, in {ms:.1} ms", self.pid, printable::name(&self.name))
    }
}

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) place: Place,
    pub(super) asked: u64,
    pub(super) answers: Vec<Answer>,
}

impl Outcome {
    pub(super) fn bytes(&self) -> u64 {
        self.answers.iter().filter_map(|answer| answer.bytes).fold(0, u64::saturating_add)
    }
}

/// A process that can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Able {
    pid: u32,
    /// Bytes that it could return; None where that cannot be read.
    returnable: Option<u64>,
}

/// A process that was asked.
#[derive(Debug)]
struct Asking {
    pid: u32,
    request: u64,
    /// Bytes that were resident before: it cannot have returned more, whatever it says.
    most: u64,
}

/// Asks, and waits for the answers. `tree`: only processes that read the index below this folder.
pub(super) fn ask(place: &Place, tree: Option<&Path>) -> Outcome {
    let mut reader = ForeignReader::default();
    let able = able(&mut reader, &largest(place), tree);
    let mut asked: Vec<Asking> = vec![];
    for one in worth_it(able) {
        let word = read(&mut reader, one.pid, ForeignFile::TrimRequest);
        let most = process::resident_bytes(one.pid).unwrap_or(0);
        asked.extend(word.map(|word| Asking { pid: one.pid, request: word.request, most }));
    }
    let number = asked.len() as u64;
    Outcome { place: place.clone(), asked: number, answers: answers(&mut reader, asked) }
}

/// The largest processes, the first one the largest.
fn largest(place: &Place) -> Vec<u32> {
    let pids: Vec<u32> = match place {
        Place::Machine => {
            let all = procfs::process::all_processes().into_iter().flatten().flatten();
            all.filter_map(|process| u32::try_from(process.pid()).ok()).collect()
        }
        Place::Group(folder) => control_group::processes(folder),
    };
    let sized = pids.into_iter().filter_map(|pid| Some((process::resident_bytes(pid)?, pid)));
    let mut sized: Vec<(u64, u32)> = sized.filter(|(bytes, _)| *bytes >= LEAST_RESIDENT).collect();
    sized.sort_by_key(|(bytes, _)| Reverse(*bytes));
    sized.into_iter().take(MOST_LOOKED_AT).map(|(_, pid)| pid).collect()
}

/// Processes that can answer and are not asked already.
fn able(reader: &mut ForeignReader, pids: &[u32], tree: Option<&Path>) -> Vec<Able> {
    let until = Instant::now() + LONGEST_LOOK;
    let mut able = vec![];
    for pid in pids {
        if Instant::now() > until || able.len() >= MOST_READ {
            break;
        }
        if !tree.is_none_or(|tree| is_of_tree(reader, *pid, tree)) {
            continue;
        }
        let word = read(reader, *pid, ForeignFile::TrimWord);
        if word.is_some_and(|word| word.answers != Answers::Nobody && word.is_answered()) {
            let heaps = process_heaps::by(reader, *pid, || owner_of(*pid));
            able.push(Able { pid: *pid, returnable: heaps.ok().map(|heaps| heaps.bytes.returnable) });
        }
    }
    able
}

fn is_of_tree(reader: &mut ForeignReader, pid: u32, tree: &Path) -> bool {
    let environment = reader.read(pid, ForeignFile::Environment, || owner_of(pid)).unwrap_or_default();
    let run = |entry: &[u8]| {
        let value = entry.strip_prefix(imas_abi::env::RUN.as_bytes())?.strip_prefix(b"=")?;
        Some(value == tree.as_os_str().as_bytes())
    };
    environment.split(|byte| *byte == 0).find_map(run) == Some(true)
}

/// Processes that are asked: the most first, and at the end those of which it is not known.
fn worth_it(mut able: Vec<Able>) -> Vec<Able> {
    able.retain(|one| one.returnable.is_none_or(|bytes| bytes >= LEAST_RETURNABLE));
    able.sort_by_key(|one| Reverse(one.returnable));
    able.truncate(MOST_ASKED);
    able
}

fn answers(reader: &mut ForeignReader, mut asked: Vec<Asking>) -> Vec<Answer> {
    let until = Instant::now() + LONGEST_WAIT;
    let page_bytes = rustix::param::page_size() as u64;
    let mut answers = vec![];
    while !asked.is_empty() && Instant::now() < until {
        sleep(BETWEEN);
        asked.retain(|Asking { pid, request, most }| {
            let Some(word) = read(reader, *pid, ForeignFile::TrimWord) else { return false };
            if word.answered < *request {
                return true;
            }
            answers.push(Answer {
                pid: *pid,
                name: comm(*pid),
                bytes: word.returned_pages.map(|pages| pages.saturating_mul(page_bytes).min(*most)),
                took_ns: word.took_ns,
            });
            false
        });
    }
    answers
}

fn comm(pid: u32) -> String {
    process::stat(pid).map_or_else(String::new, |stat| stat.comm)
}

fn read(reader: &mut ForeignReader, pid: u32, file: ForeignFile) -> Option<Asked> {
    parsed(&reader.read(pid, file, || owner_of(pid)).ok()?).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_return_most_are_asked() {
        let one = |pid, mib: Option<u64>| Able { pid, returnable: mib.map(|mib| mib << 20) };
        let all = vec![one(1, Some(9)), one(2, None), one(3, Some(1)), one(4, Some(90)), one(5, Some(20))];
        let pids = |able: Vec<Able>| able.iter().map(|one| one.pid).collect::<Vec<_>>();
        assert_eq!(pids(worth_it(all.clone())), [4, 5, 1, 2]);
        assert_eq!(pids(worth_it([all, vec![one(6, Some(50))]].concat())), [4, 6, 5, 1]);
    }

    #[test]
    fn an_answer_is_printable_whatever_the_process_calls_itself() {
        let answer = Answer { pid: 7, name: "a\x1b[31m\n".into(), bytes: Some(3 << 20), took_ns: 2_000_000 };
        let words = answer.words();
        assert!(
            words.ends_with("gave 3.0 MiB back, in 2.0 ms") && !words.contains(['\x1b', '\n']),
            "{words}"
        );
    }
}
