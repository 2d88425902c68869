// SPDX-License-Identifier: Apache-2.0
//! Content of the stream: programs, by the hosts that reported them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use anyhow::Result;
use futures_util::TryStreamExt as _;
use imas_fleet::merge::MOST_PROGRAMS;

use crate::jetstream::JetStreamBus;
use crate::names;

/// Aggregates of one host about one program.
#[derive(Debug)]
struct ListedReport {
    subject: String,
    /// Index of the host in [`Listing::hosts`].
    host: usize,
    count: usize,
}

/// All reports that the stream has, and their hosts.
#[derive(Default, Debug)]
pub(crate) struct Listing {
    reports: Vec<ListedReport>,
    /// Hosts, each with the number of programs that it reported.
    hosts: Vec<(String, usize)>,
}

impl Listing {
    /// Reads the listing from the server.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn read(bus: &JetStreamBus) -> Result<Self> {
        let stream = bus.context().get_stream_no_info(names::STREAM).await?;
        let mut listed = stream.info_with_subjects(format!("{}.>", names::AGGREGATES)).await?;
        let (mut listing, mut places) = (Self::default(), HashMap::new());
        while let Some((subject, count)) = listed.try_next().await? {
            if let Some((subject, host)) = names::program_and_host(&subject) {
                listing.add(&mut places, subject, host, count);
            }
        }
        Ok(listing)
    }

    fn add(&mut self, places: &mut HashMap<String, usize>, subject: String, host: String, count: usize) {
        let host = *places.entry(host).or_insert_with_key(|host| {
            self.hosts.push((host.clone(), 0));
            self.hosts.len() - 1
        });
        self.hosts[host].1 += 1;
        self.reports.push(ListedReport { subject, host, count });
    }

    /// Hosts that reported more programs than one host may, with their number.
    pub(crate) fn beyond_quota(&self) -> impl Iterator<Item = &(String, usize)> {
        self.hosts.iter().filter(|(_, programs)| *programs > MOST_PROGRAMS)
    }

    /// Programs that a host within its quota reported, each with the number of its aggregates by all hosts.
    /// Hosts take turns.
    pub(crate) fn programs(&self) -> Vec<(&str, usize)> {
        let mut counts: HashMap<&str, usize> = HashMap::with_capacity(self.reports.len());
        for report in &self.reports {
            *counts.entry(&report.subject).or_default() += report.count;
        }
        let within = self.reports.iter().filter(|report| self.hosts[report.host].1 <= MOST_PROGRAMS);
        let mut by_host: BTreeMap<usize, VecDeque<&str>> = BTreeMap::new();
        within.for_each(|report| by_host.entry(report.host).or_default().push_back(&report.subject));
        let mut programs = vec![];
        while !by_host.is_empty() {
            by_host.retain(|_, subjects| {
                let next = subjects.pop_front();
                programs.extend(next.and_then(|subject| Some((subject, counts.remove(subject)?))));
                !subjects.is_empty()
            });
        }
        programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(reports: &[(&str, &str)]) -> Listing {
        let (mut listing, mut places) = (Listing::default(), HashMap::new());
        reports.iter().for_each(|(host, subject)| {
            listing.add(&mut places, (*subject).to_owned(), (*host).to_owned(), 2);
        });
        listing
    }

    #[test]
    fn hosts_take_turns_and_each_program_comes_once() {
        let listing = listing(&[("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("b", "1")]);
        assert_eq!(listing.programs(), [("1", 4), ("4", 2), ("2", 2), ("3", 2)]);
    }

    #[test]
    fn of_a_host_beyond_its_quota_only_what_others_report_too_is_left() {
        let invented: Vec<String> = (0..=MOST_PROGRAMS).map(|number| format!("p{number}")).collect();
        let mut reports: Vec<(&str, &str)> = invented.iter().map(|subject| ("liar", &**subject)).collect();
        reports.extend(invented.iter().map(|subject| ("accomplice", &**subject)));
        reports.extend([("honest", "p7"), ("honest", "real")]);
        let listing = listing(&reports);
        assert_eq!(listing.programs(), [("p7", 6), ("real", 2)]);
        assert_eq!(listing.beyond_quota().count(), 2);
    }
}
