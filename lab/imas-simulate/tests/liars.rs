// SPDX-License-Identifier: Apache-2.0
//! Effects of lying hosts on the decisions of a fleet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::Settings;
use imas_simulate::fleet::{FleetOutcome, HostSpread, SimulatedFleet, simulate};
use imas_simulate::{SimulatedProgram, World};

const PROGRAMS: usize = 60;

fn programs() -> Vec<SimulatedProgram> {
    World { programs: PROGRAMS, rounds: 40, ..World::default() }.programs(7)
}

fn fleet(hosts: u32, liars: u32, seed: u64) -> SimulatedFleet {
    SimulatedFleet { hosts, liars, silent: 0, lies: true, spread: HostSpread::default(), w: 0.5, seed }
}

fn outcomes_of(plan: impl Fn(u64) -> SimulatedFleet) -> Vec<FleetOutcome> {
    let of = |(seed, program): (usize, &SimulatedProgram)| simulate(&plan(seed as u64), program).unwrap();
    programs().iter().enumerate().map(of).collect()
}

fn outcomes(hosts: u32, liars: u32, lies: bool) -> Vec<FleetOutcome> {
    outcomes_of(|seed| SimulatedFleet { lies, ..fleet(hosts, liars, seed) })
}

/// How many gains of at least the margin `after` lacks, and how many it has more.
fn moved(before: &[FleetOutcome], after: &[FleetOutcome]) -> (usize, usize) {
    let margin = Settings::default().margin(0.5);
    let count = |less: &[FleetOutcome], more: &[FleetOutcome]| {
        less.iter().zip(more).filter(|(less, more)| less.cost - more.cost > margin).count()
    };
    (count(after, before), count(before, after))
}

/// A liar who is compared with his silence changes two things: what the fleet knows at last, and which host tries what
/// when. The second is chance. So the same is printed for a liar who becomes an honest host, and for another seed of all
/// chance. Judged is what his messages change where all others stay the same; and that no pick is worse than `system`.
#[test]
fn one_liar_of_a_hundred_moves_no_more_than_chance_does() {
    let [silent, lied] = [false, true].map(|lies| outcomes(100, 1, lies));
    let honest = outcomes(100, 0, true);
    let other_seed = outcomes_of(|seed| fleet(100, 0, seed + 1_000_000));
    let by_messages = lied.iter().filter(|one| one.pick != one.pick_without_liars).count();
    let by_liar = moved(&silent, &lied);
    println!(
        "gains lost and won, of {PROGRAMS} programs: by the liar {by_liar:?}, by an honest host in his place {:?}, by another seed \
         {:?}; picks that his messages alone move: {by_messages}",
        moved(&silent, &honest),
        moved(&honest, &other_seed)
    );
    assert_eq!(lied.iter().filter(|one| one.cost > 0.0).count(), 0);
    assert!(by_liar.0 <= PROGRAMS / 20, "{by_liar:?}");
    assert!(by_messages <= PROGRAMS / 20, "{by_messages}");
}

#[test]
fn ten_liars_of_a_hundred_make_no_program_worse_than_system() {
    let margin = Settings::default().margin(0.5);
    for (hosts, liars) in [(100, 10), (2000, 200)] {
        let worse = outcomes(hosts, liars, true).iter().filter(|one| one.cost > margin).count();
        assert_eq!(worse, 0, "{hosts}");
    }
}

/// Few hosts, all of them honest: nobody is left out, and three groups are enough for a proof. A proof errs in five
/// of a hundred programs at most: how many became worse at all is printed, and none may by more than the margin. A
/// proof stays, so hosts that join later start with it.
#[test]
fn few_hosts_prove_gains_and_make_no_program_worse() {
    let margin = Settings::default().margin(0.5);
    for hosts in [3, 5, 9] {
        let all = outcomes(hosts, 0, false);
        let gained = all.iter().filter(|one| one.cost < 0.0).count();
        let worse: Vec<f64> = all.iter().map(|one| one.cost).filter(|cost| *cost > 0.0).collect();
        let lost = all.iter().filter(|one| one.lost_proofs > 0).count();
        println!(
            "{hosts} hosts: gains {gained} of {PROGRAMS} programs; worse by: {worse:?}; a proof was lost: {lost}"
        );
        assert!(worse.len() <= PROGRAMS / 20 && worse.iter().all(|cost| *cost <= margin), "{worse:?}");
        assert!(gained >= PROGRAMS / 4, "{hosts}: {gained}");
        assert!(lost <= PROGRAMS / 20, "{hosts}: {lost}");
    }
}
