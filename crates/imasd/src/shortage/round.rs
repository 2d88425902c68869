// SPDX-License-Identifier: Apache-2.0
//! One round of questions: those of the largest processes that can answer and could return most. Each step is bounded:
//! reading heaps costs time. Places are given to owners in turn, so that nobody takes those of others: neither with many
//! processes, nor with figures that a process made up.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use imas_core::printable;
use imas_core::trimming::in_turn;
use imas_linux::foreign_process::{self, ForeignFile, ForeignReader};
use imas_linux::trim_word::{Answers, Asked, parsed};
use imas_linux::{control_group, process, process_trim};

use crate::process_info::Identity;

/// Processes with fewer resident bytes of their own are not looked at: what is in files or shared memory is not theirs to
/// return.
const LEAST_RESIDENT: u64 = 16 << 20;
/// Largest processes that are looked at, whose heaps are read, and that are asked.
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

/// A process that is large enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Large {
    pub(super) identity: Identity,
    pub(super) uid: u32,
    /// Resident bytes that are in no file and no shared memory.
    pub(super) bytes: u64,
}

/// A process that a round looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) identity: Identity,
    /// Number for who answers for it.
    pub(super) owner: u64,
}

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) place: Place,
    /// Bytes that each process gave back: 0 where it was asked in vain, cannot answer, or could return little. Those for
    /// which no place was left are not in it.
    pub(super) gave: HashMap<Identity, u64>,
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
    process: Chosen,
    /// Bytes that it could return; None where that cannot be read.
    returnable: Option<u64>,
}

impl Able {
    fn is_worth_it(&self) -> bool {
        self.returnable.is_none_or(|bytes| bytes >= LEAST_RETURNABLE)
    }
}

/// A process that was asked.
#[derive(Debug)]
struct Asking {
    process: Chosen,
    request: u64,
    /// Bytes that were resident before: it cannot have returned more, whatever it says.
    most: u64,
}

/// The processes that are large enough, in any order.
pub(super) fn large(place: &Place) -> Vec<Large> {
    let pids: Vec<u32> = match place {
        Place::Machine => {
            let all = procfs::process::all_processes().into_iter().flatten().flatten();
            all.filter_map(|process| u32::try_from(process.pid()).ok()).collect()
        }
        Place::Group(folder) => control_group::processes(folder),
    };
    pids.into_iter().filter_map(large_one).collect()
}

fn large_one(pid: u32) -> Option<Large> {
    let bytes = process::anonymous_bytes(pid).filter(|bytes| *bytes >= LEAST_RESIDENT)?;
    let identity = Identity { pid, start_ticks: process::start_ticks(pid).ok()? };
    Some(Large { identity, uid: foreign_process::real_uid(pid)?, bytes })
}

/// The processes to look at, in that order: of each owner the largest, then the second ones, and so on. Those whose pause
/// is not over are left out.
pub(super) fn chosen(
    mut large: Vec<Large>,
    pausing: &HashSet<Identity>,
    owner_of: impl Fn(u32) -> u64,
) -> Vec<Chosen> {
    large.retain(|one| !pausing.contains(&one.identity));
    large.sort_by_key(|one| Reverse(one.bytes));
    let chosen = large.into_iter().map(|one| Chosen { identity: one.identity, owner: owner_of(one.uid) });
    let mut chosen = in_turn(chosen.collect(), |one| one.owner);
    chosen.truncate(MOST_LOOKED_AT);
    chosen
}

/// Asks, and waits for the answers. `tree`: only processes that read the index below this folder.
pub(super) fn ask(place: &Place, chosen: &[Chosen], tree: Option<&Path>) -> Outcome {
    let mut reader = ForeignReader::default();
    let mut outcome = Outcome { place: place.clone(), ..Outcome::default() };
    let able = able(&mut reader, chosen, tree, &mut outcome);
    let (worth_it, little): (Vec<Able>, Vec<Able>) = able.into_iter().partition(Able::is_worth_it);
    outcome.gave.extend(little.iter().map(|one| (one.process.identity, 0)));
    let mut asked: Vec<Asking> = vec![];
    for process in most(worth_it).into_iter().map(|one| one.process) {
        outcome.gave.insert(process.identity, 0);
        let word = read(&mut reader, process, ForeignFile::TrimRequest);
        let most = process::anonymous_bytes(process.identity.pid).unwrap_or(0);
        asked.extend(word.map(|word| Asking { process, request: word.request, most }));
    }
    outcome.asked = asked.len() as u64;
    answers(&mut reader, asked, &mut outcome);
    outcome
}

/// Processes that can answer and are not asked already.
fn able(
    reader: &mut ForeignReader,
    chosen: &[Chosen],
    tree: Option<&Path>,
    outcome: &mut Outcome,
) -> Vec<Able> {
    let until = Instant::now() + LONGEST_LOOK;
    let mut able = vec![];
    for process in chosen {
        if Instant::now() > until || able.len() >= MOST_READ {
            break;
        }
        let asked = (process.identity.pid, process.owner);
        if !tree.is_none_or(|tree| is_of_tree(reader, asked, tree)) {
            continue;
        }
        let word = read(reader, *process, ForeignFile::TrimWord);
        if word.is_some_and(|word| word.answers != Answers::Nobody && word.is_answered()) {
            let heaps = process_trim::heaps_by(reader, process.identity.pid, || Some(process.owner));
            able.push(Able { process: *process, returnable: heaps.ok().map(|heaps| heaps.bytes.returnable) });
        } else {
            outcome.gave.insert(process.identity, 0);
        }
    }
    able
}

/// Whether the process, for which that owner answers, reads the index below this folder.
pub(crate) fn is_of_tree(reader: &mut ForeignReader, (pid, owner): (u32, u64), tree: &Path) -> bool {
    let environment = reader.read(pid, ForeignFile::Environment, || Some(owner)).unwrap_or_default();
    let run = |entry: &[u8]| {
        let value = entry.strip_prefix(imas_abi::env::RUN.as_bytes())?.strip_prefix(b"=")?;
        Some(value == tree.as_os_str().as_bytes())
    };
    environment.split(|byte| *byte == 0).find_map(run) == Some(true)
}

/// Processes that are asked, of each owner in turn: the most first, and at the end the unknown ones.
fn most(mut able: Vec<Able>) -> Vec<Able> {
    able.sort_by_key(|one| Reverse(one.returnable));
    let mut able = in_turn(able, |one| one.process.owner);
    able.truncate(MOST_ASKED);
    able
}

fn answers(reader: &mut ForeignReader, mut asked: Vec<Asking>, outcome: &mut Outcome) {
    let until = Instant::now() + LONGEST_WAIT;
    let page_bytes = rustix::param::page_size() as u64;
    while !asked.is_empty() && Instant::now() < until {
        sleep(BETWEEN);
        asked.retain(|Asking { process, request, most }| {
            let Some(word) = read(reader, *process, ForeignFile::TrimWord) else { return false };
            if word.answered < *request {
                return true;
            }
            let bytes = word.returned_pages.map(|pages| pages.saturating_mul(page_bytes).min(*most));
            let pid = process.identity.pid;
            outcome.gave.insert(process.identity, bytes.unwrap_or(0));
            outcome.answers.push(Answer { pid, name: comm(pid), bytes, took_ns: word.took_ns });
            false
        });
    }
}

fn comm(pid: u32) -> String {
    process::stat(pid).map_or_else(String::new, |stat| stat.comm)
}

fn read(reader: &mut ForeignReader, process: Chosen, file: ForeignFile) -> Option<Asked> {
    parsed(&reader.read(process.identity.pid, file, || Some(process.owner)).ok()?).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pid: u32) -> Identity {
        Identity { pid, start_ticks: 1 }
    }

    #[test]
    fn those_that_return_most_are_asked() {
        let one = |pid: u32, mib: Option<u64>| {
            let process = Chosen { identity: identity(pid), owner: u64::from(pid) };
            Able { process, returnable: mib.map(|mib| mib << 20) }
        };
        assert!(
            one(1, Some(8)).is_worth_it() && one(1, None).is_worth_it() && !one(3, Some(1)).is_worth_it()
        );
        let all = vec![one(1, Some(9)), one(2, None), one(4, Some(90)), one(5, Some(20))];
        let pids = |able: Vec<Able>| able.iter().map(|one| one.process.identity.pid).collect::<Vec<_>>();
        assert_eq!(pids(most(all.clone())), [4, 5, 1, 2]);
        assert_eq!(pids(most([all, vec![one(6, Some(50))]].concat())), [4, 6, 5, 1]);
    }

    #[test]
    fn nobody_takes_the_places_of_others_with_large_claims() {
        let one = |pid, owner, mib: u64| Able {
            process: Chosen { identity: identity(pid), owner },
            returnable: Some(mib << 20),
        };
        let claims = (1..=8).map(|pid| one(pid, 2001, 1 << 20));
        let able = claims.chain([one(10, 0, 9), one(11, 33, 10)]).collect();
        let pids: Vec<u32> = most(able).iter().map(|one| one.process.identity.pid).collect();
        assert_eq!(pids, [1, 11, 10, 2]);
    }

    #[test]
    fn nobody_takes_the_places_of_others_with_many_processes() {
        let large = |pid, uid, mib: u64| Large { identity: identity(pid), uid, bytes: mib << 20 };
        let many = (1000..1100).map(|pid| large(pid, 2001, 1000));
        let all: Vec<Large> = many.chain([large(1, 0, 20), large(2, 33, 30), large(3, 0, 900)]).collect();
        let pids = |pausing: &HashSet<Identity>| {
            let chosen = chosen(all.clone(), pausing, u64::from);
            chosen.iter().map(|one| one.identity.pid).collect::<Vec<_>>()
        };
        let all_day = pids(&HashSet::new());
        assert_eq!(all_day[..6], [1000, 3, 2, 1001, 1, 1002]);
        assert_eq!(all_day.len(), MOST_LOOKED_AT);
        assert_eq!(pids(&HashSet::from([identity(1000), identity(3)]))[..3], [1001, 2, 1]);
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
