// SPDX-License-Identifier: Apache-2.0
//! The machine's pressure as a weight between CPU and memory.

use serde::{Deserialize, Serialize};

use super::Objective;
use crate::conditions::Conditions;

/// A smaller change of weight is ignored: the pick must not follow every fluctuation.
const HYSTERESIS: f64 = 0.15;

/// How short the machine is of CPU and of memory, each from 0 (not at all) to 1, and the weight that follows.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Weight {
    /// Shortage of CPU.
    pub cpu: f64,
    /// Shortage of memory.
    pub memory: f64,
    /// Weight of CPU in the score, 0 (the leanest) to 1 (the fastest); 0.5 is balanced.
    pub w: f64,
}

/// Weight of CPU for these conditions. Unless the user sets an objective it is 1/2 + (cpu - memory) / 2. It
/// keeps its earlier value ([`Conditions::weight_before`]) until it has moved by 0.15 or reached 0 or 1.
pub fn weight(conditions: &Conditions, objective: Objective) -> Weight {
    let (cpu, memory) = (cpu_pressure(conditions), memory_pressure(conditions));
    let w = match objective {
        Objective::Cpu => 1.0,
        Objective::Memory => 0.0,
        Objective::Balanced => 0.5,
        Objective::Auto => damped(0.5 + (cpu - memory) / 2.0, conditions.weight_before),
    };
    Weight { cpu, memory, w }
}

fn damped(w: f64, before: Option<f64>) -> f64 {
    let is_end = w <= 0.0 || w >= 1.0;
    before
        .filter(|before| !is_end && (w - before).abs() < HYSTERESIS && (0.0..=1.0).contains(before))
        .unwrap_or(w)
}

/// 0 at `none`, 1 at `all`, linear in between.
fn ramp(x: f64, none: f64, all: f64) -> f64 {
    ((x - none) / (all - none)).clamp(0.0, 1.0)
}

/// Share of time in which a task waited for a CPU (PSI). Without PSI: the run queue per CPU, where it has
/// been long for minutes and still is.
fn cpu_pressure(c: &Conditions) -> f64 {
    let queue =
        c.running.map_or(c.load5, |running| c.load5.min(f64::from(running))) / f64::from(c.cpus.max(1));
    let stalled = c.cpu_some_pct.map_or(0.0, |pct| ramp(pct, 10.0, 50.0));
    stalled.max(ramp(queue, 0.75, 1.5))
}

/// Time lost to reclaim (PSI), little memory left on the machine, or in the control group.
fn memory_pressure(c: &Conditions) -> f64 {
    let some = c.memory_some_pct.map_or(0.0, |pct| ramp(pct, 1.0, 10.0));
    let full = c.memory_full_pct.map_or(0.0, |pct| ramp(pct, 0.5, 5.0));
    let left =
        c.mem_total_bytes.filter(|&total| total > 0).map(|total| c.mem_available_bytes as f64 / total as f64);
    let machine = left.map_or(0.0, |left| 1.0 - ramp(left, 0.05, 0.15));
    let group = c.group_memory_used.map_or(0.0, |used| ramp(used, 0.80, 0.95));
    some.max(full).max(machine).max(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Conditions {
        Conditions {
            cpus: 2,
            mem_available_bytes: 8 << 30,
            mem_total_bytes: Some(16 << 30),
            ..Conditions::default()
        }
    }

    fn w(change: impl FnOnce(&mut Conditions)) -> f64 {
        let mut conditions = idle();
        change(&mut conditions);
        weight(&conditions, Objective::Auto).w
    }

    #[test]
    fn each_pressure_moves_it() {
        assert_eq!(w(|_| ()), 0.5);
        assert_eq!(w(|c| c.cpu_some_pct = Some(60.0)), 1.0);
        assert_eq!(w(|c| c.load5 = 4.0), 1.0);
        assert_eq!(w(|c| (c.load5, c.running) = (4.0, Some(1))), 0.5, "the queue is over");
        assert_eq!(w(|c| c.memory_some_pct = Some(20.0)), 0.0);
        assert_eq!(w(|c| c.memory_full_pct = Some(20.0)), 0.0);
        assert_eq!(w(|c| c.mem_available_bytes = 1 << 28), 0.0);
        assert_eq!(w(|c| c.group_memory_used = Some(0.99)), 0.0);
        assert_eq!(w(|c| (c.load5, c.group_memory_used) = (9.0, Some(0.99))), 0.5, "both");
    }

    #[test]
    fn small_changes_are_damped_and_ends_are_reached() {
        assert_eq!(w(|c| (c.cpu_some_pct, c.weight_before) = (Some(20.0), Some(0.5))), 0.5);
        assert_eq!(w(|c| (c.cpu_some_pct, c.weight_before) = (Some(30.0), Some(0.5))), 0.75);
        assert_eq!(w(|c| c.weight_before = Some(0.6)), 0.6);
        assert_eq!(w(|c| (c.cpu_some_pct, c.weight_before) = (Some(90.0), Some(0.9))), 1.0);
        assert_eq!(w(|c| c.weight_before = Some(f64::NAN)), 0.5);
    }

    #[test]
    fn the_users_objective_stands_above() {
        let mut conditions = idle();
        conditions.load5 = 9.0;
        let of = |objective| weight(&conditions, objective).w;
        assert_eq!((of(Objective::Cpu), of(Objective::Memory), of(Objective::Balanced)), (1.0, 0.0, 0.5));
    }
}
