// SPDX-License-Identifier: Apache-2.0
//! What lying hosts can do to the decisions of a fleet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::Settings;
use imas_core::simulate::{SimulatedProgram, World};
use imas_fleet::simulation::{FleetOutcome, SimulatedFleet, Spread, simulate};

const PROGRAMS: usize = 60;

fn programs() -> Vec<SimulatedProgram> {
    World { programs: PROGRAMS, rounds: 40, ..World::default() }.programs(7)
}

fn fleet(hosts: u32, liars: u32, seed: u64) -> SimulatedFleet {
    SimulatedFleet { hosts, liars, silent: 0, lies: true, spread: Spread::default(), w: 0.5, seed }
}

fn outcomes(hosts: u32, liars: u32, lies: bool) -> Vec<FleetOutcome> {
    let of = |(seed, program): (usize, &SimulatedProgram)| {
        simulate(&SimulatedFleet { lies, ..fleet(hosts, liars, seed as u64) }, program).unwrap()
    };
    programs().iter().enumerate().map(of).collect()
}

/// Compared with the same fleet whose liar is silent. A decision is moved where its cost rises by more than the margin.
#[test]
fn one_liar_of_a_hundred_moves_no_decision() {
    let margin = Settings::default().margin(0.5);
    let (honest, lied) = (outcomes(100, 1, false), outcomes(100, 1, true));
    let moved = honest.iter().zip(&lied).filter(|(a, b)| b.cost - a.cost > margin).count();
    let renamed = honest.iter().zip(&lied).filter(|(a, b)| a.pick != b.pick).count();
    println!("moved {moved}, renamed {renamed} of {PROGRAMS}");
    assert_eq!(moved, 0);
}

#[test]
fn ten_liars_of_a_hundred_make_no_program_worse_than_system() {
    let margin = Settings::default().margin(0.5);
    for (hosts, liars) in [(100, 10), (2000, 200)] {
        let worse = outcomes(hosts, liars, true).iter().filter(|one| one.cost > margin).count();
        assert_eq!(worse, 0, "{hosts}");
    }
}
