// SPDX-License-Identifier: Apache-2.0
//! Expectations of candidates for services, as far as services were measured under them: memory and CPU time, and who paid.
//! One order (docs/decisions/0059) for advice without a trial, `imas apply --auto`, the first trials of a service and the
//! first round of a bench of a server.
//!
//! `candidate-prices.json` is written by `imas-lab services prices`, from the raw runs in `lab/results`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use imas_core::compare::{CostLimits, smallest_difference};
use imas_core::server_bench::course::most_cost;
use imas_core::server_bench::{WORTH_OF_CPU, at_worth};
use imas_linux::runtime::Runtime;
use imas_linux::serving::RealCandidates;
use serde::{Deserialize, Serialize};

const SHIPPED: &str = include_str!("../candidate-prices.json");
/// Fewer services say nothing about another one.
const LEAST_SERVICES: u32 = 2;

/// The table as `imas-lab services prices` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Version of the shape: 2.
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
    /// Memory under load as a ratio to `system`: the mean of the logarithms of all services.
    pub memory: f64,
    /// CPU time likewise.
    pub cpu: f64,
    /// Services that took more CPU time beyond the noise, and how much more, as a part of 1.
    pub paid: BTreeMap<String, f64>,
}

impl CandidatePrice {
    /// Whether enough services were measured and none of them paid.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.services >= LEAST_SERVICES && self.paid.is_empty()
    }

    /// Whether no service paid as much as a pick may cost at most (docs/decisions/0038).
    fn keeps_limits(&self) -> bool {
        self.paid.values().all(|more| *more < CostLimits::USUAL.cpu)
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

/// Expectation of the candidate for a service of this runtime, or a compiled one: memory with CPU time at its worth, as a
/// ratio to `system`. Where too few of its kind were measured, the ratio of all services. None where too few of these were,
/// and where one paid more than a pick may cost.
#[must_use]
pub fn expectation(candidate: &str, runtime: Option<Runtime>) -> Option<f64> {
    let own = price(candidate, runtime);
    let all: Vec<&CandidatePrice> = match own {
        Some(own) => vec![own],
        None => TABLE.iter().filter(|one| one.candidate == candidate).collect(),
    };
    let services: u32 = all.iter().map(|one| one.services).sum();
    if services < LEAST_SERVICES || !all.iter().all(|one| one.keeps_limits()) {
        return None;
    }
    let log =
        |one: &&CandidatePrice| f64::from(one.services) * at_worth(one.memory, one.cpu, WORTH_OF_CPU).ln();
    Some((all.iter().map(log).sum::<f64>() / f64::from(services)).exp())
}

/// Key by which candidates are ordered: the best expectation first, the unknown ones last.
#[must_use]
pub fn rank(candidate: &str, runtime: Option<Runtime>) -> f64 {
    expectation(candidate, runtime).unwrap_or(f64::INFINITY)
}

/// The candidate with the best expectation, if by that it would stay in a bench. None where the catalogue has none.
#[must_use]
pub fn best_expected(runtime: Option<Runtime>, among: &RealCandidates) -> Option<&str> {
    let names = among.all().iter().filter(|one| one.runtime.is_none()).map(|one| one.name.as_str());
    let most = most_cost(smallest_difference("memory"));
    let ranked = names.map(|name| (rank(name, runtime), name)).filter(|(rank, _)| *rank < most);
    ranked.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
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

/// The restart to advise for a process of this runtime whose glibc has `arenas` arenas. None with a single arena, and
/// where the catalogue has no such candidate.
#[must_use]
pub fn advised_restart(
    runtime: Option<Runtime>,
    arenas: u64,
    among: &RealCandidates,
) -> Option<AdvisedRestart<'_>> {
    let candidate = best_expected(runtime, among).filter(|_| arenas > 1)?;
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
    fn the_best_expectation_is_of_its_kind_and_keeps_the_limits() {
        let named = |name: &str| CatalogueCandidate { name: name.into(), ..CatalogueCandidate::default() };
        let all = ["system", "glibc:lean", "glibc:arena1", "mimalloc"].map(named);
        let among = RealCandidates::of(&all);
        let best = |runtime| best_expected(runtime, &among);
        assert_eq!(expectation("glibc:lean", None), None, "mariadb paid as much as no pick may");
        assert_eq!((expectation("mimalloc", None), rank("mimalloc", None)), (None, f64::INFINITY));
        assert_eq!(best(None), Some("glibc:arena1"));
        assert_eq!(best(Some(Runtime::Cpython)), Some("glibc:arena1"));
        assert_eq!(best(Some(Runtime::Ruby)), Some("glibc:lean"), "none paid, and it saves more");
        assert_eq!(best(Some(Runtime::Php)), None, "nothing to gain");
        assert_eq!(
            best(Some(Runtime::Node)),
            Some("glibc:arena1"),
            "as all services: none of Node.js was measured"
        );
        assert_eq!(best_expected(None, &RealCandidates::of(&all[..2])), None);
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
            memory: 0.9,
            cpu: 1.0,
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
