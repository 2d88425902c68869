// SPDX-License-Identifier: Apache-2.0
//! When a start under a candidate hung: it stood still, waiting for a lock, far longer than the program ever lived under `system`, and was
//! then killed. That counts against the candidate as a crash does (docs/decisions/0019).
//!
//! Evidence is what others saw of the process while it lived ([`Sighting`]) and how the program ends under `system`. A program that
//! had to be killed under `system` too, as a server that never ends by itself, shows nothing here: standing still is what it does.

use serde::{Deserialize, Serialize};

use crate::sample::{Ended, Sample};
pub use crate::sighting::Sighting;

/// So many starts under `system` must have ended by themselves.
pub const FEWEST_STARTS: usize = 2;
/// It stood still so many times as long as the longest of them lived ...
pub const TIMES: f64 = 10.0;
/// ... and at least so long, seconds.
pub const LEAST_S: f64 = 10.0;

/// How long the program lives under `system`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usual {
    longest_s: f64,
}

impl Usual {
    /// From the starts under `system`; None when too few ended by themselves, or one was killed, so that nobody knows how long it
    /// would have lived.
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
        (starts >= FEWEST_STARTS).then_some(usual)
    }
}

/// A start that hung.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Hang {
    /// Seconds for which it was seen to stand still.
    pub still_s: f64,
    /// The longest life of the program under `system`, seconds.
    pub longest_s: f64,
}

/// Seconds of standing still after which a program that lives `longest_s` seconds at most under `system` has hung.
pub fn patience_s(longest_s: f64) -> f64 {
    (TIMES * longest_s).max(LEAST_S)
}

/// Whether the start may prove to have hung, once it is known how the program ends under `system`.
pub fn may_have_hung(sample: &Sample) -> bool {
    let killed = matches!(sample.ended, Ended::Unknown | Ended::Killed { .. } | Ended::NeverEntered);
    let locked = sample.sighting.is_some_and(|seen| seen.locked && seen.still_s > LEAST_S);
    killed && locked && sample.pass_reason.is_none()
}

/// Whether this start hung, by what is usual under `system`. What counts is the time between looks, not the age of the process: that may
/// have been a shell for hours before it became the program by exec.
pub fn hung(sample: &Sample, usual: &Usual) -> Option<Hang> {
    let seen = sample.sighting.filter(|_| may_have_hung(sample))?;
    let Usual { longest_s } = *usual;
    (seen.still_s > patience_s(longest_s)).then_some(Hang { still_s: seen.still_s, longest_s })
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

    fn seen(ended: Ended, sighting: Sighting) -> Sample {
        Sample { ended, sighting: Some(sighting), ..Sample::default() }
    }

    const STUCK: Sighting = Sighting { lived_s: 100.0, cpu_s: 0.0, still_s: 95.0, locked: true };

    fn judged(sample: &Sample, system: &[Sample]) -> bool {
        Usual::of(system).is_some_and(|usual| hung(sample, &usual).is_some())
    }

    #[test]
    fn who_waits_for_a_lock_far_longer_than_ever_and_is_killed_hung() {
        let system = usual(&[(2.0, 1.0), (3.0, 1.5)]);
        for ended in [Ended::Unknown, Ended::Killed { signal: 6 }, Ended::NeverEntered] {
            assert!(judged(&seen(ended, STUCK), &system), "{ended:?}");
        }
        let after_work = Sighting { cpu_s: 0.7, still_s: 40.0, ..STUCK };
        assert!(judged(&seen(Ended::Unknown, after_work), &system), "in the midst of its work");
        assert!(
            !judged(&seen(Ended::Unknown, Sighting { still_s: 25.0, ..after_work }), &system),
            "not long enough"
        );
    }

    #[test]
    fn what_ends_by_itself_or_works_or_waits_for_input_did_not_hang() {
        let system = usual(&[(2.0, 1.0), (3.0, 1.5)]);
        assert!(!judged(&seen(Ended::Clean { status: Some(0) }, STUCK), &system));
        assert!(!judged(&seen(Ended::Signal { signal: 11 }, STUCK), &system), "a crash is one already");
        assert!(
            !judged(&seen(Ended::Unknown, Sighting { locked: false, ..STUCK }), &system),
            "input, a timer, the network"
        );
        let was_a_shell = Sighting { lived_s: 9000.0, still_s: 0.0, ..STUCK };
        assert!(
            !judged(&seen(Ended::Unknown, was_a_shell), &system),
            "it became the program by exec, a moment ago"
        );
        let nobody_looked = Sample { ended: Ended::Unknown, ..Sample::default() };
        assert!(!judged(&nobody_looked, &system));
    }

    #[test]
    fn a_program_that_has_to_be_killed_under_system_shows_nothing() {
        let sample = seen(Ended::Unknown, STUCK);
        assert!(!judged(&sample, &usual(&[(2.0, 1.0)])), "one start is too few");
        let mut system = usual(&[(2.0, 1.0), (3.0, 1.0)]);
        system.push(Sample { ended: Ended::Unknown, ..Sample::default() });
        assert!(!judged(&sample, &system), "a server, or one that somebody stopped");
        system.last_mut().unwrap().ended = Ended::Signal { signal: 11 };
        assert!(judged(&sample, &system), "a crash shortens a life");
    }

    #[test]
    fn standing_still_is_added_up_from_look_to_look() {
        let look = |lived_s, cpu_s, locked| Sighting { lived_s, cpu_s, locked, still_s: 0.0 };
        let first = Sighting::then(None, look(5.0, 1.0, true));
        assert_eq!(first.still_s, 0.0);
        let second = Sighting::then(Some(first), look(12.0, 1.0, true));
        assert_eq!(second.still_s, 7.0);
        assert_eq!(Sighting::then(Some(second), look(20.0, 1.0, true)).still_s, 15.0);
        assert_eq!(Sighting::then(Some(second), look(20.0, 1.01, true)).still_s, 0.0, "it went on");
        assert_eq!(
            Sighting::then(Some(second), look(20.0, 1.0, false)).still_s,
            0.0,
            "it waits for something else"
        );
    }

    fn starts() -> impl Strategy<Value = Vec<Sample>> {
        prop::collection::vec((0.0..1e5_f64, 0.0..1e5_f64), 0..6).prop_map(|lives| usual(&lives))
    }

    fn sightings() -> impl Strategy<Value = Sighting> {
        (0.0..1e6_f64, 0.0..1e5_f64, 0.0..1.0_f64, any::<bool>()).prop_map(
            |(lived_s, cpu_s, part, locked)| Sighting { lived_s, cpu_s, still_s: lived_s * part, locked },
        )
    }

    proptest! {
        #[test]
        fn nobody_hung_who_was_stopped_before_ten_times_the_longest_life(seen_s in sightings(), system in starts()) {
            let longest = system.iter().map(|sample| sample.wall_s).fold(0.0, f64::max);
            let early = Sighting { lived_s: seen_s.lived_s.min(patience_s(longest)), still_s: seen_s.still_s.min(patience_s(longest)), ..seen_s };
            prop_assert!(!judged(&seen(Ended::Unknown, early), &system));
        }

        #[test]
        fn one_more_start_under_system_that_was_killed_clears(seen_s in sightings(), mut system in starts()) {
            system.push(Sample::default());
            prop_assert!(!judged(&seen(Ended::Unknown, seen_s), &system));
        }

        #[test]
        fn a_longer_life_under_system_never_convicts(seen_s in sightings(), mut system in starts(), longer_s in 0.0..1e6_f64) {
            let before = judged(&seen(Ended::Unknown, seen_s), &system);
            if let Some(sample) = system.first_mut() { sample.wall_s += longer_s; }
            prop_assert!(before || !judged(&seen(Ended::Unknown, seen_s), &system));
        }

        #[test]
        fn only_who_waits_for_a_lock_and_did_not_end_by_itself_hung(seen_s in sightings(), system in starts(), status in 0..256) {
            let clean = Ended::Clean { status: Some(status) };
            prop_assert!(!judged(&seen(clean, seen_s), &system));
            let unlocked = Sighting { locked: false, ..seen_s };
            prop_assert!(!judged(&seen(Ended::Unknown, unlocked), &system));
        }
    }
}
