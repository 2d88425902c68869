// SPDX-License-Identifier: Apache-2.0
//! What lying hosts can do to the decisions of a fleet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::Settings;
use imas_core::simulate::{SimulatedProgram, World};
use imas_fleet::simulation::{FleetOutcome, HostSpread, SimulatedFleet, simulate};

const PROGRAMS: usize = 60;

fn programs() -> Vec<SimulatedProgram> {
    World { programs: PROGRAMS, rounds: 40, ..World::default() }.programs(7)
}

fn fleet(hosts: u32, liars: u32, seed: u64) -> SimulatedFleet {
    SimulatedFleet { hosts, liars, silent: 0, lies: true, spread: HostSpread::default(), w: 0.5, seed }
}

fn outcomes(hosts: u32, liars: u32, lies: bool) -> Vec<FleetOutcome> {
    let of = |(seed, program): (usize, &SimulatedProgram)| {
        simulate(&SimulatedFleet { lies, ..fleet(hosts, liars, seed as u64) }, program).unwrap()
    };
    programs().iter().enumerate().map(of).collect()
}

/// Compared with the same fleet whose liar is silent. He brings about no pick that is worse than `system`. He can
/// delay or prevent the proof of a gain near the margin: how often is printed, and docs/decisions/0032 says so.
#[test]
fn one_liar_of_a_hundred_makes_no_program_worse() {
    let margin = Settings::default().margin(0.5);
    let (silent, lied) = (outcomes(100, 1, false), outcomes(100, 1, true));
    let moved = silent.iter().zip(&lied).filter(|(a, b)| b.cost - a.cost > margin).count();
    println!("gains not proven because of the liar: {moved} of {PROGRAMS}");
    assert_eq!(lied.iter().filter(|one| one.cost > 0.0).count(), 0);
}

#[test]
fn ten_liars_of_a_hundred_make_no_program_worse_than_system() {
    let margin = Settings::default().margin(0.5);
    for (hosts, liars) in [(100, 10), (2000, 200)] {
        let worse = outcomes(hosts, liars, true).iter().filter(|one| one.cost > margin).count();
        assert_eq!(worse, 0, "{hosts}");
    }
}

/// Few hosts, all of them honest: none is left out, and three groups are enough for a proof.
#[test]
fn few_hosts_make_no_program_worse() {
    let margin = Settings::default().margin(0.5);
    for hosts in [3, 4, 5, 6, 8, 12] {
        let mut all = vec![];
        for s in 0..5 {
            let programs = World { programs: PROGRAMS, rounds: 40, ..World::default() }.programs(100 + s);
            for (seed, program) in programs.iter().enumerate() {
                all.push(
                    simulate(&SimulatedFleet { lies: false, ..fleet(hosts, 0, seed as u64) }, program)
                        .unwrap(),
                );
            }
        }
        let worse = all.iter().filter(|one| one.cost > margin).count();
        let costs = all.iter().filter(|one| one.cost > 0.0).count();
        let gained = all.iter().filter(|one| one.cost < 0.0).count();
        let possible = all.iter().filter(|one| one.best < -margin).count();
        let trials: u64 = all.iter().map(|one| one.trials).sum();
        println!(
            "{hosts} hosts: {gained} gains (possible {possible}), worse {worse}, any cost {costs}, trials a host {:.1}",
            trials as f64 / f64::from(hosts) / all.len() as f64
        );
    }
}
