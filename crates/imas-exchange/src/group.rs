// SPDX-License-Identifier: Apache-2.0
//! Groups of hosts: the figures of one host can move one group only.

use sha2::{Digest as _, Sha256};

/// Number of groups.
pub const GROUPS: usize = 128;

/// Where a host's figures go: its group, and its rank there. A group keeps the figures of the host with the
/// lowest rank: a host can neither choose its place nor gain weight by many messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Number of the group, below [`GROUPS`].
    pub(crate) group: u8,
    /// Rank of the host in the group; the lowest wins.
    pub(crate) rank: u32,
}

impl Place {
    /// The place of a host for figures with this name. Each name has its own order of hosts, so that no host
    /// counts everywhere.
    pub(crate) fn of(host: &str, program: &str, name: &str) -> Self {
        let [group, rank @ ..] = hash(&[host, program, name]);
        Self { group: group & 0x7f, rank: u32::from_le_bytes([rank[0], rank[1], rank[2], rank[3]]) }
    }
}

/// Number of hosts whose figures of a candidate count; with it, most groups have a host.
pub const COUNTED_HOSTS: u32 = 192;

/// Whether a host's figures of a candidate count; `hosts` is about how many run the program. Without such a
/// choice, of 100,000 hosts a thousand eager liars would take every seat before the few honest ones that try
/// it.
pub fn is_counted(host: &str, program: &str, candidate: &str, hosts: u32) -> bool {
    Place::of(host, program, candidate).is_counted(hosts)
}

impl Place {
    pub(crate) fn is_counted(self, hosts: u32) -> bool {
        u64::from(self.rank) * u64::from(hosts) <= u64::from(COUNTED_HOSTS) << 32
    }
}

/// The group of a host, whatever it reports.
pub fn group_of(host: &str) -> usize {
    usize::from(Place::of(host, "", "").group)
}

/// A SHA-256 over the parts.
pub(crate) fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// A set of groups, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupSet(u128);

impl GroupSet {
    /// Adds a group.
    pub fn insert(&mut self, group: usize) {
        self.0 |= 1 << (group % GROUPS);
    }

    /// Number of groups in the set.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The only group of the set; None where there are more or none.
    pub fn only(self) -> Option<usize> {
        (self.len() == 1).then(|| self.0.trailing_zeros() as usize)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl serde::Serialize for GroupSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:032x}", self.0))
    }
}

impl<'de> serde::Deserialize<'de> for GroupSet {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let is_set = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let set = u128::from_str_radix(&text, 16).ok().filter(|_| is_set);
        set.map(Self).ok_or_else(|| serde::de::Error::custom("32 hexadecimal digits are expected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_spread_over_all_groups() {
        let mut set = GroupSet::default();
        let mut hosts = [0; GROUPS];
        for host in 0..10_000 {
            let group = group_of(&format!("host-{host}"));
            hosts[group] += 1;
            set.insert(group);
        }
        assert_eq!(set.len() as usize, GROUPS);
        assert!(hosts.iter().all(|&count| (30..150).contains(&count)), "{hosts:?}");
    }

    #[test]
    fn a_set_reads_back_and_nothing_else_does() {
        let mut set = GroupSet::default();
        set.insert(0);
        set.insert(127);
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<GroupSet>(&text).unwrap(), set);
        for bad in ["\"\"", "\"+0000000000000000000000000000001\"", "7", "\"80\""] {
            assert!(serde_json::from_str::<GroupSet>(bad).is_err(), "{bad}");
        }
    }
}
