// SPDX-License-Identifier: Apache-2.0
//! Conditions that make runs alike: one CPU, free memory that was touched before, and the pace of the CPU
//! meanwhile.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use imas_core::pace::{Pace, PaceReading};
use memmap2::{Advice, MmapMut};
use nix::time::{ClockId, clock_gettime};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use crate::host::room_bytes;
use crate::sampler::Watcher;

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
        // The program's work just before must not show: candidates differ in it.
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

// Keeping a run on one CPU.
//
// The CPUs of a virtual machine are not alike at any moment, for each has its own neighbours, and a move
// between them costs caches. A program that uses one at a time costs the same work wherever it runs, so its
// runs are the steadier for all being on the same (`imas doctor --noise` shows by how much). One that uses
// several must have them: what its allocator makes of that is what is measured.

/// While it exists, processes started by this thread begin on one CPU and stay there.
#[derive(Debug)]
pub struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    /// # Errors
    /// When this process may not use that CPU.
    pub fn keep(cpu: usize) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before); // it was allowed before
    }
}

/// The CPU to keep runs on: the last that this process may use, as the first serves most of the machine's
/// interrupts. None where there is only one: then all runs are on it anyway.
#[must_use]
pub fn steady_cpu() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next()?;
    cpus.next_back().filter(|&last| last != first)
}

// Prefaults free memory before a run is measured: touches it, so that the host provides it, and frees it.
//
// A virtual machine may give free memory back to its host (free page reporting, a balloon) some seconds
// after it was freed. The program that touches such memory first waits for the host, in its own CPU time and
// by chance: forty times as long for a huge page on the machine where this was found (docs/decisions/0015).
// So free memory is touched first and freed again, and the kernel hands that out before other. Where nothing
// is given back it costs less than half a second a gigabyte.

/// Bytes that every run is assumed to take beyond its heap.
const SPARE: u64 = 64 << 20;
/// Bytes that a program is assumed to take that was not seen yet.
const UNSEEN: u64 = 256 << 20;
/// Most of what is available that is taken for a moment: other processes need memory too.
const SHARE: u64 = 4;
/// More is not worth the wait before every run, whatever the program takes.
const MOST: u64 = 4 << 30;
/// The smallest page of any machine.
const PAGE: usize = 4096;
/// Pause before the touch that shows the cost: longer than the two seconds after which Linux reports free
/// pages.
const PAUSE: Duration = Duration::from_secs(3);
/// Bytes that are touched to see what it costs.
const LOOK: u64 = 64 << 20;

/// Cost of touching free memory for the first time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Touch {
    /// Bytes that were touched.
    pub bytes: u64,
    /// Seconds of CPU time: waiting for the host counts, being interrupted by another process does not.
    pub seconds: f64,
}

impl Touch {
    /// Seconds a GiB.
    #[must_use]
    pub fn s_per_gib(&self) -> f64 {
        self.seconds / self.bytes as f64 * (1_u64 << 30) as f64
    }
}

/// Bytes to touch for a program that took at most `peak_bytes` so far (0: not seen yet).
#[must_use]
pub fn enough_for(peak_bytes: u64) -> u64 {
    if peak_bytes == 0 { UNSEEN } else { peak_bytes.saturating_add(peak_bytes / 2).saturating_add(SPARE) }
}

/// Touches that amount of free memory, or a quarter of what this process may still take where that is less, 4
/// GiB at most, and frees it. None when there is none.
pub fn prefault(bytes: u64) -> Option<Touch> {
    touch_memory(bytes.min(MOST).min(room_bytes() / SHARE))
}

/// Touches a little free memory that had the time to go back to the host; takes three seconds. None when
/// there is none to be had.
#[must_use]
pub fn prefault_after_a_while() -> Option<Touch> {
    std::thread::sleep(PAUSE);
    prefault(LOOK)
}

fn touch_memory(bytes: u64) -> Option<Touch> {
    let length = usize::try_from(bytes).ok().filter(|&length| length >= PAGE)?;
    let mut memory = MmapMut::map_anon(length).ok()?;
    let _ = memory.advise(Advice::HugePage); // a kernel without them: small pages will do
    let start = cpu_ns()?;
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Some(Touch { bytes, seconds: (cpu_ns()? - start) as f64 / 1e9 })
}

#[cfg(test)]
mod tests {
    use imas_testing::skipped;

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

    #[test]
    fn children_stay_on_the_cpu_and_we_do_not() {
        let before = sched_getaffinity(None).unwrap();
        let Some(cpu) = steady_cpu() else { return skipped("one CPU is all there is") };
        let kept = OneCpu::keep(cpu).unwrap();
        let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        drop(kept);
        let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
        assert!(String::from_utf8_lossy(&status.stdout).contains(&allowed));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn one_and_a_half_times_the_memory_is_touched() {
        assert_eq!(enough_for(0), UNSEEN);
        assert_eq!(enough_for(100 << 20), (150 << 20) + SPARE);
        assert_eq!(enough_for(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_asked_size_is_touched_and_never_more_than_exists() {
        assert_eq!(prefault(0), None);
        let touch = prefault(1 << 20).unwrap();
        assert_eq!(touch.bytes, 1 << 20);
        assert!(touch.s_per_gib() > 0.0);
        assert_eq!(super::touch_memory(u64::MAX), None);
    }
}
