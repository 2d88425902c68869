// SPDX-License-Identifier: Apache-2.0
//! How much one host may send about one program in a day: more than that is forged, or a defect.
//!
//! Measured is what aggregates claim: each counts as its trials, at least as one. Who sends most is found in
//! a table of fixed size: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient computation of frequent and
//! top-k elements in data streams" (Space-Saving), ICDT 2005. A row knows by how much it may count too much,
//! and only what is certain counts against a host. So no honest host loses an aggregate because of others,
//! and a host gets through with at most [`MOST_OF_DAY`] trials and a 64th of all trials of the program that
//! day.
//!
//! The stream's clock gives the day, in the order of the stream: every merger comes to the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::aggregate::{Aggregate, CandidateAggregate};
use crate::group::hash;

/// Most trials (or aggregates without any) of one host about one program in a day. A host tries each
/// candidate at most eight times until it is settled, and then once a week. Its backlog of weeks without a
/// server arrives in one day.
pub const MOST_OF_DAY: u32 = 1000;
/// Rows of the table.
const ROWS: usize = 64;
/// Seconds of a day.
const DAY_S: u64 = 86_400;
/// Bytes of an encoded row.
const ENCODED: usize = 8;

/// Numbers of trials that hosts have sent about a program since the day began.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct SpentToday {
    /// Days since 1970.
    day: u32,
    by_host: SpentByHost,
}

/// Hosts that sent most, at most [`ROWS`], in the order in which they came in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct SpentByHost(Vec<Row>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    /// A hash of the host.
    host: u32,
    /// Trials that the host has sent. The number may be too high.
    count: u16,
    /// Trials by which `count` may be too high.
    surplus: u16,
}

impl SpentToday {
    /// Whether the host may send the aggregate now. If so, it counts as sent.
    pub(crate) fn allows(&mut self, aggregate: &Aggregate, at_unix_s: u64) -> bool {
        let day = u32::try_from(at_unix_s / DAY_S).unwrap_or(u32::MAX);
        // Clocks of servers differ: a day that is over does not come back.
        if day > self.day {
            (self.day, self.by_host) = (day, SpentByHost::default());
        }
        self.by_host.spend(&aggregate.host, trials(aggregate))
    }
}

/// Number of trials that an aggregate claims, at least one.
fn trials(aggregate: &Aggregate) -> u32 {
    let of = |one: &CandidateAggregate| one.pairs.count.saturating_add(one.void).saturating_add(one.crashes);
    aggregate.candidates.values().map(of).fold(0, u32::saturating_add).max(1)
}

impl SpentByHost {
    fn spend(&mut self, host: &str, trials: u32) -> bool {
        let [a, b, c, d, ..] = hash(&["rate", host]);
        let host = u32::from_le_bytes([a, b, c, d]);
        let known = self.0.iter().position(|row| row.host == host);
        let certain = known.map_or(0, |at| u32::from(self.0[at].count - self.0[at].surplus));
        let Some(trials) = u16::try_from(trials).ok().filter(|_| certain + trials <= MOST_OF_DAY) else {
            return false;
        };
        let at = known.unwrap_or_else(|| self.make_row(host));
        self.0[at].count = self.0[at].count.saturating_add(trials);
        true
    }

    /// A row for a new host: in a full table the row of the host with the smallest count, which stays as a
    /// surplus.
    fn make_row(&mut self, host: u32) -> usize {
        let smallest = (0..self.0.len()).min_by_key(|&at| self.0[at].count).filter(|_| self.0.len() >= ROWS);
        if let Some(at) = smallest {
            let count = self.0[at].count;
            self.0[at] = Row { host, count, surplus: count };
            return at;
        }
        self.0.push(Row { host, count: 0, surplus: 0 });
        self.0.len() - 1
    }
}

impl Row {
    fn encoded(self) -> [u8; ENCODED] {
        let ([a, b, c, d], [e, f], [g, h]) =
            (self.host.to_le_bytes(), self.count.to_le_bytes(), self.surplus.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }

    fn decoded([a, b, c, d, e, f, g, h]: [u8; ENCODED]) -> Option<Self> {
        let (host, count, surplus) =
            (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
        (surplus <= count).then_some(Self { host, count, surplus })
    }
}

impl Serialize for SpentByHost {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|row| row.encoded()).collect();
        to.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for SpentByHost {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        decoded(&text).ok_or_else(|| serde::de::Error::custom("these are no counts of hosts"))
    }
}

fn decoded(text: &str) -> Option<SpentByHost> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let (rows, rest) = bytes.as_chunks::<ENCODED>();
    let rows: Option<Vec<Row>> = rows.iter().map(|row| Row::decoded(*row)).collect();
    rows.filter(|rows| rest.is_empty() && rows.len() <= ROWS).map(SpentByHost)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_may_send_so_much_and_no_more() {
        let mut spent = SpentByHost::default();
        assert!(!spent.spend("a", MOST_OF_DAY + 1), "at once");
        assert!((0..MOST_OF_DAY).all(|_| spent.spend("a", 1)) && !spent.spend("a", 1));
        assert!(spent.spend("b", MOST_OF_DAY) && !spent.spend("b", 1));
        assert!(!spent.spend("c", u32::MAX));
    }

    #[test]
    fn of_many_hosts_none_loses_anything_and_a_flood_is_found_among_them() {
        let mut spent = SpentByHost::default();
        let mut through = 0;
        for round in 0..20_000 {
            assert!(spent.spend(&format!("host-{}", round % 5000), 1), "{round}");
            through += u32::from(spent.spend("flood", 1));
        }
        let all = 20_000 + through;
        assert!((MOST_OF_DAY..=MOST_OF_DAY + all / 64 + 1).contains(&through), "{through}");
        assert_eq!(spent.0.len(), ROWS);
    }

    proptest! {
        #[test]
        fn counts_read_back(sent in prop::collection::vec((0..200u32, 1..1200u32), 0..400)) {
            let mut spent = SpentToday { day: 7, ..SpentToday::default() };
            for (host, trials) in sent {
                spent.by_host.spend(&host.to_string(), trials);
            }
            let text = serde_json::to_string(&spent).unwrap();
            prop_assert!(text.len() < 750, "{}", text.len());
            prop_assert_eq!(serde_json::from_str::<SpentToday>(&text).unwrap(), spent);
        }

        #[test]
        fn any_text_is_refused_or_counts(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let text = format!("\"{}\"", STANDARD_NO_PAD.encode(bytes));
            if let Ok(mut spent) = serde_json::from_str::<SpentByHost>(&text) {
                spent.spend("a", 7);
                prop_assert!(spent.0.len() <= ROWS);
            }
        }
    }
}
