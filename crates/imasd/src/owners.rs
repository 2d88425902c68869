// SPDX-License-Identifier: Apache-2.0
//! Owners, who answer for what runs under a uid. One person may have tens of thousands of uids for containers
//! (`/etc/subuid`), and all that happens under them counts as that one person's. This file is the only place
//! where that rule stands.

use std::collections::HashMap;
use std::path::Path;

use crate::accounts::{Accounts, FIRST_USER, Holder};
use crate::name_service::{NameService, Question};

/// Limit for the number of answers remembered.
const MOST_REMEMBERED: usize = 65_536;

/// Owner of a uid, who answers for what runs under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    /// Root or an account of the system.
    System,
    /// A person, by the uid of the account.
    Person(u32),
    /// Uid without an account: all such uids together are treated as one person.
    Unknown,
}

/// The rule, and what it rests on.
#[derive(Debug)]
pub(crate) struct Owners {
    accounts: Accounts,
    names: NameService,
    remembered: HashMap<u32, Owner>,
}

impl Owners {
    /// Owners by the files below `etc` and the machine's name service.
    pub(crate) fn read(etc: &Path) -> Self {
        Self { accounts: Accounts::read(etc), names: NameService::new(), remembered: HashMap::new() }
    }

    /// Takes up what has changed; whether anything has.
    pub(crate) fn refresh(&mut self) -> bool {
        self.remembered.clear(); // answers of the name service grow old too
        self.accounts.refresh() | self.names.take_answers()
    }

    /// Owner who answers for this uid.
    pub(crate) fn of(&mut self, uid: u32) -> Owner {
        if let Some(owner) = self.remembered.get(&uid) {
            return *owner;
        }
        let owner = self.find(uid);
        if self.remembered.len() >= MOST_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(uid, owner);
        owner
    }

    /// An account of the uid comes first, then the range that contains the uid, then the answer of the name
    /// service.
    fn find(&mut self, uid: u32) -> Owner {
        if uid == 0 || self.accounts.has(uid) {
            return of_account(uid);
        }
        let account = match self.accounts.holder_of(uid).cloned() {
            Some(holder) => return self.of_holder(&holder),
            None => self.names.answer(&Question::Uid(uid)),
        };
        account.map_or(Owner::Unknown, of_account)
    }

    /// The uids that root or a service hands to containers are not the system's: what runs there may be
    /// anybody's.
    fn of_holder(&mut self, holder: &Holder) -> Owner {
        let uid = match holder {
            Holder::Uid(uid) => Some(*uid),
            Holder::Name(name) => {
                let listed = self.accounts.uid_of(name);
                listed.or_else(|| self.names.answer(&Question::Name(name.clone())))
            }
        };
        uid.filter(|uid| *uid >= FIRST_USER).map_or(Owner::Unknown, Owner::Person)
    }
}

fn of_account(uid: u32) -> Owner {
    if uid < FIRST_USER { Owner::System } else { Owner::Person(uid) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::tests::etc;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/usr/sbin/nologin\ndockremap:x:990:990::/:/bin/false\n\
        mallory:x:1000:1000::/home/m:/bin/sh\nalice:x:1001:1001::/home/a:/bin/sh\n";
    const SUBUID: &str = "mallory:100000:65536\n1001:165536:65536\ndockremap:300000:65536\nroot:1000000:65536\n\
        gone-with-no-account:400000:65536\n";

    #[test]
    fn a_uid_belongs_to_its_account_or_the_holder_of_its_range() {
        let etc = etc(PASSWD, SUBUID);
        let mut owners = Owners::read(etc.path());
        let mut are =
            |uids: &[u32], owner| uids.iter().for_each(|uid| assert_eq!(owners.of(*uid), owner, "{uid}"));
        are(&[0, 33, 990], Owner::System);
        are(&[1000, 100_000, 100_033, 165_535], Owner::Person(1000));
        are(&[1001, 165_536, 231_071], Owner::Person(1001));
        are(&[999, 34], Owner::Unknown);
        are(&[300_000, 365_535, 1_000_000], Owner::Unknown);
        are(&[400_000], Owner::Unknown);
        are(&[231_072, 4_000_000_000], Owner::Unknown);
    }

    #[test]
    fn changed_files_are_read_again() {
        let etc = etc(PASSWD, "");
        let mut owners = Owners::read(etc.path());
        assert_eq!(owners.of(100_000), Owner::Unknown);
        std::fs::write(etc.path().join("subuid"), SUBUID).unwrap();
        assert!(owners.refresh());
        assert_eq!(owners.of(100_000), Owner::Person(1000));
    }

    #[test]
    fn an_account_of_its_own_is_not_the_range_holders() {
        let etc = etc(&format!("{PASSWD}bob:x:100005:1::/:/bin/sh\n"), SUBUID);
        assert_eq!(Owners::read(etc.path()).of(100_005), Owner::Person(100_005));
    }
}
