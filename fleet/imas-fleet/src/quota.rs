// SPDX-License-Identifier: Apache-2.0
//! How many programs one host may report. A real host has hundreds; one that invents programs would make
//! mergers fold them and the bucket keep them without end.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

/// Programs of one host in a day, and in what the stream keeps.
pub const MOST_PROGRAMS: usize = 4096;
const DAY_S: u64 = 86_400;

/// The programs that each host reported today.
#[derive(Default, Debug)]
pub struct ProgramQuota {
    day: u64,
    state: RandomState,
    by_host: HashMap<String, HashSet<u64>>,
}

impl ProgramQuota {
    /// Whether the host may report this program now: it did so today, or has room for one more.
    pub fn allows(&mut self, host: &str, subject: &str, now_unix_s: u64) -> bool {
        let day = now_unix_s / DAY_S;
        if day != self.day {
            self.by_host.clear();
            self.day = day;
        }
        let program = self.state.hash_one(subject);
        let programs = match self.by_host.get_mut(host) {
            Some(programs) => programs,
            None => self.by_host.entry(host.to_owned()).or_default(),
        };
        programs.contains(&program) || (programs.len() < MOST_PROGRAMS && programs.insert(program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reports_so_many_programs_a_day_and_others_keep_theirs() {
        let mut quota = ProgramQuota::default();
        let mut count = |host: &str, from: usize, day: u64| {
            let all = (from..from + 2 * MOST_PROGRAMS).map(|number| number.to_string());
            all.filter(|program| quota.allows(host, program, day * DAY_S)).count()
        };
        assert_eq!(count("liar", 0, 1), MOST_PROGRAMS);
        assert_eq!(count("liar", 0, 1), MOST_PROGRAMS, "those of before");
        assert_eq!(count("liar", 1_000_000, 1), 0);
        assert_eq!(count("honest", 0, 1), MOST_PROGRAMS);
        assert_eq!(count("liar", 1_000_000, 2), MOST_PROGRAMS);
    }
}
