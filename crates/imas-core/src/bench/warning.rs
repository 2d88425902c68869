// SPDX-License-Identifier: Apache-2.0
//! Everything a benchmark warns of: what was seen, and what to do about it.

use serde::{Deserialize, Serialize};

use crate::printable::counted;

/// Runs shorter than this measure the start, not the program (seconds).
pub(super) const TOO_SHORT_S: f64 = 0.05;

/// Half-width of the interval of the system's own CPU time, relative, from which on it is too noisy.
pub(super) const TOO_NOISY: f64 = 0.05;

/// Attainable confidence below which few runs are worth a warning: four runs or fewer.
pub(super) const TOO_UNSURE: f64 = 0.9;

/// A warning. Serialised with its kebab-case name as `kind`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Runs are too short.
    TooShort {
        /// Median elapsed time under `system`, seconds.
        wall_s: f64,
    },
    /// `system` alone varies too much.
    TooNoisy {
        /// Half-width of the interval of its CPU time, relative (0.07 = 7 %).
        half_width: f64,
    },
    /// Too few runs for a 95 % interval.
    FewRuns {
        /// Number of rounds there were.
        runs: usize,
        /// Confidence that this number can reach.
        confidence: f64,
    },
    /// Some runs took an odd time.
    Outliers {
        /// The candidate that they ran under.
        candidate: String,
        /// Number of runs that took an odd time.
        outliers: usize,
        /// Number of runs in all, odd or not.
        runs: usize,
    },
    /// The program fails under `system` too.
    SystemFails {
        /// Exit of the program: status, or 128 + signal.
        exit: i32,
    },
    /// The program exits otherwise than under `system`.
    ExitDiffers {
        /// The candidate that it ran under.
        candidate: String,
        /// Exit of the program: status, or 128 + signal.
        exit: i32,
    },
    /// The program writes something else than under `system`.
    OutputDiffers {
        /// The candidate that it ran under.
        candidate: String,
    },
    /// The program never writes the same twice.
    OutputVariesByItself,
    /// The program crashed and does not under `system`.
    CrashUnder {
        /// The candidate that it ran under.
        candidate: String,
        /// Number of the signal that it died of.
        signal: u32,
    },
    /// A run hung, far longer than any under `system` took, and was ended.
    HangsUnder {
        /// The candidate that it ran under.
        candidate: String,
    },
    /// A run took many times the CPU time or memory of any under `system`, and was ended.
    ExcessUnder {
        /// The candidate that it ran under.
        candidate: String,
    },
    /// A run did not end within the time that was allowed.
    TimesOutUnder {
        /// The candidate that it ran under.
        candidate: String,
    },
    /// The CPU time is too small for changes to exceed the noise.
    TooLittleCpu {
        /// Median CPU time under `system`, seconds.
        cpu_s: f64,
    },
    /// Memory could not be measured.
    NoMemory,
    /// The machine was busy before the first run.
    LoadHigh {
        /// Five-minute load average.
        load5: f64,
        /// Number of CPUs.
        cpus: u32,
    },
}

impl Warning {
    /// Text of the warning, without a closing stop.
    pub fn what(&self) -> String {
        self.what_under(self.candidate().unwrap_or_default())
    }

    /// Text of the warning as if it were of this candidate.
    fn what_under(&self, candidate: &str) -> String {
        match self {
            Self::TooShort { wall_s } => {
                format!("runs take {:.1} ms: that is start-up more than the program's work", wall_s * 1e3)
            }
            Self::TooNoisy { half_width } => {
                format!("the CPU time of system alone is known to +-{:.1} % only", half_width * 100.0)
            }
            Self::FewRuns { runs, confidence } => {
                let give = if *runs == 1 { "run gives" } else { "runs give" };
                format!("{runs} {give} {:.0} % confidence at most, not 95 %", confidence * 100.0)
            }
            Self::Outliers { outliers, runs, .. } => {
                format!("{outliers} of {runs} runs under {candidate} took an odd time")
            }
            Self::SystemFails { exit } => format!("the program itself ends with {}", exit_text(*exit)),
            Self::ExitDiffers { exit, .. } => {
                format!("under {candidate} the program ends with {}, not as under system", exit_text(*exit))
            }
            Self::OutputDiffers { .. } => {
                format!("under {candidate} the program writes something else than under system")
            }
            Self::OutputVariesByItself => "the output differs from run to run under system".to_owned(),
            Self::CrashUnder { signal, .. } => {
                format!("under {candidate} the program crashes by {}", signal_text(*signal))
            }
            Self::HangsUnder { .. } => format!("the program hangs under {candidate}"),
            Self::ExcessUnder { .. } => {
                format!(
                    "under {candidate} a run took many times the CPU time or memory that it takes under system, and was ended"
                )
            }
            Self::TimesOutUnder { .. } => format!("under {candidate} a run did not end in time"),
            Self::TooLittleCpu { cpu_s } => format!(
                "the program uses {:.1} ms of CPU time: what starting a process takes varies as much, and allocators cannot be distinguished",
                cpu_s * 1e3
            ),
            Self::NoMemory => "no memory figures: the runs end before memory can be read".to_owned(),
            Self::LoadHigh { load5, cpus } => {
                format!(
                    "the machine was busy before the first run: load {load5:.1} on {}",
                    counted(*cpus, "CPU")
                )
            }
        }
    }

    /// A line with its hint for each kind of warning; the candidates of one kind are named together.
    #[must_use]
    pub fn lines(all: &[Self]) -> Vec<(String, &'static str)> {
        let mut groups: Vec<Vec<&Self>> = vec![];
        for warning in all {
            match groups.iter_mut().find(|group| group[0].kind() == warning.kind()) {
                Some(group) => group.push(warning),
                None => groups.push(vec![warning]),
            }
        }
        groups.into_iter().map(|group| (Self::together(&group), group[0].hint())).collect()
    }

    /// Lines without the noise ([`Self::noise`]), and one for all that is too little to be compared.
    #[must_use]
    pub fn few_lines(all: &[Self]) -> Vec<(String, &'static str)> {
        let is_left = |one: &&Self| !one.is_noise() && !one.is_too_little();
        let others: Vec<Self> = all.iter().filter(is_left).cloned().collect();
        let little = all.iter().find(|one| one.is_too_little());
        little.map(|one| (one.what(), one.hint())).into_iter().chain(Self::lines(&others)).collect()
    }

    /// The noise as one line. None where there is none worth a word, and where the program does too little to be
    /// compared.
    #[must_use]
    pub fn noise(all: &[Self]) -> Option<String> {
        let (mut odd, mut of) = (0, 0);
        let mut parts = vec![];
        for one in all {
            match one {
                Self::LoadHigh { load5, cpus } => {
                    parts.push(format!("load {load5:.0} on {}", counted(*cpus, "CPU")));
                }
                Self::TooNoisy { half_width } => {
                    parts.push(format!("CPU of system +-{:.0} %", half_width * 100.0));
                }
                Self::Outliers { outliers, runs, .. } => (odd, of) = (odd + outliers, of + runs),
                _ => {}
            }
        }
        parts.extend((odd > 0).then(|| format!("{odd} odd of {of} runs")));
        let is_told = !parts.is_empty() && !all.iter().any(Self::is_too_little);
        is_told.then(|| format!("noise: {}", parts.join(", ")))
    }

    fn is_noise(&self) -> bool {
        matches!(
            self,
            Self::LoadHigh { .. } | Self::TooNoisy { .. } | Self::Outliers { .. } | Self::FewRuns { .. }
        )
    }

    /// Whether the program does too little to be compared.
    pub fn is_too_little(&self) -> bool {
        matches!(self, Self::TooShort { .. } | Self::TooLittleCpu { .. } | Self::NoMemory)
    }

    /// Warnings that differ in this are of different kinds.
    fn kind(&self) -> String {
        match self {
            Self::Outliers { .. } => String::new(),
            other => other.what_under(""),
        }
    }

    fn together(group: &[&Self]) -> String {
        if let [one] = group {
            return one.what();
        }
        if let Self::Outliers { .. } = group[0] {
            let under: Vec<String> = group.iter().filter_map(|one| one.odd_runs()).collect();
            return format!("runs that took an odd time: {}", under.join(", "));
        }
        let names: Vec<&str> = group.iter().filter_map(|one| one.candidate()).collect();
        group[0].what_under(&names.join(", "))
    }

    fn odd_runs(&self) -> Option<String> {
        match self {
            Self::Outliers { candidate, outliers, runs } => {
                Some(format!("{outliers} of {runs} under {candidate}"))
            }
            _ => None,
        }
    }

    /// The candidate that the warning is of; None for one of all runs.
    pub fn candidate(&self) -> Option<&str> {
        match self {
            Self::Outliers { candidate, .. }
            | Self::ExitDiffers { candidate, .. }
            | Self::OutputDiffers { candidate }
            | Self::CrashUnder { candidate, .. }
            | Self::HangsUnder { candidate }
            | Self::ExcessUnder { candidate }
            | Self::TimesOutUnder { candidate } => Some(candidate),
            _ => None,
        }
    }

    /// Advice on what to do about the warning.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooShort { .. } | Self::NoMemory | Self::TooLittleCpu { .. } => {
                "give the program more work: a larger input, or a loop around it"
            }
            Self::TooNoisy { .. } => "stop what else is running, or take more runs with -n",
            Self::FewRuns { .. } => "take six runs or more with -n 6",
            Self::Outliers { .. } => "something else was running now and then; repeat on a quieter machine",
            Self::SystemFails { .. } => "check the command: a program that fails early does not do its work",
            Self::ExitDiffers { .. } | Self::OutputDiffers { .. } => {
                "it is not picked; to see it: imas run --candidate NAME -- COMMAND"
            }
            Self::OutputVariesByItself => {
                "outputs were not compared; make the program repeatable (seed, clock) to have them compared"
            }
            Self::CrashUnder { .. } | Self::HangsUnder { .. } | Self::ExcessUnder { .. } => {
                "it is not picked; keep this program away from it"
            }
            Self::TimesOutUnder { .. } => "it is not picked; allow it more time with --timeout SECONDS",
            Self::LoadHigh { .. } => "wait until the machine is idle, or take more runs with -n",
        }
    }
}

fn exit_text(exit: i32) -> String {
    match u32::try_from(exit - 128) {
        Ok(signal) if (1..=64).contains(&signal) => format!("exit status {exit} ({})", signal_text(signal)),
        _ => format!("exit status {exit}"),
    }
}

fn signal_text(signal: u32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::Warning;

    #[test]
    fn texts_carry_the_figures() {
        assert_eq!(
            Warning::TooShort { wall_s: 0.0123 }.what(),
            "runs take 12.3 ms: that is start-up more than the program's work"
        );
        assert_eq!(
            Warning::ExitDiffers { candidate: "hoard".into(), exit: 137 }.what(),
            "under hoard the program ends with exit status 137 (SIGKILL), not as under system"
        );
        assert_eq!(
            Warning::CrashUnder { candidate: "hoard".into(), signal: 11 }.what(),
            "under hoard the program crashes by SIGSEGV"
        );
    }

    #[test]
    fn warnings_of_one_kind_are_one_line() {
        let output = |name: &str| Warning::OutputDiffers { candidate: name.into() };
        let odd = |name: &str, outliers| Warning::Outliers { candidate: name.into(), outliers, runs: 9 };
        let all = [odd("a", 1), output("a"), odd("b", 2), output("b"), output("c"), Warning::NoMemory];
        let lines: Vec<String> = Warning::lines(&all).into_iter().map(|(what, _)| what).collect();
        assert_eq!(
            lines,
            [
                "runs that took an odd time: 1 of 9 under a, 2 of 9 under b",
                "under a, b, c the program writes something else than under system",
                "no memory figures: the runs end before memory can be read",
            ]
        );
        assert_eq!(Warning::lines(&[output("a")])[0].0, output("a").what());
    }

    #[test]
    fn the_kind_is_a_kebab_case_word() {
        let text = serde_json::to_string(&Warning::OutputVariesByItself).unwrap();
        assert_eq!(text, r#"{"kind":"output-varies-by-itself"}"#);
    }
}
