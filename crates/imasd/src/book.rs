// SPDX-License-Identifier: Apache-2.0
//! The programs that are known: what each is on disk, what was decided, which trial is on offer.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::ProfileView;
use imas_core::decision::{Decision, Evidence};
use imas_core::{Reason, SYSTEM};
use imas_linux::index::{Detail, Executable};
use imas_linux::program_file::executable_at;
use imas_store::RowId;
use imas_store::daemon::Offer;
use imas_store::domain::Domain;
use imas_store::samples::Program;

use crate::folders::PageName;
use crate::judge::Verdict;
use crate::sight::{Sight, detail_of_text};

/// A trial may be taken by a process so long after its offer was withdrawn: it read the index before, and its page is on its way.
const STILL_OURS: Duration = Duration::from_secs(60);

/// One program.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) program: Program,
    /// The file as it was last seen; `None` when it is gone.
    pub(crate) executable: Option<Executable>,
    pub(crate) detail: Detail,
    /// Hexadecimal; empty if it has none.
    pub(crate) build_id: String,
    /// Why nothing may be preloaded into it.
    pub(crate) unfit: Option<String>,
    /// Everything measured, made ready; `None` before it is looked at.
    pub(crate) profile: Option<ProfileView>,
    pub(crate) verdict: Verdict,
    pub(crate) offer: Option<Offer>,
    /// The page of the process that has taken the offered trial; a user's process takes no trial of everybody's from others.
    pub(crate) taken_by: Option<PageName>,
    /// The offer before, and when it was withdrawn.
    pub(crate) withdrawn: Option<(Offer, Instant)>,
    /// Offers that came to nothing, one after the other.
    pub(crate) void_offers: u32,
    /// No new offer before then, Unix time.
    pub(crate) no_offer_before_s: f64,
    /// When a process of it was noticed last, in this life of ours.
    pub(crate) seen: Option<Instant>,
    /// When time alone may change the verdict, Unix time.
    pub(crate) look_again_s: Option<f64>,
}

impl Known {
    /// A program as the store names it, its file as it is on disk now.
    pub(crate) fn new(program: Program) -> Self {
        let executable = executable_at(Path::new(&program.path));
        Self {
            detail: detail_of_text(&program.detail),
            executable,
            build_id: String::new(),
            unfit: None,
            profile: None,
            verdict: Verdict::untouched(untouched(Reason::NoData, "")),
            offer: None,
            taken_by: None,
            withdrawn: None,
            void_offers: 0,
            no_offer_before_s: 0.0,
            seen: None,
            look_again_s: None,
            program,
        }
    }

    /// The offer of that name, withdrawn ones of the last minute too: what a trial brings is true whatever was decided meanwhile.
    pub(crate) fn offer_named(&self, token: &str) -> Option<&Offer> {
        let withdrawn = self.withdrawn.as_ref().filter(|(_, at)| at.elapsed() < STILL_OURS);
        let offers = self.offer.iter().chain(withdrawn.map(|(offer, _)| offer));
        offers.into_iter().find(|offer| offer.token == token)
    }

    /// Whether the trial of that name is on offer.
    pub(crate) fn is_offering(&self, token: &str) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.token == token)
    }

    /// Whether nothing more is to be tried: the picks stand.
    pub(crate) fn is_settled(&self) -> bool {
        self.verdict.trial.is_none() && self.profile.as_ref().is_some_and(|profile| profile.picks.is_some())
    }
}

/// A decision to leave a program as it is.
pub(crate) fn untouched(reason: Reason, why: &str) -> Decision {
    let evidence = Evidence { name: "the program".to_owned(), value: why.to_owned() };
    Decision {
        candidate: SYSTEM.to_owned(),
        trial: false,
        reason,
        evidence: if why.is_empty() { vec![] } else { vec![evidence] },
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Book {
    known: BTreeMap<RowId, Known>,
    by_file: HashMap<(u64, u64), Vec<RowId>>,
    by_name: HashMap<(Domain, String, String), RowId>,
    /// How many each domain has.
    counts: BTreeMap<Domain, usize>,
}

fn name_of(program: &Program) -> (Domain, String, String) {
    (program.domain, program.path.clone(), program.detail.clone())
}

impl Book {
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// How many programs each domain has.
    pub(crate) fn counts(&self) -> &BTreeMap<Domain, usize> {
        &self.counts
    }

    pub(crate) fn ids(&self) -> Vec<RowId> {
        self.known.keys().copied().collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    pub(crate) fn get(&self, id: RowId) -> Option<&Known> {
        self.known.get(&id)
    }

    /// The file that it runs must not be changed through this: see [`Book::put`].
    pub(crate) fn get_mut(&mut self, id: RowId) -> Option<&mut Known> {
        self.known.get_mut(&id)
    }

    /// Takes a program in, in place of what was known of it.
    pub(crate) fn put(&mut self, known: Known) {
        self.forget(known.program.id);
        if let Some(executable) = known.executable {
            self.unseat(executable);
            self.by_file.entry((executable.dev, executable.ino)).or_default().push(known.program.id);
        }
        self.by_name.insert(name_of(&known.program), known.program.id);
        *self.counts.entry(known.program.domain).or_default() += 1;
        self.known.insert(known.program.id, known);
    }

    /// Numbers of files are used again: what was known by another file of this number has lost its own, until it is seen anew. Two
    /// entries of one key would keep the whole index from being published.
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

    pub(crate) fn forget(&mut self, id: RowId) -> Option<Known> {
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
    pub(crate) fn find(&self, sight: &Sight, domain: Domain) -> Option<&Known> {
        let file = (sight.executable.dev, sight.executable.ino);
        let ids = self.by_file.get(&file)?;
        let of_domain = |known: &&Known| {
            known.program.domain == domain
                && known.executable == Some(sight.executable)
                && known.detail == sight.detail
        };
        ids.iter().filter_map(|id| self.known.get(id)).find(of_domain)
    }

    /// The program as which a process was placed: the one whose number its flight page names, if it may be that, else what it is.
    pub(crate) fn placed(&self, sight: &Sight, trial_id: &str, domain: Domain) -> Option<&Known> {
        let is_it =
            |known: &&Known| known.executable == Some(sight.executable) && sight.leads_to(&known.detail);
        let domains = [domain, Domain::Everybody];
        let numbered = domains.iter().find_map(|domain| self.numbered(trial_id, *domain).filter(is_it));
        numbered.or_else(|| domains.iter().find_map(|domain| self.find(sight, *domain)))
    }

    /// The program of a path and a detail, whatever file stands there now.
    pub(crate) fn named(&self, domain: Domain, path: &str, detail: &str) -> Option<&Known> {
        let id = self.by_name.get(&(domain, path.to_owned(), detail.to_owned()))?;
        self.known.get(id)
    }

    /// The program of the domain whose number a flight page names: `<anything>-<its number in hexadecimal>`.
    pub(crate) fn numbered(&self, trial_id: &str, domain: Domain) -> Option<&Known> {
        let id = RowId::from_str_radix(trial_id.rsplit('-').next()?, 16).ok()?;
        self.known.get(&id).filter(|known| known.program.domain == domain)
    }

    /// The program that a trial of that name is or was offered to, and the offer.
    pub(crate) fn trial(&self, token: &str) -> Option<(&Known, &Offer)> {
        self.known.values().find_map(|known| Some((known, known.offer_named(token)?)))
    }

    /// The program that a trial of that name is offered to now.
    pub(crate) fn offering(&self, token: &str) -> Option<&Known> {
        self.known.values().find(|known| known.is_offering(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_belongs_to_the_file_seen_last() {
        let file = |mtime_ns| Executable { dev: 1, ino: 7, mtime_ns, bytes: 10 };
        let program = |id, path: &str| {
            let program =
                Program { id, domain: Domain::Everybody, path: path.to_owned(), detail: String::new() };
            Known { executable: Some(file(id)), ..Known::new(program) }
        };
        let mut book = Book::default();
        book.put(program(1, "/no/such/replaced-by-an-upgrade"));
        book.put(program(2, "/no/such/with-its-inode"));
        let files: Vec<_> = book.all().map(|known| known.executable).collect();
        assert_eq!(files, [None, Some(file(2))]);
        book.put(program(1, "/no/such/replaced-by-an-upgrade"));
        assert_eq!(book.all().filter(|known| known.executable.is_some()).count(), 1);
    }
}
