// SPDX-License-Identifier: Apache-2.0
//! Detects starts that hung under a candidate: the process used no CPU time and waited for a lock, far longer
//! than the program ever lived under `system`, and was then killed. A hang counts against the candidate as a
//! crash does (docs/decisions/0019).
//!
//! The evidence is the observed activity of the process ([`ProcessActivity`]), and how the program ends under
//! `system`. A program that had to be killed under `system` as well, such as a server that never ends by
//! itself, gives no evidence: being idle is normal for it.

use serde::{Deserialize, Serialize};

pub use crate::activity::ProcessActivity;
use crate::sample::{Ended, Sample};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Usage;
    use proptest::prelude::*;

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
}
