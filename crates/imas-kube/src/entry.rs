// SPDX-License-Identifier: Apache-2.0
//! The entry of a workload in the ConfigMap `imas`: `container=app jemalloc=20 glibc.lean-trim=20`.

use std::collections::BTreeMap;
use std::fmt;

/// What the pods of a workload get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The container that is meant; not needed where a pod has one.
    pub(crate) container: Option<String>,
    /// Whether the container's `envFrom` is known to set none of our variables.
    pub(crate) env_from: bool,
    /// Shares of the pods in per cent, by candidate.
    pub(crate) shares: BTreeMap<String, u8>,
    /// Candidates that were taken back after failures.
    pub(crate) withdrawn: Vec<String>,
}

impl Entry {
    /// Reads what of the words is understood, as the policy does.
    pub(crate) fn read(text: &str) -> Self {
        let mut entry = Self::default();
        for (key, value) in text.split(' ').filter_map(|word| word.split_once('=')) {
            match (key, value.parse()) {
                ("container", _) => entry.container = Some(value.to_owned()),
                ("env-from", _) => entry.env_from = value == "allowed",
                ("withdrawn", _) => entry.withdrawn.push(value.to_owned()),
                (candidate, Ok(share @ 0..=100)) => drop(entry.shares.insert(candidate.to_owned(), share)),
                _ => {}
            }
        }
        entry
    }

    /// Takes a candidate back.
    pub(crate) fn withdraw(&mut self, candidate: &str) {
        self.shares.remove(candidate);
        if !self.withdrawn.iter().any(|one| one == candidate) {
            self.withdrawn.push(candidate.to_owned());
        }
    }

    /// Gives all new pods this candidate.
    pub(crate) fn keep(&mut self, candidate: &str) {
        self.shares = [(candidate.to_owned(), 100)].into();
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = self.container.iter().map(|name| format!("container={name}"));
        let env_from = self.env_from.then(|| "env-from=allowed".to_owned());
        let shares = self.shares.iter().map(|(name, share)| format!("{name}={share}"));
        let withdrawn = self.withdrawn.iter().map(|name| format!("withdrawn={name}"));
        f.write_str(&container.chain(env_from).chain(shares).chain(withdrawn).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let text = "container=app env-from=allowed glibc.trim=20 jemalloc=100 withdrawn=mimalloc";
        let mut entry = Entry::read(text);
        assert_eq!(entry.to_string(), text);
        entry.withdraw("jemalloc");
        entry.withdraw("jemalloc");
        assert_eq!(
            entry.to_string(),
            "container=app env-from=allowed glibc.trim=20 withdrawn=mimalloc withdrawn=jemalloc"
        );
        entry.keep("glibc.trim");
        assert_eq!(entry.shares, BTreeMap::from([("glibc.trim".to_owned(), 100)]));
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        assert_eq!(Entry::read("x jemalloc=-1 jemalloc=101 jemalloc=300 =\n env-from=no"), Entry::default());
    }
}
