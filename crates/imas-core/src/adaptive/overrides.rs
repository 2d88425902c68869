// SPDX-License-Identifier: Apache-2.0
//! Settings of the policy that the user overrides, as the configuration files of the command and of the
//! daemon have it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Objective, Settings};

/// Overrides for one program or for all; every one may be left out.
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// The objective.
    pub objective: Option<Objective>,
    /// Most resident memory in MiB.
    pub max_memory_mib: Option<u64>,
    /// Most CPU time of a pick over that of `system`: 0.25 is 25 % more.
    pub max_cpu: Option<f64>,
    /// Most memory of a pick over that of `system`: 0.25 is 25 % more.
    pub max_memory: Option<f64>,
    /// Smallest gain in CPU worth a change, a fraction.
    pub cpu_margin: Option<f64>,
    /// Smallest gain in memory worth a change, a fraction.
    pub memory_margin: Option<f64>,
}

impl Overrides {
    /// These overrides, and those of `other` where a setting is missing here.
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
/// identifies a program among those of one executable (`unit nginx.service`, `-m http.server`).
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

/// Overrides for the program of that path with that detail (script, module, unit). Those of the detail take
/// precedence over those of the path, and these over the general ones.
pub fn of_program(general: Overrides, by_program: &ByProgram, path: &str, detail: &str) -> Overrides {
    let of_name = |name: &str| by_program.get(name).copied().unwrap_or_default();
    let of_detail = if detail.is_empty() { Overrides::default() } else { of_name(detail) };
    of_detail.or(of_name(path)).or(general)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
