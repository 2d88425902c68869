// SPDX-License-Identifier: Apache-2.0
//! Programs that wait to be folded, by the host that reported them. Hosts take turns: the backlog of one
//! delays the others by one program each.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::time::Instant;

/// A program that is to be folded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitingProgram {
    /// `PROGRAM.ENVIRONMENT`.
    pub(crate) subject: String,
    /// Host that reported the program.
    pub(crate) host: String,
    /// Number of folds of the program in a row, since it was announced, that ended without an error.
    pub(crate) looks: usize,
}

/// Time at which a program is due. The number distinguishes programs that are due together.
type Due = (Instant, u64);

/// Programs of one host.
#[derive(Default, Debug)]
struct OfHost {
    by_due: BTreeMap<Due, (String, usize)>,
    due_of: HashMap<String, Due>,
}

/// Programs of all hosts that are to be folded.
#[derive(Default, Debug)]
pub(crate) struct WaitingPrograms {
    hosts: HashMap<String, OfHost>,
    /// Hosts with programs, the next one first.
    turns: VecDeque<String>,
    number: u64,
}

impl WaitingPrograms {
    /// Adds the program, or brings it forward. Beyond `most` programs of its host it is left out.
    pub(crate) fn add(&mut self, program: WaitingProgram, due: Instant, most: usize) {
        let WaitingProgram { subject, host, looks } = program;
        let of_host = self.hosts.entry(host.clone()).or_default();
        let known = of_host.due_of.remove(&subject);
        let (mut due, mut looks) = (due, looks);
        if let Some(known) = known {
            let before = of_host.by_due.remove(&known);
            (due, looks) = (due.min(known.0), before.map_or(looks, |(_, before)| before.min(looks)));
        } else if of_host.due_of.len() >= most {
            return;
        }
        if of_host.due_of.is_empty() && !self.turns.contains(&host) {
            self.turns.push_back(host);
        }
        self.number += 1;
        of_host.due_of.insert(subject.clone(), (due, self.number));
        of_host.by_due.insert((due, self.number), (subject, looks));
    }

    /// Whether no program waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The next program that is due, of the host whose turn it is.
    pub(crate) fn next(&mut self, now: Instant) -> Option<WaitingProgram> {
        for _ in 0..self.turns.len() {
            let host = self.turns.pop_front()?;
            let taken = self.hosts.get_mut(&host).and_then(|of_host| of_host.take(now));
            if self.hosts.get(&host).is_none_or(|of_host| of_host.due_of.is_empty()) {
                self.hosts.remove(&host);
            } else {
                self.turns.push_back(host.clone());
            }
            if let Some((subject, looks)) = taken {
                return Some(WaitingProgram { subject, host, looks });
            }
        }
        None
    }
}

impl OfHost {
    fn take(&mut self, now: Instant) -> Option<(String, usize)> {
        let entry = self.by_due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (subject, looks) = entry.remove();
        self.due_of.remove(&subject);
        Some((subject, looks))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn program(host: &str, subject: &str) -> WaitingProgram {
        WaitingProgram { subject: subject.to_owned(), host: host.to_owned(), looks: 0 }
    }

    #[test]
    fn a_flood_of_one_host_delays_another_by_one_program() {
        let (mut waiting, now) = (WaitingPrograms::default(), Instant::now());
        for number in 0..10_000 {
            waiting.add(program("liar", &number.to_string()), now, 100);
        }
        waiting.add(program("honest", "real"), now, 100);
        let order: Vec<String> = std::iter::from_fn(|| waiting.next(now)).map(|one| one.host).collect();
        assert!(order[..2].contains(&"honest".to_owned()), "{:?}", &order[..3]);
        assert_eq!(order.len(), 101, "beyond its number the liar's are left out");
        assert!(waiting.hosts.is_empty() && waiting.is_empty());
    }

    #[test]
    fn a_program_comes_when_it_is_due_and_once() {
        let (mut waiting, now) = (WaitingPrograms::default(), Instant::now());
        let later = now + Duration::from_secs(9);
        waiting.add(program("a", "p"), later, 9);
        assert!(waiting.next(now).is_none() && !waiting.is_empty());
        waiting.add(program("a", "p"), now, 9);
        assert_eq!(waiting.next(now), Some(program("a", "p")));
        assert_eq!(waiting.next(later), None);
    }
}
