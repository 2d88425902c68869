// SPDX-License-Identifier: Apache-2.0
//! Detects starts that took many times what the program takes under `system`. Such a start counts against its
//! candidate as a crash does (docs/decisions/0035).
//!
//! `imas bench` gives each run the same input, so it compares CPU time and memory of the whole run. Other starts may
//! have had more to do. There the evidence is the time inside malloc and its like, and the memory of a heap that
//! never held more than under `system`.

use serde::{Deserialize, Serialize};

use crate::sample::{Ended, PageKind, Sample};

/// Least number of starts under `system` with as much to do.
pub const MIN_STARTS: usize = 2;
/// Multiple of the most under `system` above which a start took too much, if it also took [`MIN_CPU_S`] or
/// [`MIN_BYTES`].
pub const FACTOR: f64 = 20.0;
/// CPU seconds below which no start takes too much: the noise of a busy machine is as large.
pub const MIN_CPU_S: f64 = 2.0;
/// Bytes of memory below which no start takes too much: less hurts no machine.
pub const MIN_BYTES: f64 = 268_435_456.0;
/// A start had as much to do as another when it made at most this multiple of the other's calls, for at most this
/// multiple of its bytes.
const AS_MUCH: f64 = 2.0;

/// CPU seconds above which a start takes too much, if the most under `system` was this.
#[must_use]
pub fn cpu_limit_s(most_s: f64) -> f64 {
    (FACTOR * most_s).max(MIN_CPU_S)
}

/// Resident bytes above which a start takes too much, if the most under `system` was `most`.
#[must_use]
pub fn bytes_limit(most: f64) -> f64 {
    (FACTOR * most).max(MIN_BYTES)
}

/// What a start took too much of, and the most under `system`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
    /// Seconds inside the allocator.
    Time {
        /// Seconds in this start.
        took_s: f64,
        /// The most under `system`.
        most_s: f64,
    },
    /// Resident bytes.
    Memory {
        /// Bytes in this start.
        took: f64,
        /// The most under `system`.
        most: f64,
    },
}

/// Whether the start took too much, given all starts under `system`.
pub fn exceeded<'a>(sample: &Sample, system: impl IntoIterator<Item = &'a Sample>) -> Option<Excess> {
    if !tells(sample) {
        return None;
    }
    let (mut starts, mut most_s, mut most) = (0, 0.0_f64, 0.0_f64);
    for other in system {
        if !matches!(other.ended, Ended::Clean { .. }) || !tells(other) || !has_as_much_to_do(sample, other) {
            continue;
        }
        starts += 1;
        most_s = most_s.max(allocator_s(other));
        most = most.max(resident(other));
    }
    let (took_s, took) = (allocator_s(sample), resident(sample));
    match starts >= MIN_STARTS {
        true if took_s > cpu_limit_s(most_s) => Some(Excess::Time { took_s, most_s }),
        true if took > bytes_limit(most) => Some(Excess::Memory { took, most }),
        _ => None,
    }
}

/// Whether the calls of the start were counted.
fn tells(sample: &Sample) -> bool {
    sample.kind == PageKind::Trial
        && sample.pass_reason.is_none()
        && sample.life.is_none()
        && calls(sample) > 0.0
}

fn has_as_much_to_do(sample: &Sample, other: &Sample) -> bool {
    let at_most = |of: fn(&Sample) -> f64| of(sample) <= AS_MUCH * of(other);
    at_most(calls) && at_most(requested) && at_most(live)
}

#[expect(clippy::cast_precision_loss, reason = "a limit of twice as much needs no digit beyond 2^52")]
fn calls(sample: &Sample) -> f64 {
    sample.classes().iter().map(|class| class.calls as f64).sum()
}

#[expect(clippy::cast_precision_loss, reason = "as above")]
fn requested(sample: &Sample) -> f64 {
    sample.bytes_requested as f64
}

#[expect(clippy::cast_precision_loss, reason = "as above")]
fn live(sample: &Sample) -> f64 {
    sample.memory.live_peak as f64
}

#[expect(clippy::cast_precision_loss, reason = "as above")]
fn resident(sample: &Sample) -> f64 {
    sample.memory.resident_peak as f64
}

/// Seconds inside malloc, realloc, memalign and free, from the calls whose time was taken.
#[expect(clippy::cast_precision_loss, reason = "as above")]
fn allocator_s(sample: &Sample) -> f64 {
    sample.classes().iter().map(|class| class.calls as f64 * class.mean_ns * 1e-9).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MemoryFigures, OpFigures};

    const MIB: u64 = 1 << 20;

    /// Sixty callocs of a gigabyte.
    fn start(call_ms: f64, resident: u64) -> Sample {
        Sample {
            ended: Ended::Clean { status: Some(0) },
            malloc: OpFigures { calls: 60, sampled: 60, mean_ns: call_ms * 1e6, ..OpFigures::default() },
            bytes_requested: 60_000 * MIB,
            memory: MemoryFigures {
                live_peak: 1000 * MIB,
                resident_peak: resident,
                ..MemoryFigures::default()
            },
            ..Sample::default()
        }
    }

    fn usual() -> Vec<Sample> {
        vec![start(0.01, 8 * MIB), start(0.02, 9 * MIB)]
    }

    #[test]
    fn many_times_the_time_or_memory_for_as_much_to_do_is_too_much() {
        let found = exceeded(&start(50.0, 9 * MIB), &usual());
        assert!(
            matches!(found, Some(Excess::Time { took_s, .. }) if (took_s - 3.0).abs() < 1e-9),
            "{found:?}"
        );
        let found = exceeded(&start(0.02, 960 * MIB), &usual());
        assert!(matches!(found, Some(Excess::Memory { .. })), "{found:?}");
        let killed = Sample { ended: Ended::Unknown, ..start(50.0, 9 * MIB) };
        assert!(exceeded(&killed, &usual()).is_some(), "its user ended it");
    }

    #[test]
    fn noise_and_small_programs_are_never_too_much() {
        assert_eq!(exceeded(&start(30.0, 255 * MIB), &usual()), None, "1.8 s and 255 MiB");
        let slow = [start(3.0, 100 * MIB), start(3.0, 100 * MIB)];
        assert_eq!(exceeded(&start(50.0, 1900 * MIB), &slow), None, "less than twenty times");
    }

    #[test]
    fn a_start_with_more_to_do_is_not_compared() {
        let mut larger = start(50.0, 960 * MIB);
        larger.bytes_requested *= 3;
        assert_eq!(exceeded(&larger, &usual()), None, "larger blocks");
        let mut longer = start(50.0, 960 * MIB);
        longer.malloc.calls *= 3;
        assert_eq!(exceeded(&longer, &usual()), None, "more calls");
        let mut holds = start(50.0, 960 * MIB);
        holds.memory.live_peak *= 3;
        assert_eq!(exceeded(&holds, &usual()), None, "more at a time");
    }

    #[test]
    fn one_start_under_system_or_one_that_crashed_is_no_evidence() {
        assert_eq!(exceeded(&start(50.0, 960 * MIB), &usual()[..1]), None);
        let crashed = Sample { ended: Ended::Signal { signal: 11 }, ..start(0.01, 8 * MIB) };
        assert_eq!(exceeded(&start(50.0, 960 * MIB), [&usual()[0], &crashed]), None);
        let production = Sample { kind: PageKind::Flight, ..start(50.0, 960 * MIB) };
        assert_eq!(exceeded(&production, &usual()), None, "nothing was counted");
    }
}
