// SPDX-License-Identifier: Apache-2.0
//! Hosts that report more programs than a host may. The stream has room for all hosts together, and its oldest
//! aggregates go first: aggregates of such a host are removed before they displace others'.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Time between two removals of one host's aggregates. At 50,000 a second, twice that number is in the
/// stream.
const BETWEEN: Duration = Duration::from_secs(1);
/// Time until the next removal after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Hosts that report too many programs, with the time from which on their aggregates may be removed again.
#[derive(Default, Debug)]
pub(crate) struct Floods(BTreeMap<String, FloodOfHost>);

#[derive(Debug)]
struct FloodOfHost {
    from: Instant,
    /// The host has sent more since the last removal.
    goes_on: bool,
}

impl Floods {
    /// The host has sent an aggregate beyond its number of programs. Whether that is new of it.
    pub(crate) fn note(&mut self, host: &str, now: Instant) -> bool {
        if let Some(known) = self.0.get_mut(host) {
            known.goes_on = true;
            return false;
        }
        self.0.insert(host.to_owned(), FloodOfHost { from: now, goes_on: true });
        true
    }

    /// Hosts whose aggregates are to be removed now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.iter_mut().filter(|(_, flood)| flood.goes_on && flood.from <= now);
        let taken = due.map(|(host, flood)| {
            *flood = FloodOfHost { from: now + BETWEEN, goes_on: false };
            host.clone()
        });
        taken.collect()
    }

    /// Whether aggregates of a host are to be removed, now or later.
    pub(crate) fn go_on(&self) -> bool {
        self.0.values().any(|flood| flood.goes_on)
    }

    /// A removal has failed.
    pub(crate) fn failed(&mut self, host: &str, now: Instant) {
        if let Some(flood) = self.0.get_mut(host) {
            *flood = FloodOfHost { from: now + AFTER_FAILURE, goes_on: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_floods_with_is_removed_at_intervals_while_it_goes_on() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        assert!(floods.note("liar", now) && !floods.note("liar", now));
        assert_eq!((floods.go_on(), floods.due(now)), (true, vec!["liar".to_owned()]));
        assert!(floods.due(now + BETWEEN).is_empty() && !floods.go_on(), "it has sent nothing since");
        floods.note("liar", now);
        assert!(floods.due(now).is_empty(), "too soon");
        assert_eq!(floods.due(now + BETWEEN), ["liar"]);
        floods.failed("liar", now);
        assert!(floods.go_on());
        assert!(floods.due(now + BETWEEN).is_empty());
        assert_eq!(floods.due(now + AFTER_FAILURE), ["liar"]);
    }
}
