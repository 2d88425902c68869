// SPDX-License-Identifier: Apache-2.0
//! The user's settings, what overrides them for one program, and the weight between CPU and memory that follows from
//! them and from the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compare::{CostLimits, Margins};
use crate::history::Conditions;

/// Resource that the user optimises for.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Whatever the machine is short of; both equally when it is short of neither.
    #[default]
    Auto,
    /// CPU time alone: the fastest.
    Cpu,
    /// Memory alone: the leanest.
    Memory,
    /// CPU and memory equally, whatever the machine's conditions.
    Balanced,
}

/// Settings of the policy. Margins are given as fractions (0.02 = 2 %) and applied as differences of
/// logarithms.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(default)]
pub struct Settings {
    /// Smallest gain in CPU time worth a change.
    pub cpu_margin: f64,
    /// Smallest gain in memory worth a change.
    pub memory_margin: f64,
    /// Most CPU time of a pick beyond the time of `system`: 0.25 is 25 % more.
    pub max_cpu: f64,
    /// Most memory of a pick beyond the memory of `system`: 0.25 is 25 % more.
    pub max_memory: f64,
    /// Confidence with which the incumbent must be beaten, over all candidates and all looks.
    pub confidence: f64,
    /// Least number of rounds before a candidate may replace the incumbent.
    pub min_rounds: u32,
    /// Greatest number of rounds; the answer is then the best known one.
    pub max_rounds: u32,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The objective.
    pub objective: Objective,
    /// Limit of the peak of resident memory, bytes. A candidate that exceeded it is not used. None: no limit.
    pub max_memory_bytes: Option<u64>,
    /// Trials older than this no longer count, seconds.
    pub max_age_s: f64,
    /// Interval of retests in seconds. Once the answer is settled, one round of the pick and `system` follows
    /// after each interval, to notice when the pick has become worse.
    pub watch_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        const DAY_S: f64 = 24.0 * 3600.0;
        Self {
            cpu_margin: Margins::USUAL.cpu,
            memory_margin: Margins::USUAL.memory,
            max_cpu: CostLimits::USUAL.cpu,
            max_memory: CostLimits::USUAL.memory,
            confidence: 0.95,
            min_rounds: 2,
            max_rounds: 8,
            seed: 1,
            objective: Objective::Auto,
            max_memory_bytes: None,
            max_age_s: 90.0 * DAY_S,
            watch_s: 7.0 * DAY_S,
        }
    }
}

impl Settings {
    /// Smallest gain in score that is worth a change at weight `w` of CPU: the cpu margin at 1, the memory
    /// margin at 0. In between, each margin counts with its axis' weight (w ln(1 + m)), and the weighted mean
    /// of both is taken.
    pub fn margin(&self, w: f64) -> f64 {
        let v = 1.0 - w;
        w * w * self.cpu_margin.ln_1p() + v * v * self.memory_margin.ln_1p()
    }
}

// Settings of the policy that the user overrides, as the configuration files of the command and of the
// daemon have it.

/// Overrides for one program or for all; every one may be left out.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// The objective.
    pub objective: Option<Objective>,
    /// Most resident memory in MiB.
    pub max_memory_mib: Option<u64>,
    /// Most CPU time of a pick beyond the time of `system`: 0.25 is 25 % more.
    pub max_cpu: Option<f64>,
    /// Most memory of a pick beyond the memory of `system`: 0.25 is 25 % more.
    pub max_memory: Option<f64>,
    /// Smallest gain in CPU worth a change, a fraction.
    pub cpu_margin: Option<f64>,
    /// Smallest gain in memory worth a change, a fraction.
    pub memory_margin: Option<f64>,
}

impl Overrides {
    /// Returns these overrides, with the ones of `other` where a setting is missing here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            objective: self.objective.or(other.objective),
            max_memory_mib: self.max_memory_mib.or(other.max_memory_mib),
            max_cpu: self.max_cpu.or(other.max_cpu),
            max_memory: self.max_memory.or(other.max_memory),
            cpu_margin: self.cpu_margin.or(other.cpu_margin),
            memory_margin: self.memory_margin.or(other.memory_margin),
        }
    }

    /// Settings of the policy with these overrides.
    pub fn settings(self) -> Settings {
        let usual = Settings::default();
        Settings {
            objective: self.objective.unwrap_or(usual.objective),
            max_memory_bytes: self.max_memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
            max_cpu: self.max_cpu.unwrap_or(usual.max_cpu),
            max_memory: self.max_memory.unwrap_or(usual.max_memory),
            cpu_margin: self.cpu_margin.unwrap_or(usual.cpu_margin),
            memory_margin: self.memory_margin.unwrap_or(usual.memory_margin),
            ..usual
        }
    }

    /// Checks the values: a margin is from 0 to below 1, a memory limit is one that a program can keep.
    ///
    /// # Errors
    /// The faulty setting and its bounds.
    pub fn check(self) -> Result<(), String> {
        let margins = [("cpu_margin", self.cpu_margin), ("memory_margin", self.memory_margin)];
        for (name, margin) in margins {
            if margin.is_some_and(|margin| !(0.0..1.0).contains(&margin)) {
                return Err(format!("{name}: must be from 0 to below 1 (0.02 is 2 %)"));
            }
        }
        for (name, most) in [("max_cpu", self.max_cpu), ("max_memory", self.max_memory)] {
            if most.is_some_and(|most| !(0.0..=1000.0).contains(&most)) {
                return Err(format!("{name}: must be from 0 to 1000 (0.25 is 25 % more than system)"));
            }
        }
        match self.max_memory_mib {
            Some(0) => Err("max_memory_mib: at least 1, or leave it out".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Overrides by program. The key is the absolute path of an executable or a script, or the detail that
/// identifies a program among the programs of one executable (`unit nginx.service`, `-m http.server`).
pub type ByProgram = BTreeMap<String, Overrides>;

/// Checks the general overrides and those by program.
///
/// # Errors
/// The faulty setting; or a key that can name no program, which would never take effect.
pub fn check(general: Overrides, by_program: &ByProgram) -> Result<(), String> {
    general.check()?;
    for (name, overrides) in by_program {
        if !["/", "unit ", "-"].iter().any(|start| name.starts_with(start)) {
            return Err(format!(
                "[program.'{name}']: a program is named by its whole path, such as '/usr/bin/{name}', or by what tells it apart, such as 'unit {name}.service'"
            ));
        }
        overrides.check().map_err(|why| format!("[program.'{name}']: {why}"))?;
    }
    Ok(())
}

/// Overrides for the program of that path with that detail (script, module, unit). The detail's overrides
/// take precedence over the path's, and these over the general ones.
pub fn of_program(general: Overrides, by_program: &ByProgram, path: &str, detail: &str) -> Overrides {
    let of_name = |name: &str| by_program.get(name).copied().unwrap_or_default();
    let of_detail = if detail.is_empty() { Overrides::default() } else { of_name(detail) };
    of_detail.or(of_name(path)).or(general)
}

// The machine's pressure as a weight between CPU and memory.

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

    #[test]
    fn margins_of_the_corners_and_the_middle() {
        let settings = Settings::default();
        assert!((settings.margin(1.0) - 1.02f64.ln()).abs() < 1e-12);
        assert!((settings.margin(0.0) - 1.05f64.ln()).abs() < 1e-12);
        assert!((settings.margin(0.5) - (1.02f64.ln() + 1.05f64.ln()) / 4.0).abs() < 1e-12);
    }

    fn memory(mib: u64) -> Overrides {
        Overrides { max_memory_mib: Some(mib), ..Overrides::default() }
    }

    #[test]
    fn the_closest_override_wins_setting_by_setting() {
        let general = Overrides { objective: Some(Objective::Memory), ..memory(100) };
        let by_program = ByProgram::from([
            ("/usr/bin/python3.11".to_owned(), memory(200)),
            ("/srv/app.py".to_owned(), Overrides { objective: Some(Objective::Cpu), ..Overrides::default() }),
        ]);
        let of = |path, detail| of_program(general, &by_program, path, detail).settings();
        let app = of("/usr/bin/python3.11", "/srv/app.py");
        assert_eq!((app.objective, app.max_memory_bytes), (Objective::Cpu, Some(200 << 20)));
        assert_eq!(of("/usr/bin/python3.11", "").objective, Objective::Memory);
        assert_eq!(of("/usr/bin/perl", "/srv/app.pl").max_memory_bytes, Some(100 << 20));
    }

    #[test]
    fn an_override_that_could_never_take_effect_is_an_error() {
        let named = |name: &str, overrides| {
            check(Overrides::default(), &ByProgram::from([(name.to_owned(), overrides)]))
        };
        assert!(named("sqlite3", memory(1)).unwrap_err().contains("'/usr/bin/sqlite3'"));
        for good in ["/usr/bin/sqlite3", "unit nginx.service", "-m http.server"] {
            assert_eq!(named(good, memory(1)), Ok(()));
        }
        assert!(named("/bin/x", memory(0)).unwrap_err().contains("[program.'/bin/x']: max_memory_mib"));
        assert!(check(Overrides { max_cpu: Some(-0.1), ..memory(1) }, &ByProgram::new()).is_err());
        assert!(check(Overrides { cpu_margin: Some(f64::NAN), ..memory(1) }, &ByProgram::new()).is_err());
        assert!(check(Overrides { memory_margin: Some(2.0), ..memory(1) }, &ByProgram::new()).is_err());
    }

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
