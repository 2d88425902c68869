// SPDX-License-Identifier: Apache-2.0
//! The programs that are known: what each is on disk, what was decided, which trial is on offer.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Instant;

use imas_core::{ProfileView, Reason};
use imas_engine::decide::{Giving, NextStart};
use imas_engine::inspect::on_file;
use imas_linux::index::{Detail, Executable};
use imas_linux::program_file::executable_at;
use imas_store::RowId;
use imas_store::daemon::Offer;
use imas_store::domain::Domain;
use imas_store::samples::StoredProgram;

use crate::fleet::program::FleetProgram;
use crate::process_info::{ProcessInfo, detail_of_text};
use crate::replicas::Replicas;
use crate::trial_offer::TrialOffer;

/// One program that is tracked.
#[derive(Debug)]
pub(crate) struct TrackedProgram {
    pub(crate) program: StoredProgram,
    /// The file as it was last seen; `None` when it is gone.
    pub(crate) executable: Option<Executable>,
    pub(crate) detail: Detail,
    /// Build-id, hexadecimal; empty if the program has none.
    pub(crate) build_id: String,
    /// What its executable lets be given to it.
    pub(crate) giving: Giving,
    /// Greatest number of threads of its processes when they were noticed, in this process of the daemon.
    pub(crate) threads: Option<u32>,
    /// The program as the fleet names it, where it takes part.
    pub(crate) fleet: Option<FleetProgram>,
    /// Everything measured, made ready; `None` before it is looked at.
    pub(crate) profile: Option<ProfileView>,
    pub(crate) plan: NextStart,
    /// The trials that the program is offered.
    pub(crate) trial: TrialOffer,
    /// Processes of the program that live side by side.
    pub(crate) replicas: Replicas,
    /// User whose process of the program was noticed last, in this process of the daemon.
    pub(crate) noticed_uid: Option<u32>,
    /// Time when a process of the program was noticed last, in this process of the daemon.
    pub(crate) seen: Option<Instant>,
    /// Time when time alone may change the plan, Unix time.
    pub(crate) look_again_s: Option<f64>,
}

impl TrackedProgram {
    /// A program as the store names it, its file as it is on disk now.
    pub(crate) fn new(program: StoredProgram) -> Self {
        let executable = on_file(program.domain, Path::new(&program.path), executable_at).ok().flatten();
        Self {
            detail: detail_of_text(&program.detail),
            executable,
            build_id: String::new(),
            giving: Giving::Loaded,
            threads: None,
            fleet: None,
            profile: None,
            plan: NextStart::untouched(Reason::NoData, ""),
            trial: TrialOffer::default(),
            replicas: Replicas::default(),
            noticed_uid: None,
            seen: None,
            look_again_s: None,
            program,
        }
    }

    /// Whether nothing more is to be tried: the picks are final.
    pub(crate) fn is_settled(&self) -> bool {
        self.plan.is_settled
    }
}

/// All programs that are known.
#[derive(Debug, Default)]
pub(crate) struct ProgramTable {
    known: BTreeMap<RowId, TrackedProgram>,
    by_file: HashMap<(u64, u64), Vec<RowId>>,
    by_name: HashMap<(Domain, String, String), RowId>,
    /// Number of programs of each domain.
    counts: BTreeMap<Domain, usize>,
}

fn name_of(program: &StoredProgram) -> (Domain, String, String) {
    (program.domain, program.path.clone(), program.detail.clone())
}

impl ProgramTable {
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Number of programs of each domain.
    pub(crate) fn counts(&self) -> &BTreeMap<Domain, usize> {
        &self.counts
    }

    pub(crate) fn ids(&self) -> Vec<RowId> {
        self.known.keys().copied().collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &TrackedProgram> {
        self.known.values()
    }

    pub(crate) fn get(&self, id: RowId) -> Option<&TrackedProgram> {
        self.known.get(&id)
    }

    /// The file that it runs must not be changed through this: see [`ProgramTable::put`].
    pub(crate) fn get_mut(&mut self, id: RowId) -> Option<&mut TrackedProgram> {
        self.known.get_mut(&id)
    }

    /// Takes a program in, in place of what was known of it.
    pub(crate) fn put(&mut self, known: TrackedProgram) {
        self.forget(known.program.id);
        if let Some(executable) = known.executable {
            self.unseat(executable);
            self.by_file.entry((executable.dev, executable.ino)).or_default().push(known.program.id);
        }
        self.by_name.insert(name_of(&known.program), known.program.id);
        *self.counts.entry(known.program.domain).or_default() += 1;
        self.known.insert(known.program.id, known);
    }

    /// Numbers of files are used again: what was known by another file of this number has lost its own, until
    /// it is seen anew. Two entries of one key would keep the whole index from being published.
    fn unseat(&mut self, executable: Executable) {
        let Some(ids) = self.by_file.get_mut(&(executable.dev, executable.ino)) else { return };
        ids.retain(|id| match self.known.get_mut(id) {
            Some(known) if known.executable == Some(executable) => true,
            Some(known) => {
                known.executable = None;
                false
            }
            None => false,
        });
    }

    pub(crate) fn forget(&mut self, id: RowId) -> Option<TrackedProgram> {
        let known = self.known.remove(&id)?;
        self.by_name.remove(&name_of(&known.program));
        if let Some(count) = self.counts.get_mut(&known.program.domain) {
            *count -= 1;
        }
        if let Some(executable) = known.executable {
            let file = (executable.dev, executable.ino);
            if let Some(ids) = self.by_file.get_mut(&file) {
                ids.retain(|theirs| *theirs != id);
                if ids.is_empty() {
                    self.by_file.remove(&file);
                }
            }
        }
        Some(known)
    }

    /// The program of the domain that a process is.
    pub(crate) fn find(&self, process: &ProcessInfo, domain: Domain) -> Option<&TrackedProgram> {
        let file = (process.executable.dev, process.executable.ino);
        let ids = self.by_file.get(&file)?;
        let of_domain = |known: &&TrackedProgram| {
            known.program.domain == domain
                && known.executable == Some(process.executable)
                && known.detail == process.detail
        };
        ids.iter().filter_map(|id| self.known.get(id)).find(of_domain)
    }

    /// The program as which a process was placed: the one whose number its flight page names, if it may be
    /// that, else what it is.
    pub(crate) fn placed(
        &self,
        process: &ProcessInfo,
        trial_id: &str,
        domain: Domain,
    ) -> Option<&TrackedProgram> {
        let is_it = |known: &&TrackedProgram| {
            known.executable == Some(process.executable) && process.leads_to(&known.detail)
        };
        let domains = [domain, Domain::Everybody];
        let numbered = domains.iter().find_map(|domain| self.numbered(trial_id, *domain).filter(is_it));
        numbered.or_else(|| domains.iter().find_map(|domain| self.find(process, *domain)))
    }

    /// The program of a path and a detail, whatever file is there now.
    pub(crate) fn named(&self, domain: Domain, path: &str, detail: &str) -> Option<&TrackedProgram> {
        let id = self.by_name.get(&(domain, path.to_owned(), detail.to_owned()))?;
        self.known.get(id)
    }

    /// The program of the domain whose number a flight page names: `<anything>-<its number in hexadecimal>`.
    pub(crate) fn numbered(&self, trial_id: &str, domain: Domain) -> Option<&TrackedProgram> {
        let id = RowId::from_str_radix(trial_id.rsplit('-').next()?, 16).ok()?;
        self.known.get(&id).filter(|known| known.program.domain == domain)
    }

    /// The program that a trial of that name is or was offered to, and the offer.
    pub(crate) fn trial(&self, token: &str) -> Option<(&TrackedProgram, &Offer)> {
        self.known.values().find_map(|known| Some((known, known.trial.named(token)?)))
    }

    /// The program that a trial of that name is offered to now.
    pub(crate) fn offering(&self, token: &str) -> Option<&TrackedProgram> {
        self.known.values().find(|known| known.trial.is_offering(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_inode_belongs_to_the_latest_file() {
        let file = |mtime_ns| Executable { dev: 1, ino: 7, mtime_ns, bytes: 10 };
        let program = |id, path: &str| {
            let program =
                StoredProgram { id, domain: Domain::Everybody, path: path.to_owned(), detail: String::new() };
            TrackedProgram { executable: Some(file(id)), ..TrackedProgram::new(program) }
        };
        let mut table = ProgramTable::default();
        table.put(program(1, "/no/such/replaced-by-an-upgrade"));
        table.put(program(2, "/no/such/with-its-inode"));
        let files: Vec<_> = table.all().map(|known| known.executable).collect();
        assert_eq!(files, [None, Some(file(2))]);
        table.put(program(1, "/no/such/replaced-by-an-upgrade"));
        assert_eq!(table.all().filter(|known| known.executable.is_some()).count(), 1);
    }
}
