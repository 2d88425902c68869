// SPDX-License-Identifier: Apache-2.0
//! From what is known to the index that programs read.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use imas_abi::{CANDIDATE_SYSTEM, entry_flag};
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::given::Interpreter;
use imas_linux::index::{Detail, Entry, Executable, Facts, Index, Trial, write_index};
use imas_store::domain::Domain;

use crate::book::{Book, Known};

/// Publishes, and remembers what stands.
#[derive(Debug)]
pub(crate) struct Publisher {
    generation: u64,
    last: Option<(Vec<Entry>, u64, bool)>,
    boot_id: String,
}

impl Publisher {
    /// Goes on counting where an index of an earlier life stands.
    pub(crate) fn new(state: &Path, boot_id: String) -> Self {
        let standing = Index::read(&state.join(imas_linux::index::FILE_NAME)).ok();
        Self { generation: standing.map_or(0, |index| index.facts().generation), last: None, boot_id }
    }

    /// Replaces the index if it would say anything new; whether it did.
    pub(crate) fn publish(
        &mut self,
        state: &Path,
        book: &Book,
        table: &CatalogueTable,
        disabled: bool,
    ) -> Result<bool> {
        let entries = entries(book, table);
        let says = (entries, table.id(), disabled);
        if self.last.as_ref() == Some(&says) {
            return Ok(false);
        }
        let facts = Facts {
            generation: self.generation + 1,
            catalogue_id: table.id(),
            made_boot_ns: imas_linux::index::boot_time_ns(),
            boot_id: self.boot_id.clone(),
            disabled,
        };
        write_index(state, &says.0, &facts).context("the index")?;
        self.generation = facts.generation;
        self.last = Some(says);
        Ok(true)
    }

    /// From now on the index is of that boot.
    pub(crate) fn of_boot(&mut self, boot_id: &str) {
        boot_id.clone_into(&mut self.boot_id);
        self.forget();
    }

    /// The next publication happens whatever stands.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

type Key = (Executable, Detail, Option<u32>);

/// One entry for each program that is to start otherwise than it would, and one for each interpreter that such programs share.
fn entries(book: &Book, table: &CatalogueTable) -> Vec<Entry> {
    let mut entries: HashMap<Key, Entry> = HashMap::new();
    for known in book.all().filter(|known| !decided_by_the_system(book, known)) {
        if let Some(entry) = entry(known, table) {
            add_base(&mut entries, known, &entry);
            let key = (entry.executable, entry.detail.clone(), entry.uid);
            let flags = entries.get(&key).map_or(0, |base| base.flags);
            entries.insert(key, Entry { flags: entry.flags | flags, ..entry });
        }
    }
    tell_apart_by_unit(&mut entries);
    let mut entries: Vec<_> = entries.into_values().collect();
    entries.sort_by_key(|entry| (entry.program_id, entry.uid, entry.flags));
    entries
}

/// What the system has settled on holds for users too; their own samples only bridge the time until then.
fn decided_by_the_system(book: &Book, known: &Known) -> bool {
    let program = &known.program;
    let of_system = || book.named(Domain::Everybody, &program.path, &program.detail);
    matches!(program.domain, Domain::User(_))
        && !is_shield(known)
        && of_system().is_some_and(Known::is_settled)
}

/// A user's entry that says no more than that everybody's is not for this user now.
fn is_shield(known: &Known) -> bool {
    matches!(known.program.domain, Domain::User(_)) && known.void_offers > 0
}

fn entry(known: &Known, table: &CatalogueTable) -> Option<Entry> {
    let executable = known.executable?;
    if known.unfit.is_some() {
        return None;
    }
    let candidate = table.id_of(&known.verdict.production).unwrap_or(CANDIDATE_SYSTEM);
    let offer = known.offer.as_ref().filter(|_| known.taken_by.is_none());
    let trial = offer.and_then(|offer| {
        let token = u64::from_str_radix(&offer.token, 16).ok()?;
        Some(Trial { candidate: table.id_of(&offer.candidate)?, token })
    });
    // A service without an entry would start as the executable does elsewhere.
    let needed = is_shield(known) || matches!(known.detail, Detail::Unit(_));
    if candidate == CANDIDATE_SYSTEM && trial.is_none() && !needed {
        return None;
    }
    let flags = if candidate == CANDIDATE_SYSTEM { 0 } else { entry_flag::FLIGHT };
    let program_id = u64::try_from(known.program.id).unwrap_or(0);
    let uid = uid_of(known);
    Some(Entry { executable, detail: known.detail.clone(), uid, candidate, trial, flags, program_id })
}

fn uid_of(known: &Known) -> Option<u32> {
    match known.program.domain {
        Domain::User(uid) => Some(uid),
        Domain::Everybody | Domain::Own => None,
    }
}

/// The hook reads the command line or its control group only where the entry of the executable itself says that it should.
fn add_base(entries: &mut HashMap<Key, Entry>, known: &Known, entry: &Entry) {
    let flag = match Interpreter::of(Path::new(&known.program.path)) {
        None if matches!(known.detail, Detail::Unit(_)) => entry_flag::BY_UNIT,
        Some(Interpreter::Java) => entry_flag::JAVA,
        Some(_) => entry_flag::INTERPRETER,
        None => return,
    };
    let base = Entry {
        detail: Detail::None,
        candidate: CANDIDATE_SYSTEM,
        trial: None,
        flags: 0,
        program_id: 0,
        ..entry.clone()
    };
    let key = (base.executable, Detail::None, base.uid);
    entries.entry(key).or_insert(base).flags |= flag;
}

/// Of the executable's own entries a user's stands before everybody's: each must say that there are services, whoever they are of.
fn tell_apart_by_unit(entries: &mut HashMap<Key, Entry>) {
    let by_unit = |entry: &&Entry| entry.flags & entry_flag::BY_UNIT != 0;
    let executables: HashSet<_> = entries.values().filter(by_unit).map(|entry| entry.executable).collect();
    for ((executable, detail, _), entry) in entries {
        if *detail == Detail::None && executables.contains(executable) {
            entry.flags |= entry_flag::BY_UNIT;
        }
    }
}
