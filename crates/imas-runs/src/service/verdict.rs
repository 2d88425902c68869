// SPDX-License-Identifier: Apache-2.0
//! Verdicts of a comparison, as sentences for operators of services.

use imas_core::SYSTEM;
use imas_core::compare::{Answer, FEWEST_ROUNDS};
use imas_core::server_run::Better;
use imas_core::stats::Interval;

use crate::service::candidate_figures::{CandidateFigures, margin};
use crate::service::guard_rail::GuardRail;

/// Figures of a verdict and their names. Of latency and rate, the first that was measured is used.
const LATENCIES: [(&str, &str); 4] =
    [("p99", "p99"), ("p95", "p95"), ("mean", "mean latency"), ("rate", "rate")];

/// The verdict on one candidate.
pub(crate) fn of(one: &CandidateFigures, by_clock: bool) -> String {
    let runs = one.runs + one.failures.len();
    let failed =
        (!one.failures.is_empty()).then(|| format!("failed in {} of {runs} runs", one.failures.len()));
    if one.name == SYSTEM {
        return failed.map_or_else(|| "reference".to_owned(), |failed| format!("reference; {failed}"));
    }
    if one.rounds < FEWEST_ROUNDS {
        let few = format!("too few rounds ({}) to say", one.rounds);
        return failed.into_iter().chain(std::iter::once(few)).collect::<Vec<_>>().join(", ");
    }
    let latency = LATENCIES.iter().find(|(figure, _)| one.worse(figure).is_some());
    let part = |figure: &str, word: &str| {
        one.figures.get(figure).and_then(|found| found.ratio).map(|ratio| words(ratio, margin(figure), word))
    };
    let cpu = if by_clock { Some("CPU not comparable".to_owned()) } else { part("cpu", "CPU") };
    let latency = latency.and_then(|(figure, word)| part(figure, word));
    let memory = [part("memory_day", "memory over the day"), part("memory", "memory")];
    let parts =
        [failed].into_iter().chain(memory).chain([part("memory_idle", "after the pause"), cpu, latency]);
    let parts: Vec<String> = parts.flatten().collect();
    if parts.is_empty() { "not enough data".to_owned() } else { parts.join(", ") }
}

/// "31 % less memory", "same CPU", or that the difference is open.
fn words(ratio: Interval, margin: f64, what: &str) -> String {
    match Answer::by_interval(ratio, margin) {
        Answer::Better => return format!("{:.0} % less {what}", (1.0 - ratio.mid) * 100.0),
        Answer::Worse => return format!("{:.0} % more {what}", (ratio.mid - 1.0) * 100.0),
        Answer::NotShown => {}
    }
    if ratio.lo >= 1.0 - margin && ratio.hi <= 1.0 + margin {
        return format!("same {what}");
    }
    let percent = |x: f64| (x - 1.0) * 100.0;
    format!("{what} open ({:+.0} to {:+.0} %)", percent(ratio.lo), percent(ratio.hi))
}

/// A limit that a candidate is neither proven to break nor shown to keep. In `worse`, values above 1 are worse.
pub(crate) fn not_proven(rail: &GuardRail, worse: Interval, better: Better) -> String {
    let percent = |x: f64| (x - 1.0) * 100.0 + 0.0;
    let figure = if rail.figure == "cpu" { "CPU" } else { &rail.figure };
    let by = if better == Better::Lower { "" } else { " worse by" };
    let (mid, lo, hi) = (percent(worse.mid), percent(worse.lo), percent(worse.hi));
    let most = rail.percent();
    let end = match rail.allows(worse.lo) {
        true => format!("not shown to cost more than {most} %"),
        false => format!("likely to cost more than {most} %, but not proven"),
    };
    format!("{figure}{by} {mid:+.1} % [{lo:+.0}, {hi:+.0}]: {end}")
}

/// What is left open of a candidate, as further sentences.
fn unproven(one: &CandidateFigures) -> String {
    one.unproven.iter().map(|text| format!(" {text}.")).collect()
}

/// Why no run of these candidates counts: how many failed, and of what most of them did.
fn why_none<'a>(candidates: impl Iterator<Item = &'a CandidateFigures>) -> String {
    let failures: Vec<&str> =
        candidates.flat_map(|one| &one.failures).map(|failure| failure.what.as_str()).collect();
    let times = |what: &str| failures.iter().filter(|other| **other == what).count();
    let Some(most) = failures.iter().rev().max_by_key(|what| times(what)) else { return String::new() };
    let failed = match failures.len() {
        1 => "1 run failed".to_owned(),
        many => format!("{many} runs failed, {} so", times(most)),
    };
    format!(" ({failed}: {most})")
}

/// The verdict on all candidates.
pub(crate) fn sentence(candidates: &[CandidateFigures], pick: &str, rails: &[GuardRail]) -> String {
    let named = |name: &str| candidates.iter().find(|one| one.name == name);
    let within = || rails.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Some(system) = named(SYSTEM).filter(|system| system.rounds > 0) else {
        let why = why_none(candidates.iter().filter(|one| one.name == SYSTEM));
        return format!("Nothing can be compared: no run under system counts{why}.");
    };
    let all_others = || candidates.iter().filter(|one| one.name != SYSTEM);
    if all_others().all(|one| one.rounds == 0) {
        let why = why_none(all_others());
        let made = if system.runs == 1 { "1 run".to_owned() } else { format!("{} runs", system.runs) };
        return format!("Nothing can be compared: beside {made} under system none counts{why}.");
    }
    let mut others = all_others().filter(|one| one.rounds > 0).peekable();
    if others.peek().is_some() && others.all(|one| one.goal.is_none()) {
        return "No run beside system has the figure of the objective: nothing can be compared.".to_owned();
    }
    let nothing = match named(pick).filter(|one| one.name != SYSTEM) {
        Some(one) => return format!("`{pick}`: {}.{}", one.verdict, unproven(one)),
        None if rails.is_empty() => "Nothing here is proven better than system.".to_owned(),
        None => format!("Nothing here is proven better than system within {}.", within()),
    };
    let broken = candidates.iter().find(|one| one.is_better && !one.exceeds.is_empty());
    broken.map_or_else(
        || nothing.clone(),
        |one| format!("{nothing} `{}` breaks {}: {}.", one.name, one.exceeds.join(" and "), one.verdict),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_open_is_said_as_it_is() {
        let said = |rail: &str, (lo, mid, hi), better| {
            not_proven(&rail.parse().unwrap(), Interval { lo, mid, hi }, better)
        };
        assert_eq!(
            said("cpu+2%", (0.97, 1.011, 1.05), Better::Lower),
            "CPU +1.1 % [-3, +5]: not shown to cost more than 2 %"
        );
        assert_eq!(
            said("cpu+2%", (1.04, 1.1, 1.15), Better::Lower),
            "CPU +10.0 % [+4, +15]: likely to cost more than 2 %, but not proven"
        );
        assert_eq!(
            said("rate+7%", (0.98, 1.031, 1.09), Better::Higher),
            "rate worse by +3.1 % [-2, +9]: not shown to cost more than 7 %"
        );
    }

    #[test]
    fn verdicts_need_the_interval_and_the_margin() {
        let of = |lo, mid, hi| words(Interval { lo, mid, hi }, 0.05, "memory");
        assert_eq!(of(0.6, 0.69, 0.7), "31 % less memory");
        assert_eq!(of(1.2, 1.31, 1.4), "31 % more memory");
        assert_eq!(of(0.97, 1.0, 1.02), "same memory");
        assert_eq!(of(1.01, 1.03, 1.2), "memory open (+1 to +20 %)");
        assert_eq!(of(0.8, 0.9, 1.1), "memory open (-20 to +10 %)");
    }
}
