// SPDX-License-Identifier: Apache-2.0
//! Everything a benchmark warns of: what was seen, and what to do about it.

use serde::{Deserialize, Serialize};

use crate::plural::counted;

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
        /// Rounds there were.
        runs: usize,
        /// Confidence that this number can reach.
        confidence: f64,
    },
    /// Some runs took an odd time.
    Outliers {
        /// Under which candidate.
        candidate: String,
        /// How many.
        outliers: usize,
        /// Of how many.
        runs: usize,
    },
    /// The program fails under `system` too.
    SystemFails {
        /// Its exit: status, or 128 + signal.
        exit: i32,
    },
    /// The program exits otherwise than under `system`.
    ExitDiffers {
        /// Under which candidate.
        candidate: String,
        /// Its exit: status, or 128 + signal.
        exit: i32,
    },
    /// The program writes something else than under `system`.
    OutputDiffers {
        /// Under which candidate.
        candidate: String,
    },
    /// The program never writes the same twice.
    OutputVariesByItself,
    /// The program crashed and does not under `system`.
    CrashUnder {
        /// Under which candidate.
        candidate: String,
        /// By which signal.
        signal: u32,
    },
    /// A run hung, far longer than any under `system` took, and was ended.
    HangsUnder {
        /// Under which candidate.
        candidate: String,
    },
    /// A run did not end within the time that was allowed.
    TimesOutUnder {
        /// Under which candidate.
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
        /// CPUs.
        cpus: u32,
    },
}

impl Warning {
    /// What was seen, without a closing stop.
    pub fn what(&self) -> String {
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
            Self::Outliers { candidate, outliers, runs } => {
                format!("{outliers} of {runs} runs under {candidate} took an odd time")
            }
            Self::SystemFails { exit } => format!("the program itself ends with {}", exit_text(*exit)),
            Self::ExitDiffers { candidate, exit } => {
                format!("under {candidate} the program ends with {}, not as under system", exit_text(*exit))
            }
            Self::OutputDiffers { candidate } => {
                format!("under {candidate} the program writes something else than under system")
            }
            Self::OutputVariesByItself => "the output differs from run to run under system".to_owned(),
            Self::CrashUnder { candidate, signal } => {
                format!("under {candidate} the program crashes by {}", signal_text(*signal))
            }
            Self::HangsUnder { candidate } => format!("the program hangs under {candidate}"),
            Self::TimesOutUnder { candidate } => format!("under {candidate} a run did not end in time"),
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

    /// Whether it is the reason why that candidate is not picked.
    pub(super) fn is_objection_to(&self, name: &str) -> bool {
        match self {
            Self::ExitDiffers { candidate, .. }
            | Self::OutputDiffers { candidate }
            | Self::CrashUnder { candidate, .. }
            | Self::HangsUnder { candidate }
            | Self::TimesOutUnder { candidate } => candidate == name,
            _ => false,
        }
    }

    /// What to do about it.
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
            Self::CrashUnder { .. } | Self::HangsUnder { .. } => {
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
    fn the_kind_is_a_kebab_case_word() {
        let text = serde_json::to_string(&Warning::OutputVariesByItself).unwrap();
        assert_eq!(text, r#"{"kind":"output-varies-by-itself"}"#);
    }
}
