// SPDX-License-Identifier: Apache-2.0
//! One store with its programs, kept up to date at a limited cost.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program_view::state_where;
use anyhow::Result;
use imas_engine::context::Context;
use imas_engine::flags::RulesArgs;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::index::detail_of_unit;
use imas_linux::started_name::name_of_detail;
use imas_store::decisions::Decided;
use imas_store::domain::Domain;
use imas_store::revision::ProgramRevision;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};

use crate::identity::Identity;
use crate::program_facts::ProgramFacts;
use crate::snapshot::StoreKind;
use imas_engine::pending::PendingView;

/// A store is read again at the earliest after this multiple of the time that it took.
const REST: u32 = 300;
/// A store rests at least this long between two readings.
const LEAST_REST: Duration = Duration::from_secs(2);
/// A program is worked out anew after this time although nothing was stored: the machine's pressure changes.
const STALE: Duration = Duration::from_secs(300);

/// One store.
#[derive(Debug)]
pub(crate) struct ProgramSource {
    pub(crate) kind: StoreKind,
    context: Context,
    store: Option<Store>,
    stamp: Option<Stamp>,
    by_name: HashMap<(String, String), Vec<StoredProgram>>,
    facts: HashMap<RowId, KeptFacts>,
    /// Whether a candidate can be used here: to find out takes a process each.
    usable: RefCell<HashMap<String, bool>>,
    look_again: Instant,
    pub(crate) problems: Vec<String>,
}

#[derive(Debug)]
struct KeptFacts {
    revision: ProgramRevision,
    made: Instant,
    /// The candidates whose gain was worked out.
    on: Vec<String>,
    facts: ProgramFacts,
}

/// Changes when the store or the folder of pages has changed.
#[derive(Debug, PartialEq)]
enum Stamp {
    Files(Vec<(u64, i64, i64)>),
    Connection(i64),
}

impl ProgramSource {
    /// The store of that installation.
    pub(crate) fn new(kind: StoreKind, context: Context) -> Self {
        Self {
            kind,
            context,
            store: None,
            stamp: None,
            by_name: HashMap::new(),
            facts: HashMap::new(),
            usable: RefCell::default(),
            look_again: Instant::now(),
            problems: vec![],
        }
    }

    /// Reads the store again where it has changed and the last reading is long enough ago.
    pub(crate) fn refresh(&mut self) {
        let begun = Instant::now();
        if begun < self.look_again {
            return;
        }
        let stamp = self.stamp_now();
        if stamp.is_none() || stamp != self.stamp {
            self.problems = match self.read() {
                Ok(problems) => problems,
                Err(error) => vec![format!("{error:#}")],
            };
            self.stamp = stamp;
        }
        self.look_again = Instant::now() + (begun.elapsed() * REST).max(LEAST_REST);
    }

    fn stamp_now(&self) -> Option<Stamp> {
        match self.kind {
            StoreKind::System => Some(Stamp::Connection(self.store.as_ref()?.foreign_changes().ok()?)),
            StoreKind::Own => {
                let wal = self.context.store_path.with_extension("db-wal");
                let pages = self.context.page_places();
                let files = [&self.context.store_path, &wal].into_iter().chain(&pages);
                Some(Stamp::Files(files.map(|path| changed(path)).collect()))
            }
        }
    }

    fn read(&mut self) -> Result<Vec<String>> {
        let problems = match self.kind {
            StoreKind::Own => {
                let view = PendingView::read(&self.context)?;
                self.store = Some(view.store);
                view.damaged
            }
            StoreKind::System if self.store.is_none() => {
                self.store = Some(Store::open_read_only(&self.context.store_path)?);
                self.stamp = self.stamp_now();
                vec![]
            }
            StoreKind::System => vec![],
        };
        let before: HashMap<RowId, StoredProgram> = self
            .by_name
            .drain()
            .flat_map(|(_, programs)| programs)
            .map(|program| (program.id, program))
            .collect();
        for program in self.store.as_ref().map_or_else(|| Ok(vec![]), Store::programs)? {
            let name = (program.path.clone(), program.detail.clone());
            // The numbers of programs that are only in pages are those of one copy.
            if before.get(&program.id) != Some(&program) {
                self.facts.remove(&program.id);
            }
            self.by_name.entry(name).or_default().push(program);
        }
        Ok(problems)
    }

    /// The program that the process runs: that of its service, else that of its executable.
    pub(crate) fn program_of(&self, identity: &Identity) -> Option<&StoredProgram> {
        let path = identity.program.path.to_string_lossy();
        let unit = identity.unit.as_deref().map(detail_of_unit);
        let detail = identity.program.detail.clone();
        // imasd, and an earlier version, know it by its file alone.
        let by_file = name_of_detail(&detail).map(|_| String::new());
        let details = unit.into_iter().chain([detail]).chain(by_file);
        let mut found = details.filter_map(|detail| self.by_name.get(&(path.clone().into_owned(), detail)));
        let domains = found.next()?;
        let in_domain = |domain| domains.iter().find(|program| program.domain == domain);
        match self.kind {
            StoreKind::Own => domains.first(),
            StoreKind::System => {
                in_domain(Domain::User(identity.uid)).or_else(|| in_domain(Domain::Everybody))
            }
        }
    }

    /// What is kept of the program, whether it is up to date or not.
    pub(crate) fn facts(&self, program: RowId) -> Option<&ProgramFacts> {
        self.facts.get(&program).map(|kept| &kept.facts)
    }

    /// The newest decisions about the program, newest first; none where they cannot be read.
    pub(crate) fn decisions(&self, program: RowId, most: u32) -> Vec<Decided> {
        let read = |store: &Store| store.decisions(program, most).ok();
        self.store.as_ref().and_then(read).unwrap_or_default()
    }

    /// Whether the program has to be worked out for processes that are on that candidate.
    pub(crate) fn is_stale(&self, program: RowId, on: Option<&str>) -> bool {
        let Some(store) = &self.store else { return false };
        let Some(kept) = self.facts.get(&program) else { return true };
        let lacks = on.is_some_and(|on| !kept.on.iter().any(|known| known == on));
        lacks || kept.made.elapsed() > STALE || store.revision(program).is_ok_and(|now| now != kept.revision)
    }

    /// Works the program out.
    pub(crate) fn work_out(&mut self, program: &StoredProgram, on: Option<&str>) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let revision = store.revision(program.id)?;
        let mut names = self.facts.remove(&program.id).map(|kept| kept.on).unwrap_or_default();
        names.extend(on.map(str::to_owned).filter(|on| !names.contains(on)));
        let find_out = |one: &CatalogueCandidate| self.context.obstacle(one, Some(store)).is_none();
        let is_usable = |one: &CatalogueCandidate| {
            let mut usable = self.usable.borrow_mut();
            *usable.entry(one.name.clone()).or_insert_with(|| find_out(one))
        };
        let rules = RulesArgs::of_environment();
        let state = state_where((&self.context, store), program.clone(), &rules, &is_usable)?;
        let on: Vec<&str> = names.iter().map(String::as_str).collect();
        let facts = ProgramFacts::of(store, &state, &on)?;
        self.facts.insert(program.id, KeptFacts { revision, made: Instant::now(), on: names, facts });
        Ok(())
    }
}

/// Length and time of the last change; zeros where there is no such file.
fn changed(path: &Path) -> (u64, i64, i64) {
    std::fs::metadata(path).map_or((0, 0, 0), |about| (about.len(), about.mtime(), about.mtime_nsec()))
}
