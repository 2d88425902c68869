// SPDX-License-Identifier: Apache-2.0
//! Detects starts that hung under a candidate: the process used no CPU time and waited for a lock, far longer
//! than the program ever lived under `system`, and was then killed. A hang counts against the candidate as a
//! crash does (docs/decisions/0019).
//!
//! The evidence is the observed activity of the process ([`ProcessActivity`]), and how the program ends under
//! `system`. A program that had to be killed under `system` as well, such as a server that never ends by
//! itself, gives no evidence: being idle is normal for it.

use serde::{Deserialize, Serialize};

use crate::sample::{Ended, PageKind, Sample};

pub use crate::sample::ProcessActivity;

/// Least number of starts under `system` that ended by themselves.
pub const MIN_STARTS: usize = 2;
/// Multiple of the longest life under `system` for which a start that hung was idle.
pub const THRESHOLD_FACTOR: f64 = 10.0;
/// Least time for which a start that hung was idle, seconds.
pub const MIN_THRESHOLD_S: f64 = 10.0;

/// How long the program lives under `system`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usual {
    longest_s: f64,
}

impl Usual {
    /// Life of the program by its starts under `system`. None when fewer than [`MIN_STARTS`] ended by
    /// themselves, or when one was killed: how long it would have run is then unknown.
    pub fn of<'a>(system: impl IntoIterator<Item = &'a Sample>) -> Option<Self> {
        let (mut starts, mut usual) = (0, Self { longest_s: 0.0 });
        for sample in system.into_iter().filter(|sample| sample.pass_reason.is_none()) {
            match (sample.ended, &sample.usage) {
                (Ended::Clean { .. }, Some(_)) => {
                    starts += 1;
                    usual.longest_s = usual.longest_s.max(sample.wall_s);
                }
                (ended, _) if ended.is_crash() => {} // it ended sooner than it would have
                _ => return None,
            }
        }
        (starts >= MIN_STARTS).then_some(usual)
    }
}

/// A start that hung.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Hang {
    /// Seconds for which it was seen idle.
    pub still_s: f64,
    /// The longest life of the program under `system`, seconds.
    pub longest_s: f64,
}

/// Seconds of idling after which a program that lives at most `longest_s` seconds under `system` has hung.
pub fn hang_threshold_s(longest_s: f64) -> f64 {
    (THRESHOLD_FACTOR * longest_s).max(MIN_THRESHOLD_S)
}

/// Whether the start may turn out to have hung once the program's usual life under `system` is known.
pub fn may_have_hung(sample: &Sample) -> bool {
    let killed = matches!(sample.ended, Ended::Unknown | Ended::Killed { .. } | Ended::NeverEntered);
    let locked = sample.activity.is_some_and(|seen| seen.locked && seen.still_s > MIN_THRESHOLD_S);
    killed && locked && sample.pass_reason.is_none()
}

/// Whether this start hung, given the usual life under `system`. What counts is the time between
/// observations, not the age of the process: it may have been a shell for hours before it became the program
/// by exec.
pub fn hung(sample: &Sample, usual: &Usual) -> Option<Hang> {
    let seen = sample.activity.filter(|_| may_have_hung(sample))?;
    let Usual { longest_s } = *usual;
    (seen.still_s > hang_threshold_s(longest_s)).then_some(Hang { still_s: seen.still_s, longest_s })
}

// Detects starts that took many times what the program takes under `system`. Such a start counts against its
// candidate as a crash does (docs/decisions/0035).
//
// `imas bench` gives each run the same input, so it compares CPU time and memory of the whole run. Other starts may
// have had more to do. There the evidence is the time inside malloc and its like, and the memory of a heap that
// never held more than under `system`.

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

/// Excess of a start over the most under `system`, by resource.
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
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{MemoryFigures, OpFigures, Usage};

    fn usual(lives: &[(f64, f64)]) -> Vec<Sample> {
        let one = |(wall_s, user_s): &(f64, f64)| Sample {
            ended: Ended::Clean { status: Some(0) },
            wall_s: *wall_s,
            usage: Some(Usage { user_s: *user_s, ..Usage::default() }),
            ..Sample::default()
        };
        lives.iter().map(one).collect()
    }

    fn seen(ended: Ended, activity: ProcessActivity) -> Sample {
        Sample { ended, activity: Some(activity), ..Sample::default() }
    }

    const STUCK: ProcessActivity =
        ProcessActivity { lived_s: 100.0, cpu_s: 0.0, still_s: 95.0, locked: true, awake_s: 200.0 };

    fn judged(sample: &Sample, system: &[Sample]) -> bool {
        Usual::of(system).is_some_and(|usual| hung(sample, &usual).is_some())
    }

    #[test]
    fn a_killed_program_that_waited_for_a_lock_far_longer_than_its_usual_life_hung() {
        let system = usual(&[(2.0, 1.0), (3.0, 1.5)]);
        for ended in [Ended::Unknown, Ended::Killed { signal: 6 }, Ended::NeverEntered] {
            assert!(judged(&seen(ended, STUCK), &system), "{ended:?}");
        }
        let after_work = ProcessActivity { cpu_s: 0.7, still_s: 40.0, ..STUCK };
        assert!(judged(&seen(Ended::Unknown, after_work), &system), "in the midst of its work");
        assert!(
            !judged(&seen(Ended::Unknown, ProcessActivity { still_s: 25.0, ..after_work }), &system),
            "not long enough"
        );
    }

    #[test]
    fn a_program_that_ends_by_itself_or_works_or_waits_for_input_did_not_hang() {
        let system = usual(&[(2.0, 1.0), (3.0, 1.5)]);
        assert!(!judged(&seen(Ended::Clean { status: Some(0) }, STUCK), &system));
        assert!(!judged(&seen(Ended::Signal { signal: 11 }, STUCK), &system), "a crash is one already");
        assert!(
            !judged(&seen(Ended::Unknown, ProcessActivity { locked: false, ..STUCK }), &system),
            "input, a timer, the network"
        );
        let was_a_shell = ProcessActivity { lived_s: 9000.0, still_s: 0.0, ..STUCK };
        assert!(
            !judged(&seen(Ended::Unknown, was_a_shell), &system),
            "it became the program by exec, a moment ago"
        );
        let nobody_looked = Sample { ended: Ended::Unknown, ..Sample::default() };
        assert!(!judged(&nobody_looked, &system));
    }

    #[test]
    fn a_program_that_was_killed_under_system_gives_no_evidence() {
        let sample = seen(Ended::Unknown, STUCK);
        assert!(!judged(&sample, &usual(&[(2.0, 1.0)])), "one start is too few");
        let mut system = usual(&[(2.0, 1.0), (3.0, 1.0)]);
        system.push(Sample { ended: Ended::Unknown, ..Sample::default() });
        assert!(!judged(&sample, &system), "a server, or a program that a user stopped");
        system.last_mut().unwrap().ended = Ended::Signal { signal: 11 };
        assert!(judged(&sample, &system), "a crash shortens a life");
    }

    #[test]
    fn idle_time_is_added_up_over_observations() {
        let look = |lived_s, cpu_s, locked| ProcessActivity {
            lived_s,
            cpu_s,
            locked,
            still_s: 0.0,
            awake_s: lived_s,
        };
        let first = ProcessActivity::following(None, look(5.0, 1.0, true));
        assert_eq!(first.still_s, 0.0);
        let second = ProcessActivity::following(Some(first), look(12.0, 1.0, true));
        assert_eq!(second.still_s, 7.0);
        assert_eq!(ProcessActivity::following(Some(second), look(20.0, 1.0, true)).still_s, 15.0);
        assert_eq!(
            ProcessActivity::following(Some(second), look(20.0, 1.01, true)).still_s,
            0.0,
            "it went on"
        );
        assert_eq!(
            ProcessActivity::following(Some(second), look(20.0, 1.0, false)).still_s,
            0.0,
            "it waits for something else"
        );
    }

    fn starts() -> impl Strategy<Value = Vec<Sample>> {
        prop::collection::vec((0.0..1e5_f64, 0.0..1e5_f64), 0..6).prop_map(|lives| usual(&lives))
    }

    fn activities() -> impl Strategy<Value = ProcessActivity> {
        (0.0..1e6_f64, 0.0..1e5_f64, 0.0..1.0_f64, any::<bool>()).prop_map(
            |(lived_s, cpu_s, part, locked)| ProcessActivity {
                lived_s,
                cpu_s,
                still_s: lived_s * part,
                locked,
                awake_s: lived_s,
            },
        )
    }

    proptest! {
        #[test]
        fn a_process_stopped_before_ten_times_the_longest_life_did_not_hang(
            seen_s in activities(), system in starts()
        ) {
            let longest = system.iter().map(|sample| sample.wall_s).fold(0.0, f64::max);
            let threshold_s = hang_threshold_s(longest);
            let early = ProcessActivity {
                lived_s: seen_s.lived_s.min(threshold_s),
                still_s: seen_s.still_s.min(threshold_s),
                ..seen_s
            };
            prop_assert!(!judged(&seen(Ended::Unknown, early), &system));
        }

        #[test]
        fn a_killed_start_under_system_clears_the_candidate(seen_s in activities(), mut system in starts()) {
            system.push(Sample::default());
            prop_assert!(!judged(&seen(Ended::Unknown, seen_s), &system));
        }

        #[test]
        fn a_longer_life_under_system_never_makes_a_hang(
            seen_s in activities(), mut system in starts(), longer_s in 0.0..1e6_f64
        ) {
            let before = judged(&seen(Ended::Unknown, seen_s), &system);
            if let Some(sample) = system.first_mut() { sample.wall_s += longer_s; }
            prop_assert!(before || !judged(&seen(Ended::Unknown, seen_s), &system));
        }

        #[test]
        fn only_a_process_that_waited_for_a_lock_and_did_not_end_by_itself_hung(
            seen_s in activities(), system in starts(), status in 0..256
        ) {
            let clean = Ended::Clean { status: Some(status) };
            prop_assert!(!judged(&seen(clean, seen_s), &system));
            let unlocked = ProcessActivity { locked: false, ..seen_s };
            prop_assert!(!judged(&seen(Ended::Unknown, unlocked), &system));
        }
    }

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

    fn usual_starts() -> Vec<Sample> {
        vec![start(0.01, 8 * MIB), start(0.02, 9 * MIB)]
    }

    #[test]
    fn many_times_the_time_or_memory_for_as_much_to_do_is_too_much() {
        let found = exceeded(&start(50.0, 9 * MIB), &usual_starts());
        assert!(
            matches!(found, Some(Excess::Time { took_s, .. }) if (took_s - 3.0).abs() < 1e-9),
            "{found:?}"
        );
        let found = exceeded(&start(0.02, 960 * MIB), &usual_starts());
        assert!(matches!(found, Some(Excess::Memory { .. })), "{found:?}");
        let killed = Sample { ended: Ended::Unknown, ..start(50.0, 9 * MIB) };
        assert!(exceeded(&killed, &usual_starts()).is_some(), "its user ended it");
    }

    #[test]
    fn noise_and_small_programs_are_never_too_much() {
        assert_eq!(exceeded(&start(30.0, 255 * MIB), &usual_starts()), None, "1.8 s and 255 MiB");
        let slow = [start(3.0, 100 * MIB), start(3.0, 100 * MIB)];
        assert_eq!(exceeded(&start(50.0, 1900 * MIB), &slow), None, "less than twenty times");
    }

    #[test]
    fn a_start_with_more_to_do_is_not_compared() {
        let mut larger = start(50.0, 960 * MIB);
        larger.bytes_requested *= 3;
        assert_eq!(exceeded(&larger, &usual_starts()), None, "larger blocks");
        let mut longer = start(50.0, 960 * MIB);
        longer.malloc.calls *= 3;
        assert_eq!(exceeded(&longer, &usual_starts()), None, "more calls");
        let mut holds = start(50.0, 960 * MIB);
        holds.memory.live_peak *= 3;
        assert_eq!(exceeded(&holds, &usual_starts()), None, "more at a time");
    }

    #[test]
    fn one_start_under_system_or_one_that_crashed_is_no_evidence() {
        assert_eq!(exceeded(&start(50.0, 960 * MIB), &usual_starts()[..1]), None);
        let crashed = Sample { ended: Ended::Signal { signal: 11 }, ..start(0.01, 8 * MIB) };
        assert_eq!(exceeded(&start(50.0, 960 * MIB), [&usual_starts()[0], &crashed]), None);
        let production = Sample { kind: PageKind::Flight, ..start(50.0, 960 * MIB) };
        assert_eq!(exceeded(&production, &usual_starts()), None, "nothing was counted");
    }
}
