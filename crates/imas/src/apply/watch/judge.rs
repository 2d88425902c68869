// SPDX-License-Identifier: Apache-2.0
//! Decides from the record alone whether the change of a watched unit is taken back.

use imas_cli::format::span;
use imas_core::compare::{
    Answer, ERROR, EventCount, KnownFigure, chance_of_events, judge, smallest_difference,
};
use imas_core::printable::counted;
use imas_core::stats::median;

use super::figures::{After, Before, MemoryPoint, WatchRecord, whole};

/// Bytes by which a unit's memory must stay above the earlier maximum during a whole window to prove the unit worse,
/// beside the share of `highest` in the table of margins.
const LEAST_BYTES: u64 = 4 << 20;
/// A start may take this long, or `START_FACTOR` times as long as before.
const LONGEST_START_S: f64 = 90.0;
const START_FACTOR: f64 = 5.0;
/// Windows in the time of a watch.
const WINDOWS: f64 = 60.0;
const SHORTEST_WINDOW_S: f64 = 5.0;
const LONGEST_WINDOW_S: f64 = 600.0;
/// Number of parts of a watch before its second half. The first begins with the watch, and each of the others lasts as
/// long as all before it.
const EARLY_PARTS: f64 = 9.0;

/// Length of a window. Memory must be higher for this long to count as higher.
pub(super) fn window_s(watch_s: f64) -> f64 {
    (watch_s / WINDOWS).clamp(SHORTEST_WINDOW_S, LONGEST_WINDOW_S)
}

/// The reason to take the change back now, if there is one.
pub(super) fn reason_to_go_back(record: &WatchRecord, watched_s: f64) -> Option<String> {
    let (before, after) = (&record.before, &record.after);
    if let Some(why) = &after.down {
        return Some(format!("it is down: {why}"));
    }
    if after.starting_s > LONGEST_START_S.max(before.start_s * START_FACTOR) {
        return Some(format!("its start has not ended after {}", span(after.starting_s)));
    }
    crashes_more(record, watched_s).or_else(|| takes_more(before, after)).or_else(|| is_unserved(after))
}

/// Windows in a row in which the candidate must be missed: a process may be at its start in one.
const UNSERVED_WINDOWS: u32 = 2;

/// Reason against a candidate that does not serve: the gain of the restart alone is not its gain.
fn is_unserved(after: &After) -> Option<String> {
    let process = after.unserved.as_ref().filter(|_| after.unserved_windows >= UNSERVED_WINDOWS)?;
    Some(format!("the candidate does not serve in {process}, which holds the most memory"))
}

fn crashes_more(record: &WatchRecord, watched_s: f64) -> Option<String> {
    let (before, after) = (&record.before, &record.after);
    let failures = after.failures + after.oom_kills;
    let count = |events, seconds| EventCount { events, seconds };
    let earlier = count(before.failures, before.observed_s);
    let part = WatchPart::at(watched_s, record.watch_s);
    if chance_of_events(earlier, count(failures, part.end_s)) >= ERROR * part.share {
        return None;
    }
    Some(format!(
        "it failed {} in {}, {} in {} before",
        counted(failures, "time"),
        span(watched_s),
        counted(before.failures, "time"),
        span(before.observed_s)
    ))
}

/// A part of a watch, in which failures are tested once. A test at each look would err far more often than one.
struct WatchPart {
    /// Failures count as if this time had passed: what is too many for the whole part is so before its end.
    end_s: f64,
    /// Share of the allowed error. The second half of the watch has half of it and the parts before have the other
    /// half, so by the union bound all of them err as often as one test.
    share: f64,
}

impl WatchPart {
    /// The part in which the watch is after that time.
    fn at(watched_s: f64, watch_s: f64) -> Self {
        let halvings = (watch_s / watched_s).log2().floor().clamp(0.0, EARLY_PARTS);
        let share = if halvings < 1.0 { 0.5 } else { 0.5 / EARLY_PARTS };
        Self { end_s: (watch_s / halvings.exp2()).max(watched_s), share }
    }
}

/// Memory grows with age. So a unit can be proven worse only while it is not older than it was before the
/// change.
fn takes_more(before: &Before, after: &After) -> Option<String> {
    let highest = before.highest_bytes?.max(before.memory_bytes?);
    let last = after.points.last().filter(|last| last.age_s <= before.age_s)?;
    let ratio = last.least_bytes as f64 / highest.max(1) as f64;
    let is_worse = judge(KnownFigure::Ratio(ratio), smallest_difference("highest")) == Answer::Worse;
    (is_worse && last.least_bytes > highest + LEAST_BYTES).then(|| {
        format!(
            "it takes {} after {}, and never had more than {} in {} before",
            mebibytes(last.bytes),
            span(last.age_s),
            mebibytes(highest),
            span(before.age_s)
        )
    })
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The result of the watch for a unit whose change stays.
pub(super) fn gains(record: &WatchRecord) -> String {
    let (before, after) = (&record.before, &record.after);
    let over = span(record.watch_s);
    let memory = match memory_ratio(before, after) {
        Some(ratio) => {
            format!("{} over {over}{}", change(ratio, "memory", "memory"), age_note(before, after))
        }
        None if after.points.is_empty() && after.age_s == 0.0 => {
            format!("{} over {over}; it did not run", failures_of(after))
        }
        None => format!("{} over {over}; its memory cannot be compared", failures_of(after)),
    };
    let cpu = cpu_per_work(before, after)
        .map(|ratio| format!(", {} for the same work", change(ratio, "CPU", "cpu")));
    memory + &cpu.unwrap_or_default() + &still_growing(after).unwrap_or_default()
}

fn failures_of(after: &After) -> String {
    match after.failures + after.oom_kills {
        0 => "no failure".to_owned(),
        failures => counted(failures, "failure"),
    }
}

/// Growth of the memory in the later half of the watch, in bytes per hour, if it still grows.
fn still_growing(after: &After) -> Option<String> {
    let half = &after.points[after.points.len() / 2..];
    let (first, last) = (half.first()?, half.last()?);
    let hours = (last.age_s - first.age_s) / 3600.0;
    let grown = last.bytes as f64 - first.bytes as f64;
    let ratio = last.bytes as f64 / first.bytes.max(1) as f64;
    let is_much =
        hours > 0.0 && judge(KnownFigure::Ratio(ratio), smallest_difference("grows")) == Answer::Worse;
    is_much.then(|| format!("; it still grows, by {} an hour", mebibytes(whole(grown / hours))))
}

/// Ratio of the memory at the end to that before, at the same age if possible.
fn memory_ratio(before: &Before, after: &After) -> Option<f64> {
    let as_young: Vec<&MemoryPoint> = after.points.iter().filter(|p| p.age_s <= before.age_s).collect();
    let last = as_young.len().checked_sub(1)?;
    let at_the_end = &as_young[last - last / 4..];
    let bytes: Vec<f64> = at_the_end.iter().map(|point| point.bytes as f64).collect();
    let was = before.memory_bytes.filter(|bytes| *bytes > 0)?;
    Some(median(&bytes)? / was as f64)
}

fn age_note(before: &Before, after: &After) -> String {
    let last = after.points.last().map_or(0.0, |point| point.age_s);
    match before.age_s {
        age if age > last * 2.0 => format!(" (before: after {})", span(age)),
        age if age < last / 2.0 => format!(" (both at the age of {})", span(age)),
        _ => String::new(),
    }
}

/// Ratio of the CPU time per unit of work to that before. The value before is known only if the counter
/// starts anew with the unit.
fn cpu_per_work(before: &Before, after: &After) -> Option<f64> {
    let ([first, first_cpu], [last, last_cpu]) = (after.work_first?, after.work_last?);
    let was = before.work.filter(|work| *work > first)?;
    let done = (last - first, last_cpu - first_cpu);
    let now = (done.0 > 0.0 && done.1 > 0.0).then(|| done.1 / done.0)?;
    let earlier = before.cpu_s.filter(|cpu| *cpu > 0.0)? / was;
    Some(now / earlier)
}

fn change(ratio: f64, what: &str, figure: &str) -> String {
    match judge(KnownFigure::Ratio(ratio), smallest_difference(figure)) {
        Answer::Better => format!("{:.0} % less {what}", (1.0 - ratio) * 100.0),
        Answer::Worse => format!("{:.0} % more {what}", (ratio - 1.0) * 100.0),
        Answer::NotShown => format!("as much {what} as before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: f64 = 86400.0;

    fn record(before: Before, after: After) -> WatchRecord {
        WatchRecord {
            unit: "x.service".into(),
            candidate: "jemalloc".into(),
            begun_unix_s: 0.0,
            watch_s: DAY_S,
            before,
            after,
            ..WatchRecord::default()
        }
    }

    fn before() -> Before {
        Before {
            age_s: 2.0 * DAY_S,
            memory_bytes: Some(100 << 20),
            highest_bytes: Some(120 << 20),
            observed_s: DAY_S,
            ..Before::default()
        }
    }

    fn points(mib: &[u64]) -> After {
        let point = |(at, mib): (usize, &u64)| MemoryPoint {
            age_s: at as f64 * 600.0,
            bytes: mib << 20,
            least_bytes: mib << 20,
        };
        After { points: mib.iter().enumerate().map(point).collect(), ..After::default() }
    }

    #[test]
    fn one_crash_at_once_after_days_without_one_is_too_many() {
        let crashed = |failures| record(before(), After { failures, ..After::default() });
        let why = reason_to_go_back(&crashed(1), 5.0).unwrap();
        assert_eq!(why, "it failed 1 time in 5 s, 0 times in 24 h before");
        assert_eq!(reason_to_go_back(&crashed(1), DAY_S), None, "one failure a day may be chance");
        assert!(reason_to_go_back(&crashed(6), DAY_S).is_some());
        assert_eq!(reason_to_go_back(&crashed(0), 5.0), None);
    }

    #[test]
    fn a_unit_that_crashed_as_often_before_is_not_rolled_back() {
        let hourly = Before { failures: 24, ..before() };
        let crashed = |failures| record(hourly.clone(), After { failures, ..After::default() });
        assert_eq!(reason_to_go_back(&crashed(24), DAY_S), None);
        assert!(reason_to_go_back(&crashed(48), DAY_S).is_some());
        assert!(reason_to_go_back(&crashed(3), 60.0).is_some(), "three failures within a minute");
    }

    /// Times of failures within two days, seconds: 24 a day, by chance.
    fn failures_by_chance(state: &mut u64) -> Vec<f64> {
        let mut draw = || {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut at_s = 0.0;
        let next = || {
            at_s -= (1.0 - draw()).ln() * DAY_S / 24.0;
            Some(at_s).filter(|at_s| *at_s < 2.0 * DAY_S)
        };
        std::iter::from_fn(next).collect()
    }

    /// Whether a unit with these failures is taken back by a look in the second of the two days.
    fn is_taken_back(failures: &[f64]) -> bool {
        let count = |from_s: f64, to_s: f64| {
            let within = failures.iter().filter(|at_s| **at_s > from_s && **at_s <= to_s);
            u32::try_from(within.count()).unwrap()
        };
        let before = Before { failures: count(0.0, DAY_S), ..before() };
        let goes_back = |look_s: f64| {
            let after = After { failures: count(DAY_S, DAY_S + look_s), ..After::default() };
            reason_to_go_back(&record(before.clone(), after), look_s).is_some()
        };
        let at_failures = failures.iter().map(|at_s| at_s - DAY_S).filter(|look_s| *look_s > 0.0);
        at_failures.chain([DAY_S / 2.0 + 1.0, DAY_S]).any(goes_back)
    }

    #[test]
    fn of_units_that_fail_as_before_one_in_twenty_is_taken_back_at_most() {
        let mut state = 7;
        let taken_back = (0..1000).filter(|_| is_taken_back(&failures_by_chance(&mut state))).count();
        assert!((1..=50).contains(&taken_back), "{taken_back} of 1000");
    }

    #[test]
    fn a_unit_that_is_down_goes_back_whatever_was_before() {
        let after = After { down: Some("signal".into()), ..After::default() };
        assert!(reason_to_go_back(&record(Before::default(), after), 1.0).unwrap().contains("signal"));
    }

    #[test]
    fn a_candidate_that_does_not_serve_goes_back() {
        let after = |unserved_windows| After {
            unserved: Some("process 7 (/usr/bin/web)".into()),
            unserved_windows,
            ..After::default()
        };
        assert_eq!(reason_to_go_back(&record(before(), after(1)), 600.0), None, "it may be starting");
        let why = reason_to_go_back(&record(before(), after(2)), 600.0).unwrap();
        assert_eq!(
            why,
            "the candidate does not serve in process 7 (/usr/bin/web), which holds the most memory"
        );
    }

    #[test]
    fn a_start_that_hangs_goes_back() {
        let after = |starting_s| After { starting_s, ..After::default() };
        let why = reason_to_go_back(&record(before(), after(91.0)), 91.0).unwrap();
        assert_eq!(why, "its start has not ended after 91 s");
        assert_eq!(reason_to_go_back(&record(before(), after(89.0)), 89.0), None);
        let slow = Before { start_s: 60.0, ..before() };
        assert_eq!(reason_to_go_back(&record(slow, after(299.0)), 299.0), None, "five times as long");
    }

    #[test]
    fn failures_below_the_limit_are_counted() {
        let kept = |after| gains(&record(Before::default(), after));
        let failed = After { failures: 1, oom_kills: 1, age_s: 5.0, ..After::default() };
        assert_eq!(kept(failed), "2 failures over 24 h; its memory cannot be compared");
        assert_eq!(kept(After::default()), "no failure over 24 h; it did not run");
    }

    #[test]
    fn more_memory_than_ever_at_a_younger_age_is_proven_worse() {
        let why = reason_to_go_back(&record(before(), points(&[80, 140])), 1200.0).unwrap();
        assert_eq!(why, "it takes 140 MiB after 10 min, and never had more than 120 MiB in 48 h before");
        assert_eq!(reason_to_go_back(&record(before(), points(&[80, 125])), 1200.0), None, "within 10 %");
        let young = Before { age_s: 60.0, ..before() };
        assert_eq!(
            reason_to_go_back(&record(young, points(&[80, 140])), 1200.0),
            None,
            "the growth may come from its age"
        );
    }

    #[test]
    fn the_gain_is_that_of_the_last_windows() {
        let kept = |after| gains(&record(before(), after));
        assert_eq!(kept(points(&[10, 60, 68, 69, 69])), "31 % less memory over 24 h (before: after 48 h)");
        assert_eq!(kept(points(&[101])), "as much memory as before over 24 h (before: after 48 h)");
        assert!(kept(After { age_s: 5.0, ..After::default() }).contains("cannot be compared"));
        let young = Before { age_s: 700.0, ..before() };
        let text = gains(&record(young, points(&[50, 50, 90, 90])));
        assert_eq!(text, "50 % less memory over 24 h (both at the age of 12 min)");
    }

    #[test]
    fn memory_that_still_grows_is_reported() {
        let text = gains(&record(before(), points(&[10, 20, 50, 60])));
        assert!(text.ends_with("; it still grows, by 60 MiB an hour"), "{text}");
        assert!(!gains(&record(before(), points(&[10, 49, 50, 51]))).contains("grows"));
    }

    #[test]
    fn cpu_is_compared_for_the_same_work_only() {
        let worked = |first, last| After {
            work_first: Some([first, 1.0]),
            work_last: Some([last, 11.0]),
            ..points(&[100])
        };
        let before = Before { work: Some(1000.0), cpu_s: Some(100.0), ..before() };
        let text = gains(&record(before.clone(), worked(0.0, 200.0)));
        assert!(text.ends_with(", 50 % less CPU for the same work"), "{text}");
        let lasting = gains(&record(before, worked(1001.0, 1200.0)));
        assert!(!lasting.contains("CPU"), "the counter did not restart with the unit: {lasting}");
    }
}
