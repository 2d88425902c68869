// SPDX-License-Identifier: Apache-2.0
//! Users whose programs this daemon serves: everybody on the machine, or one user's own tree of processes.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use imas_store::domain::Domain;

use crate::owners::{Owner, Owners};
use crate::process_info::{self, Identity, ProcessInfo};

/// The users, and who answers for each of their uids.
#[derive(Debug)]
pub(crate) struct ServedUsers {
    /// The run folder of a user's own tree; `None` where everybody is served.
    tree: Option<PathBuf>,
    owners: RefCell<Owners>,
}

impl ServedUsers {
    /// Everybody, by the accounts of this machine.
    pub(crate) fn everybody() -> Self {
        Self { tree: None, owners: RefCell::new(Owners::read(Path::new("/etc"))) }
    }

    /// The user who runs this process, as far as processes read the index of that run folder.
    pub(crate) fn own_tree(run_dir: &Path) -> Self {
        Self { tree: Some(run_dir.to_owned()), ..Self::everybody() }
    }

    /// Whether everybody on the machine is served.
    pub(crate) fn is_machine(&self) -> bool {
        self.tree.is_none()
    }

    /// Takes up what has changed in the accounts.
    pub(crate) fn refresh(&self) {
        self.owners.borrow_mut().refresh();
    }

    /// User whose pages count without a process that was seen: root, or the user of an own tree.
    pub(crate) fn own_uid(&self) -> u32 {
        if self.tree.is_some() { nix::unistd::geteuid().as_raw() } else { 0 }
    }

    /// Owner who answers for the uid.
    pub(crate) fn owner_of(&self, uid: u32) -> Owner {
        self.owners.borrow_mut().of(uid)
    }

    /// A number for who answers for the uid: all uids of a person have one. A system account has its own.
    pub(crate) fn number_of(&self, uid: u32) -> u64 {
        match self.owner_of(uid) {
            Owner::System => u64::from(uid),
            Owner::Person(person) => u64::from(person),
            Owner::Unknown => u64::MAX - 1,
        }
    }

    /// Owner who answers for the programs of a domain.
    pub(crate) fn owner_of_domain(&self, domain: Domain) -> Owner {
        match domain {
            Domain::Own | Domain::Everybody => Owner::System,
            Domain::User(uid) => self.owner_of(uid),
        }
    }

    /// Whether processes of the uid count as the system's. In a user's own tree all do.
    pub(crate) fn is_system(&self, uid: u32) -> bool {
        self.tree.is_some() || self.owner_of(uid) == Owner::System
    }

    /// Domain of the samples that a process of this uid makes.
    pub(crate) fn domain_of(&self, uid: u32) -> Domain {
        if self.is_system(uid) { Domain::Everybody } else { Domain::User(uid) }
    }

    /// Whether the process is one of a container whose root and system accounts are not those of this
    /// machine, though its samples would decide for everybody.
    pub(crate) fn is_foreign(&self, process: &ProcessInfo) -> bool {
        let is_of_container = self.tree.is_none() && process.in_container;
        is_of_container && self.domain_of(process.uid) == Domain::Everybody
    }

    /// Whether the process belongs to what is served.
    pub(crate) fn serves(&self, identity: Identity) -> bool {
        self.tree.as_ref().is_none_or(|run_dir| process_info::reads_index_below(identity, run_dir))
    }

    /// Whether pages of the two uids share one limit: a person's do, under all uids together; a system
    /// account's count by themselves.
    pub(crate) fn share_limits(&self, uid: u32, other: u32) -> bool {
        uid == other || (!self.is_system(uid) && self.owner_of(uid) == self.owner_of(other))
    }
}
