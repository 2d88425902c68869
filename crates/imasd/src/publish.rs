// SPDX-License-Identifier: Apache-2.0
//! From what is known to the index that programs read.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_abi::{CANDIDATE_SYSTEM, entry_flag};
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::{Detail, Entry, Facts, Index, OfferedTrial, write_index};
use imas_linux::interpreter_target::Interpreter;
use imas_store::daemon::Offer;
use imas_store::samples::Domain;

use crate::program_table::{ProgramTable, TrackedProgram};
use crate::trial_offer::number;

/// Two publications are at least so far apart.
const BETWEEN: Duration = Duration::from_secs(1);

/// Publishes the index, and keeps what was published last.
#[derive(Debug)]
pub(crate) struct Publisher {
    generation: u64,
    last: Option<(Vec<Entry>, u64, bool)>,
    boot_id: String,
    /// Something was decided that the index does not say yet.
    is_outdated: bool,
    tried: Option<Instant>,
    /// Times an index was published, since the start.
    pub(crate) published: u64,
}

impl Publisher {
    /// Goes on counting where an index of an earlier process of the daemon stands.
    pub(crate) fn new(state: &Path, boot_id: String) -> Self {
        let standing = Index::read(&state.join(imas_linux::index::FILE_NAME)).ok();
        let generation = standing.map_or(0, |index| index.facts().generation);
        Self { generation, last: None, boot_id, is_outdated: true, tried: None, published: 0 }
    }

    /// The index may say something else now.
    pub(crate) fn changed(&mut self) {
        self.is_outdated = true;
    }

    /// The next publication does not wait for the one before to grow old.
    pub(crate) fn hurry(&mut self) {
        self.tried = None;
    }

    /// Whether to publish now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_outdated && self.tried.is_none_or(|at| now.duration_since(at) >= BETWEEN)
    }

    /// Time to publish.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.tried.filter(|_| self.is_outdated).map(|at| at + BETWEEN)
    }

    /// Replaces the index if it would say anything new.
    pub(crate) fn publish(
        &mut self,
        state: &Path,
        programs: &ProgramTable,
        table: &CatalogueTable,
        disabled: bool,
    ) -> Result<()> {
        self.tried = Some(Instant::now());
        let content = (entries(programs, table), table.id(), disabled);
        if self.last.as_ref() != Some(&content) {
            let facts = Facts {
                generation: self.generation + 1,
                catalogue_id: table.id(),
                made_boot_ns: imas_linux::index::boot_time_ns(),
                boot_id: self.boot_id.clone(),
                disabled,
            };
            write_index(state, &content.0, &facts).context("the index")?;
            self.generation = facts.generation;
            self.last = Some(content);
            self.published += 1;
        }
        self.is_outdated = false;
        Ok(())
    }

    /// The boot that the index is of.
    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Makes the index one of the given boot from now on.
    pub(crate) fn of_boot(&mut self, boot_id: &str) {
        boot_id.clone_into(&mut self.boot_id);
        self.forget();
    }

    /// The next publication happens whatever was published.
    pub(crate) fn forget(&mut self) {
        self.last = None;
        self.is_outdated = true;
    }
}

/// Key of an entry as the index has it: device and inode of the executable, detail, user. Users choose texts, and
/// may choose two of one hash: two entries of one key would keep the whole index from being published.
type Key = (u64, u64, (u32, [u64; 2]), Option<u32>);

fn key_of(entry: &Entry) -> Key {
    (entry.executable.dev, entry.executable.ino, entry.detail.key(), entry.uid)
}

/// Entries of the index: one for each program that is to start otherwise than it would, and one for each
/// interpreter that such programs share.
fn entries(programs: &ProgramTable, table: &CatalogueTable) -> Vec<Entry> {
    let mut entries: HashMap<Key, Entry> = HashMap::new();
    for known in programs.all().filter(|known| !decided_by_the_system(programs, known)) {
        if let Some(entry) = entry(known, table) {
            add_base(&mut entries, known, &entry);
            let key = key_of(&entry);
            let flags = entries.get(&key).map_or(0, |base| base.flags);
            entries.insert(key, Entry { flags: entry.flags | flags, ..entry });
        }
    }
    for flag in [entry_flag::BY_UNIT, entry_flag::BY_NAME] {
        tell_apart(&mut entries, flag);
    }
    let mut entries: Vec<_> = entries.into_values().collect();
    entries.sort_by_key(|entry| (entry.program_id, entry.uid, entry.flags));
    entries
}

/// Whether the system has settled on an answer, which holds for users too; their own samples only bridge the
/// time until then.
fn decided_by_the_system(programs: &ProgramTable, known: &TrackedProgram) -> bool {
    let program = &known.program;
    let of_system = || programs.named(Domain::Everybody, &program.path, &program.detail);
    matches!(program.domain, Domain::User(_))
        && !is_shield(known)
        && of_system().is_some_and(TrackedProgram::is_settled)
}

/// Whether a user's entry only hides the entry for everybody from this user.
fn is_shield(known: &TrackedProgram) -> bool {
    matches!(known.program.domain, Domain::User(_)) && known.trial.has_failed()
}

fn entry(known: &TrackedProgram, table: &CatalogueTable) -> Option<Entry> {
    let executable = known.executable?;
    if known.giving.nothing().is_some() {
        return None;
    }
    let candidate = table.id_of(&known.plan.production.candidate).unwrap_or(CANDIDATE_SYSTEM);
    let trial = |offer: &Offer| {
        Some(OfferedTrial { candidate: table.id_of(&offer.candidate)?, token: number(&offer.token)? })
    };
    let trials: Vec<_> = known.trial.untaken().iter().filter_map(trial).collect();
    // A service or a name without an entry would start as the executable does elsewhere.
    let needed = is_shield(known) || matches!(known.detail, Detail::Unit(_) | Detail::Name(_));
    if candidate == CANDIDATE_SYSTEM && trials.is_empty() && !needed {
        return None;
    }
    let flags = if candidate == CANDIDATE_SYSTEM { 0 } else { entry_flag::FLIGHT };
    let program_id = u64::try_from(known.program.id).unwrap_or(0);
    let uid = uid_of(known);
    Some(Entry { executable, detail: known.detail.clone(), uid, candidate, trials, flags, program_id })
}

fn uid_of(known: &TrackedProgram) -> Option<u32> {
    match known.program.domain {
        Domain::User(uid) => Some(uid),
        Domain::Everybody | Domain::Own => None,
    }
}

/// The hook reads the command line or the control group only if the entry of the executable itself requires
/// it.
fn add_base(entries: &mut HashMap<Key, Entry>, known: &TrackedProgram, entry: &Entry) {
    let flag = match Interpreter::of(Path::new(&known.program.path)) {
        None if matches!(known.detail, Detail::Unit(_)) => entry_flag::BY_UNIT,
        None if matches!(known.detail, Detail::Name(_)) => entry_flag::BY_NAME,
        Some(Interpreter::Java) => entry_flag::JAVA,
        Some(_) => entry_flag::INTERPRETER,
        None => return,
    };
    let base = Entry {
        detail: Detail::None,
        candidate: CANDIDATE_SYSTEM,
        trials: vec![],
        flags: 0,
        program_id: 0,
        ..entry.clone()
    };
    entries.entry(key_of(&base)).or_insert(base).flags |= flag;
}

/// An executable's own entry for a user precedes that for everybody. So each of them must require a look for
/// services and names, for whichever user those are.
fn tell_apart(entries: &mut HashMap<Key, Entry>, flag: u32) {
    let is_told_apart = |entry: &&Entry| entry.flags & flag != 0;
    let executables: HashSet<_> =
        entries.values().filter(is_told_apart).map(|entry| entry.executable).collect();
    for entry in entries.values_mut() {
        if entry.detail == Detail::None && executables.contains(&entry.executable) {
            entry.flags |= flag;
        }
    }
}
