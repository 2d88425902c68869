// SPDX-License-Identifier: Apache-2.0
//! The raw figures of one trial: stored for ever, never changed. Whatever can be computed from them is a
//! method here or a [`crate::profile`], never a field.
//!
//! The activity of a process, as observed from outside: whether it used CPU time, and whether it waited for a lock.

use serde::{Deserialize, Serialize};

use crate::service_life::ServiceLife;
use crate::split::Split;

/// Signals by which a replaced allocator makes a program die: ILL, ABRT, BUS, SEGV, SYS (Linux numbers).
/// FPE is not among them: dividing by zero is the program's own doing.
const CRASH_SIGNALS: [u32; 5] = [4, 6, 7, 11, 31];

/// [`Sample::served`] of a process into which nothing was loaded: its figures are the kernel's account of it.
pub const MEASURED_OUTSIDE: &str = "measured from outside";

/// [`Sample::served`] of a run that `imas bench` measured: nothing was counted inside.
pub const MEASURED_BY_BENCH: &str = "measured by imas bench";

/// True when a process that died by `signal` counts as crashed (`SIGILL`, `SIGABRT`, `SIGBUS`, `SIGSEGV`,
/// `SIGSYS`).
pub fn is_crash_signal(signal: u32) -> bool {
    CRASH_SIGNALS.contains(&signal)
}

/// How a process under trial ended, as far as its page shows.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Exit handlers ran, or `_exit` was called.
    Clean {
        /// Exit status 0 to 255 where it was seen.
        status: Option<i32>,
    },
    /// A fatal signal.
    Signal {
        /// Number of the signal.
        signal: u32,
    },
    /// A fatal signal that was sent by another process (a watchdog, `kill`): not caused by the allocator.
    Killed {
        /// Number of the signal.
        signal: u32,
    },
    /// The process was idle, far longer than it ever ran under `system`, until `imas bench` ended it.
    Hung,
    /// The process took many times the CPU time or memory of any run under `system`, until `imas bench` ended
    /// it.
    Excess,
    /// The process ended with a status that the same command never had under `system`: `imas bench` saw it, of settings
    /// of a runtime.
    Failed {
        /// Exit status, or 128 + signal.
        status: i32,
    },
    /// The kernel killed the process for want of memory, in a control group with a limit.
    OutOfMemory,
    /// Armed, but our constructor was never reached.
    NeverEntered,
    /// Killed by SIGKILL, ended by a raw system call, replaced by exec, or still alive.
    #[default]
    Unknown,
}

impl Ended {
    /// True for an end that a faulty allocator causes: SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGSYS, death before
    /// our constructor, a hang or an excess that `imas bench` ended, a failure that it saw, or too much memory for its
    /// limit.
    pub fn is_crash(self) -> bool {
        match self {
            Self::Signal { signal } => is_crash_signal(signal),
            Self::NeverEntered | Self::Hung | Self::Excess | Self::Failed { .. } | Self::OutOfMemory => true,
            Self::Clean { .. } | Self::Killed { .. } | Self::Unknown => false,
        }
    }

    /// True for a crash, and for an exit status other than 0. A runtime that is out of memory ends so: the JVM with 1,
    /// Go with 2.
    pub fn is_failure(self) -> bool {
        self.is_crash() || matches!(self, Self::Clean { status: Some(status) } if status != 0)
    }
}

/// Purpose of a page.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum PageKind {
    /// A trial, with counts.
    #[default]
    Trial,
    /// A production start: how it ended, no counts.
    Flight,
}

/// Figures of one operation class.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct OpFigures {
    /// Calls, exact.
    pub calls: u64,
    /// Calls that were timed and whose time could be turned into nanoseconds.
    pub sampled: u64,
    /// Mean time of a call in ns; 0 when never sampled.
    pub mean_ns: f64,
    /// Estimated calls by log2 of clock ticks (bucket b: 2^b <= ticks < 2^(b+1); bucket 0 holds 0 too).
    pub histogram_ticks: Vec<u64>,
    /// Nanoseconds of one clock tick, for that histogram; 0 when it is not known (a trial of an earlier
    /// version, no timed call).
    pub ns_per_tick: f64,
}

/// Memory seen by the snapshots of a trial, in bytes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct MemoryFigures {
    /// Snapshots taken; without one every other field is 0.
    pub snapshots: u64,
    /// Mean of rw-p anonymous and `[heap]` mappings, thread stacks left out (the paper's heap, virtual).
    pub heap_mean: u64,
    /// Largest heap that a snapshot saw.
    pub heap_peak: u64,
    /// Mean of the usable bytes in live blocks.
    pub live_mean: u64,
    /// Largest number of usable bytes in live blocks that a snapshot saw.
    pub live_peak: u64,
    /// Mean over the snapshots of `Pss_Anon - LazyFree + SwapPss`; with [`MemoryFigures::live_mean`] the
    /// resident fragmentation.
    pub resident_mean: u64,
    /// Largest resident memory that a snapshot saw.
    pub resident_peak: u64,
    /// Mean resident memory, weighted with time. 0 when it is not known (a page of an earlier version, a
    /// process that lived shorter than the clock's unit).
    pub resident_over_time: u64,
    /// Split of the resident bytes; None when it was not recorded (a page of an earlier version, a process of
    /// some milliseconds).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

impl MemoryFigures {
    /// Memory that the program held, bytes: the mean over time where it is known, else over the snapshots.
    pub fn resident(&self) -> u64 {
        if self.resident_over_time > 0 { self.resident_over_time } else { self.resident_mean }
    }
}

/// Resources that the kernel accounted to the process by its exit.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Usage {
    /// User CPU time, seconds.
    pub user_s: f64,
    /// System CPU time, seconds.
    pub system_s: f64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Peak resident set (`VmHWM`), bytes.
    pub max_rss_bytes: u64,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
}

/// Raw figures of one trial (one process, or the sum of a tree). Fields that an older version did not store
/// read as their default.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Sample {
    /// Unique per trial.
    pub trial_id: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Time when the trial was made, seconds since the epoch.
    pub made_unix_s: f64,
    /// End of the process; of a tree: the first crash, else the root's end.
    pub ended: Ended,
    /// Why the injected code did nothing, a kebab-case word (`own-malloc`); None when it was active.
    pub pass_reason: Option<String>,
    /// The object whose malloc served; several of a tree are joined by commas. Or [`MEASURED_OUTSIDE`].
    pub served: String,
    /// malloc and calloc.
    pub malloc: OpFigures,
    /// realloc.
    pub realloc: OpFigures,
    /// Every aligned form.
    pub memalign: OpFigures,
    /// free.
    pub free: OpFigures,
    /// Bytes asked for by malloc, realloc and memalign classes, exact.
    pub bytes_requested: u64,
    /// Calls that returned NULL for a non-zero size, as far as the hook saw: it looks at those it samples,
    /// large ones nearly always.
    pub refused: u64,
    /// Estimated bytes handed out above what was asked for (size-class rounding).
    pub rounding_bytes: u64,
    /// Estimated requests by log2 of bytes (bucket b: 2^b <= bytes < 2^(b+1); bucket 0 holds 0 too).
    pub size_histogram: Vec<u64>,
    /// Live-block samples lost because the hook's table was full; live figures are too low when this is not
    /// 0.
    pub live_dropped: u64,
    /// Threads that ever allocated.
    pub threads: u32,
    /// Children made by fork.
    pub forks: u32,
    /// Processes in the sum; 1 unless it is a tree.
    pub processes: u32,
    /// Snapshots' figures.
    pub memory: MemoryFigures,
    /// None when the process was killed before its exit handlers.
    pub usage: Option<Usage>,
    /// Seconds from the hook's start to its last snapshot.
    pub wall_s: f64,
    /// Trial or production flight.
    pub kind: PageKind,
    /// Last observed activity of the process before it was killed; None when it was not recorded, and where
    /// the process ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<ProcessActivity>,
    /// Page size, transparent huge pages and CPUs of the machine as one text; it is compared, not parsed.
    /// Empty when it was not recorded.
    pub machine: String,
    /// How the process lived on after its sample was taken; None where that was not seen (a process that
    /// ended before, an earlier version). It is stored by itself, window by window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<ServiceLife>,
}

impl Sample {
    /// Whether nothing was counted inside the process: its figures are CPU time and memory alone.
    pub fn is_uncounted(&self) -> bool {
        self.served == MEASURED_OUTSIDE || self.is_of_bench()
    }

    /// Whether `imas bench` made it.
    pub fn is_of_bench(&self) -> bool {
        self.served == MEASURED_BY_BENCH
    }

    /// The four operation classes: malloc, realloc, memalign, free.
    pub fn classes(&self) -> [&OpFigures; 4] {
        [&self.malloc, &self.realloc, &self.memalign, &self.free]
    }

    /// Performance of a test as the paper has it: mean of the four class means in ns (Algorithm 8, line 5),
    /// a class never called or never sampled counting 0. None when nothing at all was sampled.
    pub fn ns_per_op(&self) -> Option<f64> {
        let classes = self.classes();
        classes.iter().any(|class| class.sampled > 0).then(|| {
            classes.iter().filter(|class| class.sampled > 0).map(|class| class.mean_ns).sum::<f64>() / 4.0
        })
    }

    /// Fragmentation as the paper has it (Eq. 3) over the mean sizes, 0 to 1: (heap - live) / heap, heap
    /// being virtual. None without snapshots or heap; 0 where the estimate of live bytes exceeds the heap.
    pub fn frag_virtual(&self) -> Option<f64> {
        fragmentation(&self.memory, self.memory.heap_mean)
    }

    /// Fragmentation over resident bytes, 0 to 1, which is what is really paid: (resident - live) / resident.
    /// None without snapshots or resident bytes; 0 where the estimate of live bytes exceeds them.
    pub fn frag_resident(&self) -> Option<f64> {
        fragmentation(&self.memory, self.memory.resident_mean)
    }
}

/// (held - live) / held, clamped at 0.
fn fragmentation(memory: &MemoryFigures, held: u64) -> Option<f64> {
    if memory.snapshots == 0 || held == 0 {
        return None;
    }
    Some(held.saturating_sub(memory.live_mean) as f64 / held as f64)
}

/// The activity of a process with all its descendants, up to the last observation.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ProcessActivity {
    /// Seconds from its start to the last observation.
    pub lived_s: f64,
    /// CPU time it had used by then, seconds.
    pub cpu_s: f64,
    /// Seconds for which it had used none by then, as far as earlier observations show.
    pub still_s: f64,
    /// Every thread waited for a lock at that observation, without a time limit.
    pub locked: bool,
    /// Seconds for which the machine had been awake at that observation; 0 where that is not known.
    pub awake_s: f64,
}

impl ProcessActivity {
    /// `now`, with the idle time that `earlier`, an observation of the same process, adds to it.
    #[must_use]
    pub fn following(earlier: Option<Self>, now: Self) -> Self {
        let still_s = match earlier {
            Some(was) if was.locked && now.locked && now.cpu_s <= was.cpu_s => {
                was.still_s + between_s(was, now)
            }
            _ => 0.0,
        };
        Self { still_s, ..now }
    }
}

/// Time between two observations, without the time for which the machine was suspended: a program does not
/// run then, but grows older.
fn between_s(was: ProcessActivity, now: ProcessActivity) -> f64 {
    let awake_s = if was.awake_s > 0.0 { now.awake_s - was.awake_s } else { 0.0 };
    awake_s.min(now.lived_s - was.lived_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(sampled: u64, mean_ns: f64) -> OpFigures {
        OpFigures { calls: sampled * 64, sampled, mean_ns, ..OpFigures::default() }
    }

    #[test]
    fn ns_per_op_is_the_mean_of_four_classes() {
        let sample = Sample {
            malloc: op(3, 40.0),
            realloc: op(0, 0.0),
            memalign: op(0, 0.0),
            free: op(5, 20.0),
            ..Sample::default()
        };
        assert_eq!(sample.ns_per_op(), Some(15.0));
        assert_eq!(Sample::default().ns_per_op(), None);
    }

    #[test]
    fn a_mean_without_samples_is_ignored() {
        let sample = Sample { malloc: op(1, 40.0), free: op(0, 1e9), ..Sample::default() };
        assert_eq!(sample.ns_per_op(), Some(10.0));
    }

    #[test]
    fn fragmentation_follows_equation_3() {
        let mut sample = Sample::default();
        assert_eq!(sample.frag_virtual(), None);
        sample.memory = MemoryFigures {
            snapshots: 2,
            heap_mean: 1000,
            live_mean: 750,
            resident_mean: 800,
            ..MemoryFigures::default()
        };
        assert_eq!(sample.frag_virtual(), Some(0.25));
        assert_eq!(sample.frag_resident(), Some(0.0625));
        sample.memory.live_mean = 1200;
        assert_eq!(sample.frag_virtual(), Some(0.0));
        sample.memory.heap_mean = 0;
        assert_eq!(sample.frag_virtual(), None);
    }

    #[test]
    fn crashes_are_the_five_signals_and_never_entered() {
        for signal in [4, 6, 7, 11, 31] {
            assert!(Ended::Signal { signal }.is_crash(), "{signal}");
        }
        for signal in [1, 2, 8, 9, 13, 15] {
            assert!(!Ended::Signal { signal }.is_crash(), "{signal}");
        }
        assert!(Ended::NeverEntered.is_crash() && Ended::Hung.is_crash() && Ended::Excess.is_crash());
        assert!(Ended::OutOfMemory.is_crash() && Ended::OutOfMemory.is_failure());
        assert!(
            Ended::Clean { status: Some(1) }.is_failure() && !Ended::Clean { status: Some(0) }.is_failure()
        );
        assert!(!Ended::Clean { status: None }.is_failure() && !Ended::Unknown.is_failure());
        assert!(!Ended::Killed { signal: 6 }.is_crash(), "a watchdog's");
        assert!(!Ended::Clean { status: Some(139) }.is_crash());
        assert!(!Ended::Unknown.is_crash());
    }

    #[test]
    fn a_sample_of_an_older_version_still_reads() {
        let old = r#"{"trial_id":"t","candidate":"jemalloc","made_unix_s":1.5,
            "ended":{"signal":{"signal":11}},"malloc":{"calls":7}}"#;
        let sample: Sample = serde_json::from_str(old).unwrap();
        assert_eq!(sample.malloc.calls, 7);
        assert_eq!(sample.ended, Ended::Signal { signal: 11 });
        assert_eq!((sample.usage.as_ref(), sample.activity), (None, None));
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }

    #[test]
    fn time_in_suspend_does_not_count() {
        let look = |lived_s, awake_s| ProcessActivity {
            lived_s,
            awake_s,
            locked: true,
            ..ProcessActivity::default()
        };
        let first = ProcessActivity::following(None, look(5.0, 100.0));
        assert_eq!(
            ProcessActivity::following(Some(first), look(3605.0, 100.5)).still_s,
            0.5,
            "an hour's suspend"
        );
        assert_eq!(ProcessActivity::following(Some(first), look(12.0, 107.0)).still_s, 7.0);
    }
}
