// SPDX-License-Identifier: Apache-2.0
//! How fast the CPU is while a program runs on it: the CPU time of the same small work, again and again
//! during the run.
//!
//! In a virtual machine, and on a core with two hardware threads, what one CPU second does changes by half
//! from one second to the next with what the neighbours do, and no counter of ours shows it. Work that is
//! always the same does. Each look warms what it will use, so that what the program has just thrown out of
//! the caches is not counted as slowness of the CPU. It uses 1.5 % of the CPU; none of it is the program's
//! CPU time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use imas_core::pace::{Pace, PaceReading};
use nix::time::{ClockId, clock_gettime};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use crate::watcher::Watcher;

/// Time from the end of one look to the beginning of the next.
const GAP: Duration = Duration::from_millis(6);
/// On a large machine a few CPUs stand for all.
const MOST_CPUS: usize = 4;
/// Steps of the arithmetic: 8 chains side by side, about 8 µs on a machine of 2020.
const STEPS: u64 = 6_000;
/// Instructions that are interpreted, about 30 µs.
const INTERPRETED: usize = 3_000;
/// Number of steps before the timed ones.
const WARMING: u64 = 800;
/// The made-up program that is interpreted: bytes, a power of two.
const PROGRAM: usize = 4096;

/// Looks at CPUs until it is stopped.
#[derive(Debug)]
pub struct Meter(Vec<Watcher<Vec<PaceReading>>>);

impl Meter {
    /// Looks at this CPU; where there is none, at some of those that this process may use.
    #[must_use]
    pub fn start(cpu: Option<usize>) -> Self {
        let cpus = cpu.map_or_else(allowed, |cpu| vec![cpu]);
        Self(cpus.into_iter().map(|cpu| Watcher::start(move |stop| watch(cpu, stop))).collect())
    }

    /// Ends the looking; None when nothing was seen.
    #[must_use]
    pub fn stop(self) -> Option<Pace> {
        let looks: Vec<PaceReading> = self.0.into_iter().filter_map(Watcher::stop).flatten().collect();
        Pace::of(&looks)
    }
}

/// A few of the CPUs that this process may use, far apart.
fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![] };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    cpus.iter().copied().step_by(cpus.len().div_ceil(MOST_CPUS).max(1)).collect()
}

fn watch(cpu: usize, stop: &AtomicBool) -> Vec<PaceReading> {
    let mut only = CpuSet::new();
    only.set(cpu);
    if sched_setaffinity(None, &only).is_err() {
        return vec![]; // taken away meanwhile
    }
    let _ = setpriority_process(Some(gettid()), -20); // not allowed: looks come a little later then
    let work = Work::new();
    let mut looks = vec![];
    loop {
        looks.extend(work.look());
        std::thread::park_timeout(GAP);
        if stop.load(Ordering::Relaxed) {
            return looks;
        }
    }
}

/// The work, the same at every look.
struct Work {
    program: Vec<u8>,
}

impl Work {
    fn new() -> Self {
        let mut state = 1_u64;
        let byte = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        Self { program: (0..PROGRAM).map(byte).collect() }
    }

    /// None where there is no clock of CPU time.
    fn look(&self) -> Option<PaceReading> {
        // What the program did just before must not show: candidates differ in it.
        black_box(arithmetic(WARMING));
        black_box(self.interpret(INTERPRETED));
        let start = cpu_ns()?;
        black_box(arithmetic(STEPS));
        let calculated = cpu_ns()?;
        black_box(self.interpret(INTERPRETED));
        let interpreted = cpu_ns()?;
        Some(PaceReading { arithmetic_ns: calculated - start, branches_ns: interpreted - calculated })
    }

    /// Jumps that cannot be foreseen and loads that hit: what programs mostly do.
    fn interpret(&self, steps: usize) -> u64 {
        let mut memory = [0_u64; 16];
        let (mut at, mut sum) = (0_usize, 1_u64);
        for step in 0..steps as u64 {
            let code = self.program[at % PROGRAM];
            let slot = usize::from(code >> 4);
            match code % 12 {
                0 => sum = sum.wrapping_add(memory[slot]),
                1 => sum ^= sum >> 7,
                2 => memory[slot] = sum,
                3 => sum = sum.wrapping_mul(31),
                4 => sum = sum.wrapping_sub(step),
                5 => sum = sum.rotate_left(3),
                6 => memory[slot] = memory[slot].wrapping_add(step),
                7 if sum & 1 == 1 => sum = sum.wrapping_add(3),
                8 => sum ^= memory[(sum % 16) as usize],
                9 if sum & 8 == 8 => sum = sum.wrapping_sub(9),
                10 => sum = !sum,
                _ => sum = sum.wrapping_add(7),
            }
            at = at.wrapping_add(1 + (sum >> 4 & 1) as usize);
        }
        sum
    }
}

/// Chains that do not wait for each other: a neighbour on the same core takes their places.
fn arithmetic(steps: u64) -> u64 {
    let mut chains = [1_u64, 2, 3, 4, 5, 6, 7, 8];
    for step in 0..steps {
        chains[0] = chains[0].wrapping_mul(5).wrapping_add(step);
        chains[1] = chains[1].wrapping_mul(9).wrapping_add(step);
        chains[2] = (chains[2] << 1) ^ step;
        chains[3] = chains[3].wrapping_mul(3).wrapping_add(step);
        chains[4] = (chains[4] >> 1).wrapping_add(step);
        chains[5] = chains[5].wrapping_mul(5).wrapping_add(1);
        chains[6] = (chains[6] ^ step).wrapping_add(3);
        chains[7] = chains[7].wrapping_mul(9).wrapping_add(7);
    }
    chains.iter().fold(0, |sum, chain| sum ^ chain)
}

/// CPU time of this thread so far.
pub(crate) fn cpu_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    u64::try_from(Duration::from(time).as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_work_are_measured() {
        let pace = Meter::start(None).stop().unwrap();
        assert!(pace.looks >= 1);
        assert!(pace.arithmetic_ns > 100.0 && pace.branches_ns > 100.0, "{pace:?}");
    }

    #[test]
    fn a_cpu_that_is_not_there_has_no_pace() {
        assert_eq!(Meter::start(Some(CpuSet::MAX_CPU - 1)).stop(), None);
    }
}
