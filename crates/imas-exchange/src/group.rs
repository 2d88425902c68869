// SPDX-License-Identifier: Apache-2.0
//! Groups of hosts: the figures of one host can move one group only.
//!
//! About how many hosts have reported, in 128 bytes: P. Flajolet, E. Fusy, O. Gandouet and F. Meunier, "HyperLogLog:
//! the analysis of a near-optimal cardinality estimation algorithm", AofA 2007. Off by 9 % on average.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
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

const REGISTERS: usize = 128;
/// Factor of the estimate for that number of registers.
const ALPHA: f64 = 0.7213 / (1.0 + 1.079 / REGISTERS as f64);
/// Greatest value of a register: the hash has 64 bits for it.
const MOST: u8 = 65;

/// Distinct hosts, counted roughly. A host counts once, however often it is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostSketch([u8; REGISTERS]);

impl Default for HostSketch {
    fn default() -> Self {
        Self([0; REGISTERS])
    }
}

impl HostSketch {
    /// Adds a host.
    pub fn add(&mut self, host: &str) {
        let [register, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = hash(&["sketch", host]);
        let zeros = u64::from_le_bytes([a, b, c, d, e, f, g, h]).leading_zeros();
        let register = &mut self.0[usize::from(register) % REGISTERS];
        *register = (*register).max(u8::try_from(zeros + 1).unwrap_or(MOST));
    }

    /// The number of hosts, roughly.
    pub fn hosts(&self) -> u32 {
        let m = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|register| (-f64::from(*register)).exp2()).sum();
        let raw = ALPHA * m * m / sum;
        let empty = self.0.iter().filter(|register| **register == 0).count();
        let hosts = if raw <= 2.5 * m && empty > 0 { m * (m / empty as f64).ln() } else { raw };
        rounded(hosts)
    }
}

/// Saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rounded(hosts: f64) -> u32 {
    hosts.round() as u32
}

impl serde::Serialize for HostSketch {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD_NO_PAD.encode(self.0))
    }
}

impl<'de> serde::Deserialize<'de> for HostSketch {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let registers = STANDARD_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        let registers = registers.filter(|all: &[u8; REGISTERS]| all.iter().all(|one| *one <= MOST));
        registers.map(Self).ok_or_else(|| serde::de::Error::custom("this is no sketch"))
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

    #[test]
    fn it_counts_hosts_and_not_messages() {
        for hosts in [0u32, 1, 10, 100, 1_000, 100_000] {
            let mut sketch = HostSketch::default();
            for host in 0..hosts {
                sketch.add(&format!("host-{host}"));
                sketch.add(&format!("host-{host}"));
            }
            let (counted, error) = (f64::from(sketch.hosts()), 1.0 + 0.25 * f64::from(hosts));
            assert!((counted - f64::from(hosts)).abs() <= error, "{hosts}: {counted}");
            let text = serde_json::to_string(&sketch).unwrap();
            assert_eq!(serde_json::from_str::<HostSketch>(&text).unwrap(), sketch);
        }
    }
}
