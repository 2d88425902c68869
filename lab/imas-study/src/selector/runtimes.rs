// SPDX-License-Identifier: Apache-2.0
//! Programs that ran under settings of their language runtime, runtime by runtime.

use std::collections::BTreeMap;

use imas_cli::table::Table;
use imas_core::candidate::SYSTEM;
use imas_linux::runtime::Runtime;

use super::Judged;
use super::judge::{Outcome, Outcomes};
use super::strategy::{Aim, Strategy};
use super::total::{Metric, signed, total, with_interval};

/// Table of what the picks gain for the programs of each runtime. None if no program ran under settings of one.
pub(crate) fn table(judged: &Judged) -> Option<Table> {
    let columns = [
        "runtime",
        "picks of adaptive",
        "programs",
        "of them with a pick",
        "CPU gain %, mean",
        "memory gain %, mean",
        "least gain of a program, of what is picked for, %",
    ];
    let title = "Programs under settings of their language runtime (95 % intervals)";
    let mut table = Table::new("runtimes", title, &columns);
    for runtime in Runtime::ALL {
        let is_of =
            |program: &usize| runtime_of(&judged.source.programs[*program].candidates) == Some(runtime);
        for (aim, metric) in Aim::ALL.into_iter().zip(Metric::OURS) {
            let strategy = Strategy::Adaptive(aim);
            let outcomes = judged.outcomes.get(&strategy).into_iter().flatten();
            let of_runtime: BTreeMap<usize, Outcome> =
                outcomes.filter(|(program, _)| is_of(program)).map(|(i, one)| (*i, one.clone())).collect();
            let only = Outcomes::from([(strategy, of_runtime)]);
            table.rows.extend(row(judged, runtime, (aim, metric), &only));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn row(
    judged: &Judged,
    runtime: Runtime,
    (aim, metric): (Aim, Metric),
    only: &Outcomes,
) -> Option<Vec<String>> {
    let strategy = Strategy::Adaptive(aim);
    let gain = |metric| total(only, &strategy, metric, judged.by).map(|total| total.mean);
    let outcomes: Vec<&Outcome> = only.values().flat_map(BTreeMap::values).collect();
    let least = outcomes.iter().filter_map(|one| metric.of(one)).max_by(f64::total_cmp)?;
    Some(vec![
        runtime.name().to_owned(),
        aim.name().to_owned(),
        outcomes.len().to_string(),
        outcomes.iter().filter(|one| is_picked(one)).count().to_string(),
        with_interval(&gain(Metric::Cpu)?),
        with_interval(&gain(Metric::Memory)?),
        signed(metric.gain(least)),
    ])
}

/// Whether most splits picked something else than the untouched program.
fn is_picked(outcome: &Outcome) -> bool {
    outcome.picks.iter().filter(|(name, _)| name == SYSTEM).all(|(_, share)| *share < 0.5)
}

/// The runtime for which one of a program's candidates is.
fn runtime_of(candidates: &[String]) -> Option<Runtime> {
    candidates.iter().find_map(|name| Runtime::of_candidate(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_of_the_runtime_whose_settings_it_ran_under() {
        let of =
            |candidates: &[&str]| runtime_of(&candidates.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&[SYSTEM, "glibc:lean", "jvm:serial"]), Some(Runtime::Jvm));
        assert_eq!(of(&[SYSTEM, "glibc:lean", "mimalloc"]), None);
    }
}
