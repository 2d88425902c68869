// SPDX-License-Identifier: Apache-2.0
//! `imas-lab simulate --fleet`: simulated fleets learn the programs of a data set.
//!
//! Programs follow a Zipf law: the program of rank r runs on a share 1/r of the hosts. Each rank takes the
//! noise and the candidates of one of the data's programs.

use imas_core::adaptive::Settings;
use imas_simulate::SimulatedProgram;
use imas_simulate::fleet::{FleetOutcome, HostSpread, SimulatedFleet, simulate};

/// Sizes of the fleets.
const HOSTS: [u32; 6] = [1, 3, 10, 100, 1_000, 100_000];
/// Liars and silent hosts, per cent.
const TROUBLE: [(u32, u32); 4] = [(0, 0), (1, 0), (10, 0), (0, 10)];
/// Programs of a fleet.
const RANKS: u32 = 40;

/// One line of the table.
struct Line {
    hosts: u32,
    liars: u32,
    silent: u32,
    outcomes: Vec<(u32, FleetOutcome)>,
}

/// The table of all fleets.
pub(crate) fn page(programs: &[SimulatedProgram], w: f64, seed: u64) -> String {
    let head = [
        "hosts",
        "liars",
        "silent",
        "trials a host",
        "of first",
        "epochs",
        "in trial %",
        "worse",
        "gain %",
        "best %",
        "messages",
        "bytes",
        "statistics",
    ];
    let lines = HOSTS.iter().flat_map(|&hosts| TROUBLE.map(|trouble| (hosts, trouble)));
    let is_possible =
        |(hosts, (liars, silent)): &(u32, (u32, u32))| hosts * (liars + silent) >= 100 || liars + silent == 0;
    let lines = lines.filter(is_possible).map(|(hosts, trouble)| line(programs, hosts, trouble, w, seed));
    let table = imas_cli::table::plain(&head, lines.map(|line| row(&line, w)));
    format!(
        "{RANKS} programs by a Zipf law, noise and candidates of {} programs; weight of CPU {w:.2}, seed {seed}\n\n{table}\n\
         trials a host: starts in a trial for each program and honest host until settled; of first: those of the program that all\n\
         hosts run; epochs: starts of that program until then; in trial: greatest share of the hosts in a trial of it at a time;\n\
         worse: programs left worse than system by more than the margin; gain: score won by hosts that join then, best: with the best\n\
         candidate; messages, bytes: of all hosts together; statistics: bytes of the largest. Differences between hosts are\n\
         assumed (1 % CPU, 2 % memory); classes of CPUs are not, a class is a fleet of its own.\n",
        programs.len()
    )
}

fn line(programs: &[SimulatedProgram], hosts: u32, (liars, silent): (u32, u32), w: f64, seed: u64) -> Line {
    let ranks = (1..=RANKS).filter(|rank| hosts / rank > 0);
    let of = |rank: u32| {
        let hosts = hosts / rank;
        let plan = SimulatedFleet {
            hosts,
            liars: hosts * liars / 100,
            lies: true,
            silent: hosts * silent / 100,
            spread: HostSpread::default(),
            w,
            seed: seed + u64::from(rank),
        };
        let program = programs.get(rank as usize % programs.len().max(1))?;
        Some((hosts - plan.liars, simulate(&plan, program)?))
    };
    Line { hosts, liars, silent, outcomes: ranks.filter_map(of).collect() }
}

fn row(line: &Line, w: f64) -> Vec<String> {
    let margin = Settings::default().margin(w);
    let all = &line.outcomes;
    let places: f64 = all.iter().map(|(hosts, _)| f64::from(*hosts)).sum();
    let sum = |of: &dyn Fn(&FleetOutcome) -> f64| all.iter().map(|(_, one)| of(one)).sum::<f64>();
    let weighted = |of: &dyn Fn(&FleetOutcome) -> f64| {
        all.iter().map(|(hosts, one)| f64::from(*hosts) * of(one)).sum::<f64>() / places
    };
    let (first_hosts, first) = all.first().cloned().unwrap_or_default();
    let worse = all.iter().filter(|(_, one)| one.cost > margin).count();
    let percent = |log: f64| format!("{:.1}", 100.0 * imas_core::stats::saved(log));
    vec![
        line.hosts.to_string(),
        format!("{} %", line.liars),
        format!("{} %", line.silent),
        format!("{:.2}", sum(&|one| one.trials as f64) / places),
        format!("{:.3}", first.trials as f64 / f64::from(first_hosts)),
        first.epochs.to_string(),
        format!("{:.2}", 100.0 * first.busiest as f64 / f64::from(line.hosts)),
        format!("{worse} of {}", all.len()),
        percent(weighted(&|one| -one.cost)),
        percent(weighted(&|one| -one.best)),
        format!("{:.0}", sum(&|one| one.messages as f64)),
        format!("{:.0}", sum(&|one| one.bytes as f64)),
        all.iter().map(|(_, one)| one.statistics_bytes).max().unwrap_or(0).to_string(),
    ]
}
