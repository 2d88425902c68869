// SPDX-License-Identifier: Apache-2.0
//! Whether a candidate is to blame for another output than that of `system`: not where `system` itself writes
//! now this, now that.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::candidate::SYSTEM;
use crate::output_check::OutputCheck;

/// Two runs under `system` wrote different things: no candidate is to blame for another output of this
/// program, in lines before this one or after it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct OutputVaries {
    /// Name of the program.
    pub output_varies: String,
    /// Time when that was seen, seconds since the epoch.
    #[serde(default)]
    pub at_s: f64,
}

/// Why a run does not count whose output is not that of `system`; nothing where [`Varying`].
pub const OTHER_OUTPUT: &str = "output";

/// Reads files of runs line by line and knows the programs whose output varies: a line states it
/// ([`OutputVaries`]), or two runs of `system` in one file that count wrote different things. The latter
/// alone decides in files from before there were such lines.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Varying {
    programs: BTreeSet<String>,
    /// Outputs of `system` in this file. The keys are names of programs.
    checks: BTreeMap<String, OutputCheck>,
}

impl Varying {
    /// Begins another file. On another machine a program may well write something else, and the same each
    /// time.
    pub fn begin_file(&mut self) {
        self.checks.clear();
    }

    /// Records that the output of a program varies.
    pub fn record(&mut self, line: OutputVaries) {
        self.programs.insert(line.output_varies);
    }

    /// Notes the output of a run that counts, as a digest; None where it was not recorded.
    pub fn saw(&mut self, program: &str, candidate: &str, output: Option<&str>) {
        let Some(output) = output.filter(|_| candidate == SYSTEM) else { return };
        if self.checks.entry(program.to_owned()).or_default().see(output) {
            self.programs.insert(program.to_owned());
        }
    }

    /// Whether the program's output varies.
    #[must_use]
    pub fn contains(&self, program: &str) -> bool {
        self.programs.contains(program)
    }

    /// Marks a run of the program as `ok`, and removes its `why`, if all that failed was its output. Whether
    /// it did.
    pub fn accept(&self, program: &str, ok: &mut bool, why: &mut Option<String>) -> bool {
        let is_blamed = why.as_deref() == Some(OTHER_OUTPUT) && self.contains(program);
        if is_blamed {
            (*ok, *why) = (true, None);
        }
        is_blamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_system_show_which_program_varies() {
        let mut varying = Varying::default();
        varying.saw("steady", SYSTEM, Some("1"));
        varying.saw("steady", "a", Some("2"));
        varying.saw("steady", SYSTEM, None);
        varying.saw("varies", SYSTEM, Some("1"));
        varying.saw("varies", SYSTEM, Some("2"));
        varying.begin_file();
        varying.saw("steady", SYSTEM, Some("3"));
        varying.record(OutputVaries { output_varies: "told".into(), at_s: 1.0 });
        let of = |name| varying.contains(name);
        assert_eq!([of("steady"), of("varies"), of("told"), of("unknown")], [false, true, true, false]);
    }

    #[test]
    fn only_rejections_for_the_output_are_withdrawn() {
        let mut varying = Varying::default();
        varying.record(OutputVaries { output_varies: "p".into(), at_s: 1.0 });
        for (program, why, is_accepted) in
            [("p", "output", true), ("p", "crash", false), ("q", "output", false)]
        {
            let mut run = (false, Some(why.to_owned()));
            assert_eq!(varying.accept(program, &mut run.0, &mut run.1), is_accepted);
            assert_eq!(run, if is_accepted { (true, None) } else { (false, Some(why.to_owned())) });
        }
    }
}
