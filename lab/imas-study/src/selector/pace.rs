// SPDX-License-Identifier: Apache-2.0
//! Checks whether a candidate changes the result of the CPU speed probe during its runs. It should not.

use std::collections::BTreeMap;

use imas_core::candidate::SYSTEM;
use imas_core::pace::Pace;
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::{bootstrap, more};

use super::Judged;
use super::total::{average, with_interval};
use imas_cli::table::Table;

/// The time of one kind of the probe's work, or of both, as a logarithm.
type Kind = fn(&Pace) -> Option<f64>;

const KINDS: [Kind; 3] =
    [|pace| Some(pace.arithmetic_ns.ln()), |pace| Some(pace.branches_ns.ln()), Pace::slowness];

/// Program and round.
type Place<'a> = (&'a str, u32);

/// The probe's time during the runs of each candidate, relative to that during `system` in the same round.
/// None if the runs have no pace.
pub(crate) fn table(judged: &Judged) -> Option<Table> {
    let mut paces: BTreeMap<&str, BTreeMap<Place<'_>, Pace>> = BTreeMap::new();
    for run in judged.source.data.runs.iter().filter(|run| run.ok && run.kind == RunKind::Measured) {
        let Some(pace) = run.pace else { continue };
        paces.entry(&run.candidate).or_default().insert(place(run), pace);
    }
    let system = paces.remove(SYSTEM)?;
    let columns = ["beside", "rounds", "arithmetic %", "jumps %", "both %"];
    let title = "Slowness of the CPU beside each candidate, over that beside system (95 % intervals); 0 is as it should be";
    let mut table = Table::new("pace", title, &columns);
    for (candidate, of) in &paces {
        let both = of.iter().filter_map(|(place, pace)| Some((place, (pace, system.get(place)?))));
        let both: BTreeMap<_, _> = both.collect();
        let cell = |kind: &Kind| over_system(judged, &both, *kind).unwrap_or_else(|| "-".to_owned());
        let head = [(*candidate).to_owned(), both.len().to_string()];
        table.push(head.into_iter().chain(KINDS.iter().map(cell)).collect());
    }
    Some(table)
}

fn place(run: &RawRun) -> Place<'_> {
    (&run.program, run.round)
}

/// Mean over the programs of the mean over their rounds.
fn over_system(judged: &Judged, both: &BTreeMap<&Place<'_>, (&Pace, &Pace)>, kind: Kind) -> Option<String> {
    let mut by_program: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((program, _), (one, system)) in both {
        let excess = kind(one).zip(kind(system)).map(|(one, system)| one - system);
        by_program.entry(program).or_default().extend(excess.filter(|excess| excess.is_finite()));
    }
    let means: Vec<f64> =
        by_program.values().filter_map(|excesses| average(excesses.iter().copied())).collect();
    let mean = |values: &[f64]| average(values.iter().copied()).map(|mean| more(mean) * 100.0);
    Some(with_interval(&bootstrap(&means, judged.by.resamples, judged.by.seed, mean)?))
}
