// SPDX-License-Identifier: Apache-2.0
//! Prices of candidates in CPU time, as far as services were measured under them: advice without a trial has its price.
//!
//! `candidate-prices.json` is written by `imas-lab services prices`, from the raw runs in `lab/results`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use imas_linux::runtime::Runtime;
use imas_linux::serving::RealCandidates;
use serde::{Deserialize, Serialize};

use crate::live::memory_point::advised_candidate;

const SHIPPED: &str = include_str!("../candidate-prices.json");
/// Fewer services say nothing about another one.
const LEAST_SERVICES: u32 = 2;

/// The table as `imas-lab services prices` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Version of the shape: 1.
    pub schema: u32,
    /// The command that wrote it.
    pub source: String,
    /// A price for each candidate and kind of service.
    pub prices: Vec<CandidatePrice>,
}

/// Price of a candidate for one kind of service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidatePrice {
    /// Name in the catalogue.
    pub candidate: String,
    /// Language runtime of the services; None: compiled ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// Number of services that were measured under it.
    pub services: u32,
    /// Services that took more CPU time beyond the noise, and how much more, as a part of 1.
    pub paid: BTreeMap<String, f64>,
}

impl CandidatePrice {
    /// Whether enough services were measured and none of them paid.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.services >= LEAST_SERVICES && self.paid.is_empty()
    }

    /// The price as a clause: `7 of 21 measured compiled services took 6 to 25 % more CPU time`.
    fn words(&self) -> String {
        let all = format!("{} measured {}", self.services, kind(self.runtime));
        let percent = |of: fn(f64, f64) -> f64| self.paid.values().copied().reduce(of).unwrap_or(0.0) * 100.0;
        let (least, most) = (percent(f64::min), percent(f64::max));
        match self.paid.len() {
            0 => format!("none of {all} took more CPU time"),
            1 => format!("1 of {all} took {most:.0} % more CPU time"),
            some => format!("{some} of {all} took {least:.0} to {most:.0} % more CPU time"),
        }
    }
}

fn kind(runtime: Option<Runtime>) -> String {
    runtime
        .map_or_else(|| "compiled services".to_owned(), |runtime| format!("services of {}", runtime.name()))
}

static TABLE: LazyLock<Vec<CandidatePrice>> = LazyLock::new(|| {
    // The file is part of this program, and a test parses it.
    serde_json::from_str::<PriceTable>(SHIPPED).map(|table| table.prices).unwrap_or_default()
});

/// Price of a candidate for services of this runtime, or compiled ones. None where too few were measured.
#[must_use]
pub fn price(candidate: &str, runtime: Option<Runtime>) -> Option<&'static CandidatePrice> {
    let is_it = |one: &&CandidatePrice| one.candidate == candidate && one.runtime == runtime;
    TABLE.iter().find(is_it).filter(|one| one.services >= LEAST_SERVICES)
}

/// A restart that keeps fewer free pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvisedRestart<'a> {
    /// Name of the candidate.
    pub candidate: &'a str,
    /// Its price as far as it is known, as a clause.
    pub price: String,
    /// Nobody paid for it so far.
    pub is_free: bool,
}

/// The restart to advise for a process of this runtime whose glibc has so many arenas. None where there is one alone, and
/// where the catalogue has no such candidate.
#[must_use]
pub fn advised_restart(
    runtime: Option<Runtime>,
    arenas: u64,
    among: &RealCandidates,
) -> Option<AdvisedRestart<'_>> {
    let candidate = advised_candidate(among).filter(|_| arenas > 1)?;
    let price = price(candidate, runtime);
    Some(AdvisedRestart {
        candidate,
        price: price
            .map_or_else(|| format!("no {} were measured under it", kind(runtime)), CandidatePrice::words),
        is_free: price.is_some_and(CandidatePrice::is_free),
    })
}

#[cfg(test)]
mod tests {
    use imas_linux::catalogue::CatalogueCandidate;

    use super::*;

    #[test]
    fn the_shipped_table_is_read_and_has_the_services_that_pay() {
        let lean = price("glibc:lean", None).unwrap();
        assert!(lean.paid["mariadb"] > 0.2 && !lean.is_free(), "{lean:?}");
        assert!(price("glibc:arena1", None).is_some_and(CandidatePrice::is_free));
        assert_eq!(price("glibc:lean", Some(Runtime::Node)), None);
    }

    #[test]
    fn a_restart_is_advised_with_its_price_where_it_can_act() {
        let one_arena = CatalogueCandidate {
            name: "glibc:arena1".into(),
            allocator: "glibc".into(),
            environment: [("GLIBC_TUNABLES".to_owned(), "glibc.malloc.arena_max=1".to_owned())].into(),
            ..CatalogueCandidate::default()
        };
        let among = RealCandidates::of([&one_arena]);
        let compiled = advised_restart(None, 9, &among).unwrap();
        assert_eq!((compiled.candidate, compiled.is_free), ("glibc:arena1", true), "{compiled:?}");
        assert_eq!(advised_restart(None, 1, &among), None, "there is one arena already");
        let node = advised_restart(Some(Runtime::Node), 9, &among).unwrap();
        assert_eq!(
            (node.price.as_str(), node.is_free),
            ("no services of Node.js were measured under it", false)
        );
        assert_eq!(advised_restart(None, 9, &RealCandidates::default()), None);
    }

    #[test]
    fn a_price_is_a_clause() {
        let paid = |paid: &[(&str, f64)]| CandidatePrice {
            candidate: "glibc:lean".into(),
            runtime: Some(Runtime::Php),
            services: 3,
            paid: paid.iter().map(|(name, more)| ((*name).to_owned(), *more)).collect(),
        };
        assert_eq!(paid(&[]).words(), "none of 3 measured services of PHP took more CPU time");
        assert_eq!(paid(&[("a", 0.1)]).words(), "1 of 3 measured services of PHP took 10 % more CPU time");
        assert_eq!(
            paid(&[("a", 0.1), ("b", 0.25)]).words(),
            "2 of 3 measured services of PHP took 10 to 25 % more CPU time"
        );
    }
}
