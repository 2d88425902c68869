// SPDX-License-Identifier: Apache-2.0
//! Algorithms 8, 9 and 10 as tables, worked by hand.

use super::*;
use crate::candidate::{Candidate, CountedSample, TrialRecord};
use crate::sample::{Ended, MemoryFigures, OpFigures, Sample};

const NO_WAIT: Limits = Limits { max_tests: 5, retest_s: 0.0 };

fn test(ns_per_op: f64, frag: f64, heap_bytes: f64) -> CountedSample {
    CountedSample { ns_per_op, frag, heap_bytes }
}

/// A trial of `candidate` with a heap of 1,000 bytes, `live` of them in use, and mallocs of 4 *
/// `ns_per_op`.
fn trial(time_s: f64, candidate: &str, ns_per_op: f64, live: u64) -> TrialRecord {
    TrialRecord {
        sample: Sample {
            trial_id: format!("{time_s}"),
            candidate: candidate.into(),
            served: candidate.into(),
            made_unix_s: time_s,
            malloc: OpFigures { calls: 9, sampled: 1, mean_ns: 4.0 * ns_per_op, ..OpFigures::default() },
            memory: MemoryFigures {
                snapshots: 1,
                heap_mean: 1000,
                live_mean: live,
                ..MemoryFigures::default()
            },
            ..Sample::default()
        },
        ..TrialRecord::default()
    }
}

fn catalogue() -> Vec<Candidate> {
    vec![
        Candidate::system(""),
        Candidate::new("hoard", "", &["hoard"]),
        Candidate::new("jemalloc", "", &["jemalloc"]),
    ]
}

fn known(ns_per_op: f64, frag: f64) -> TrialSummary {
    TrialSummary { count: 1, ns_per_op, frag, ..TrialSummary::default() }
}

fn tested(count: u32, last_test_s: f64) -> TrialSummary {
    TrialSummary { count, last_test_s: Some(last_test_s), ..TrialSummary::default() }
}

mod algorithm_8 {
    use super::*;

    #[test]
    fn averages_of_three_tests() {
        let mut summary = TrialSummary::default();
        for (time_s, test) in
            [(1.0, test(40.0, 0.5, 100.0)), (2.0, test(20.0, 0.1, 300.0)), (3.0, test(60.0, 0.3, 200.0))]
        {
            assert!(add(&mut summary, &test, time_s, &NO_WAIT));
        }
        assert_eq!((summary.count, summary.last_test_s), (3, Some(3.0)));
        assert!((summary.ns_per_op - 40.0).abs() < 1e-12);
        assert!((summary.frag - 0.3).abs() < 1e-12);
        assert!((summary.heap_bytes - 200.0).abs() < 1e-12);
    }

    #[test]
    fn the_sixth_test_does_not_enter() {
        let mut summary = TrialSummary::default();
        for time_s in [1.0, 2.0, 3.0, 4.0, 5.0] {
            assert!(add(&mut summary, &test(10.0, 0.1, 1.0), time_s, &NO_WAIT));
        }
        let before = summary;
        assert!(!add(&mut summary, &test(99.0, 0.9, 9.0), 6.0, &NO_WAIT));
        assert_eq!(summary, before);
    }

    #[test]
    fn a_test_before_the_wait_is_over_does_not_enter() {
        let limits = Limits::default();
        let mut summary = TrialSummary::default();
        assert!(add(&mut summary, &test(10.0, 0.1, 1.0), 1000.0, &limits));
        assert!(!add(&mut summary, &test(99.0, 0.9, 9.0), 4599.0, &limits));
        assert_eq!((summary.count, summary.last_test_s), (1, Some(1000.0)));
        assert!(add(&mut summary, &test(30.0, 0.1, 1.0), 4600.0, &limits));
        assert_eq!((summary.count, summary.ns_per_op), (2, 20.0));
    }

    #[test]
    fn trials_are_taken_in_order_of_time_whatever_order_they_come_in() {
        let limits = Limits { max_tests: 5, retest_s: 10.0 };
        let mut records =
            vec![trial(15.0, "hoard", 1.0, 500), trial(5.0, "hoard", 3.0, 700), trial(12.0, "hoard", 9.0, 0)];
        let forwards = fold(&records, &catalogue(), "", &limits);
        records.reverse();
        assert_eq!(fold(&records, &catalogue(), "", &limits), forwards);
        // 12 comes too soon after 5; 15 does not.
        assert_eq!((forwards[1].count, forwards[1].ns_per_op), (2, 2.0));
        assert!((forwards[1].frag - 0.4).abs() < 1e-12);
    }

    #[test]
    fn the_wait_of_a_trials_own_day_decides() {
        let mut records = [trial(0.0, "hoard", 1.0, 500), trial(60.0, "hoard", 3.0, 500)];
        let count = |records: &[TrialRecord]| fold(records, &catalogue(), "", &Limits::default())[1].count;
        assert_eq!(count(&records), 1, "a minute is less than the hour of today");
        records[1].retest_s = Some(0.0);
        assert_eq!(count(&records), 2, "but that day there was no wait");
    }

    #[test]
    fn candidates_without_trials_have_the_empty_summary() {
        let summaries = fold(&[trial(1.0, "hoard", 1.0, 1)], &catalogue(), "", &NO_WAIT);
        assert_eq!(summaries[0], TrialSummary::default());
        assert_eq!(summaries[2], TrialSummary::default());
        assert!(fold(&[], &[], "", &NO_WAIT).is_empty());
    }

    #[test]
    fn trials_of_a_candidate_that_left_the_catalogue_are_ignored() {
        let records = [trial(1.0, "scudo", 1.0, 1), trial(2.0, "hoard", 2.0, 1)];
        let counts: Vec<_> =
            fold(&records, &catalogue(), "", &NO_WAIT).iter().map(|summary| summary.count).collect();
        assert_eq!(counts, [0, 1, 0]);
    }

    #[test]
    fn crashed_passed_and_foreign_trials_never_enter_but_some_are_remembered() {
        let mut crashed = trial(1.0, "hoard", 1.0, 1);
        crashed.sample.ended = Ended::Signal { signal: 11 };
        let mut passed = trial(2.0, "hoard", 1.0, 1);
        passed.sample.pass_reason = Some("valgrind".into());
        let mut foreign = trial(3.0, "hoard", 1.0, 1);
        foreign.sample.served = "libc.so.6".into();
        let summary = fold(&[crashed, passed, foreign], &catalogue(), "", &NO_WAIT)[1];
        assert_eq!((summary.count, summary.void, summary.last_void_s), (0, 2, Some(3.0)));
        assert_eq!((summary.ns_per_op, summary.has_data()), (0.0, false));
    }
}

mod algorithm_9 {
    use super::*;

    fn picks(values: &[(f64, f64)]) -> Option<(usize, usize, usize)> {
        let summaries: Vec<_> = values.iter().map(|&(ns, frag)| known(ns, frag)).collect();
        analyse(&summaries, &vec![true; values.len()]).map(|p| (p.fastest, p.leanest, p.balanced))
    }

    /// Table 2 of the paper in spirit: four allocators. By time worst first: 2 (90), 0 (70), 3 (60), 1 (50);
    /// by fragmentation worst first: 3 (.4), 2 (.3), 1 (.2), 0 (.1).
    ///
    /// | candidate | rank time | rank memory | sum |
    /// | 0 | 2 | 4 | 6 |
    /// | 1 | 4 | 3 | 7 |
    /// | 2 | 1 | 2 | 3 |
    /// | 3 | 3 | 1 | 4 |
    #[test]
    fn the_highest_sum_of_ranks_is_balanced() {
        assert_eq!(picks(&[(70.0, 0.1), (50.0, 0.2), (90.0, 0.3), (60.0, 0.4)]), Some((1, 0, 1)));
    }

    /// Ranks 0: 1 + 3, 1: 2 + 2, 2: 3 + 1: all sums are 4, and 0 has the highest memory rank.
    #[test]
    fn a_tie_goes_to_the_higher_memory_rank() {
        assert_eq!(picks(&[(30.0, 0.1), (20.0, 0.2), (10.0, 0.3)]), Some((2, 0, 0)));
        assert_eq!(picks(&[(10.0, 0.3), (20.0, 0.2), (30.0, 0.1)]), Some((0, 2, 2)));
    }

    #[test]
    fn among_equals_the_first_candidate_ranks_best() {
        assert_eq!(picks(&[(10.0, 0.1), (10.0, 0.1), (10.0, 0.1)]), Some((0, 0, 0)));
        // 1 and 2 are equally fast and equally lean, and better than 0.
        assert_eq!(picks(&[(20.0, 0.2), (10.0, 0.1), (10.0, 0.1)]), Some((1, 1, 1)));
    }

    #[test]
    fn one_candidate_has_all_picks() {
        assert_eq!(picks(&[(10.0, 0.1)]), Some((0, 0, 0)));
        assert_eq!(picks(&[]), None);
    }

    #[test]
    fn candidates_without_data_or_not_eligible_take_no_part() {
        let summaries = [TrialSummary::default(), known(50.0, 0.5), known(10.0, 0.1)];
        let picks = analyse(&summaries, &[true, true, true]).unwrap();
        assert_eq!((picks.fastest, picks.leanest, picks.balanced), (2, 2, 2));
        let picks = analyse(&summaries, &[true, true, false]).unwrap();
        assert_eq!((picks.fastest, picks.leanest, picks.balanced), (1, 1, 1));
        assert_eq!(analyse(&summaries, &[true, false, false]), None);
        assert_eq!(analyse(&summaries, &[]), None);
    }

    proptest::proptest! {
        /// Against the paper's own loops, written out as printed. Values are distinct, where it is
        /// unambiguous.
        #[test]
        fn the_printed_example_is_reproduced(times in distinct(), frags in distinct()) {
            let n = times.len().min(frags.len());
            let values: Vec<_> = times.iter().zip(&frags).map(|(&t, &f)| (f64::from(t), f64::from(f))).collect();
            proptest::prop_assert_eq!(picks(&values), Some(printed(&values, n)));
        }
    }

    fn distinct() -> impl proptest::strategy::Strategy<Value = Vec<u16>> {
        use proptest::strategy::Strategy as _;
        proptest::collection::hash_set(0u16..1000, 6).prop_map(|set| set.into_iter().collect())
    }

    fn printed(values: &[(f64, f64)], n: usize) -> (usize, usize, usize) {
        let sorted = |key: fn(&(f64, f64)) -> f64| {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|&a, &b| key(&values[b]).total_cmp(&key(&values[a])));
            order
        };
        let (fastest, leanest) = (sorted(|v| v.0), sorted(|v| v.1));
        let (mut rank_fast, mut rank_lean, mut balanced) = (vec![0; n], vec![0; n], 0);
        for place in 0..n {
            rank_fast[fastest[place]] = place + 1;
            rank_lean[leanest[place]] = place + 1;
        }
        for i in 0..n {
            let x = rank_fast[balanced] + rank_lean[balanced];
            let y = rank_fast[i] + rank_lean[i];
            if y > x || (y == x && rank_lean[i] > rank_lean[balanced]) {
                balanced = i;
            }
        }
        (fastest[n - 1], leanest[n - 1], balanced)
    }
}

mod algorithm_10 {
    use super::*;

    const ALL: [bool; 4] = [true; 4];

    fn next(summaries: &[TrialSummary], last: Option<usize>) -> Option<usize> {
        next_test(summaries, last, &ALL[..summaries.len()], &Limits::default(), 10_000.0)
    }

    #[test]
    fn the_next_test_is_round_robin_from_the_last() {
        let none = [TrialSummary::default(); 4];
        for (last, expected) in [(None, 0), (Some(0), 1), (Some(2), 3), (Some(3), 0)] {
            assert_eq!(next(&none, last), Some(expected), "{last:?}");
        }
    }

    #[test]
    fn the_last_tested_candidate_comes_last() {
        let mut summaries = [tested(5, 0.0); 4];
        summaries[2] = tested(4, 0.0);
        assert_eq!(next(&summaries, Some(2)), Some(2));
    }

    #[test]
    fn a_finished_or_waiting_candidate_is_skipped() {
        let summaries = [tested(5, 0.0), tested(1, 9_000.0), tested(1, 6_401.0), tested(1, 6_400.0)];
        assert_eq!(next(&summaries, None), Some(3));
        assert_eq!(next(&summaries[..3], None), None, "test mode is off");
        assert_eq!(next(&[], None), None);
    }

    #[test]
    fn no_wait_is_allowed() {
        let summaries = [tested(5, 10_000.0), tested(4, 10_000.0)];
        assert_eq!(next_test(&summaries, Some(1), &ALL[..2], &NO_WAIT, 10_000.0), Some(1));
    }

    #[test]
    fn an_unusable_candidate_is_not_tested() {
        let none = [TrialSummary::default(); 3];
        let limits = Limits::default();
        assert_eq!(next_test(&none, Some(0), &[true, false, true], &limits, 1.0), Some(2));
        assert_eq!(next_test(&none, Some(0), &[false; 3], &limits, 1.0), None);
    }

    #[test]
    fn a_smaller_catalogue_starts_over() {
        assert_eq!(next(&[TrialSummary::default(); 2], Some(4)), Some(0));
    }

    #[test]
    fn trials_that_yield_nothing_come_to_an_end_and_wait_too() {
        let void = |void, last_void_s| TrialSummary {
            void,
            last_void_s: Some(last_void_s),
            ..TrialSummary::default()
        };
        assert_eq!(next(&[void(5, 0.0)], None), None);
        assert_eq!(next(&[void(4, 0.0)], None), Some(0));
        assert_eq!(next(&[void(1, 9_999.0)], None), None);
        let both = TrialSummary { last_void_s: Some(9_999.0), ..tested(1, 0.0) };
        assert_eq!(next(&[both], None), None);
    }

    /// Four candidates, five tests each, no wait: twenty trials in four times five, then test mode is off.
    #[test]
    fn twenty_trials_settle_four_candidates() {
        let mut summaries = [TrialSummary::default(); 4];
        let (mut last, mut order) = (None, vec![]);
        while let Some(i) = next_test(&summaries, last, &ALL, &NO_WAIT, 1.0) {
            add(&mut summaries[i], &test(1.0, 0.1, 1.0), 1.0, &NO_WAIT);
            order.push(i);
            assert!(order.len() <= 20, "test mode never ends");
            last = Some(i);
        }
        assert_eq!(order, [0, 1, 2, 3].repeat(5));
    }
}

#[test]
fn the_wait_is_over_exactly_at_its_end() {
    let limits = Limits::default();
    assert!(limits.wait_is_over(None, 0.0));
    assert!(!limits.wait_is_over(Some(100.0), 3699.0));
    assert!(limits.wait_is_over(Some(100.0), 3700.0));
    assert!(limits.wait_is_over(Some(9e9), 3700.0));
}

#[test]
fn no_wait_is_allowed() {
    assert!(Limits { retest_s: 0.0, ..Limits::default() }.wait_is_over(Some(100.0), 100.0));
}

#[test]
fn worked_by_hand() {
    for (avg, count, x, expected) in [
        (0.0, 0, 7.0, 7.0),
        (123.0, 0, 7.0, 7.0),
        (4.0, 1, 8.0, 6.0),
        (6.0, 2, 12.0, 8.0),
        (8.0, 3, 0.0, 6.0),
    ] {
        assert_eq!(average(avg, count, x), expected, "{avg} {count} {x}");
    }
}

#[test]
fn huge_values_do_not_overflow() {
    assert_eq!(average(f64::MAX, 1, f64::MAX), f64::MAX);
}

#[test]
fn each_pressure_has_its_pick() {
    let table = [
        (75.0, 100.0, 100.0, 50.0, Pick::Fastest),
        (74.9, 100.0, 100.0, 50.0, Pick::Balanced),
        (75.0, 99.0, 100.0, 50.0, Pick::Balanced),
        (75.0, 10.0, 100.0, 50.0, Pick::Balanced),
        (10.0, 49.0, 100.0, 50.0, Pick::Leanest),
        (10.0, 50.0, 100.0, 50.0, Pick::Balanced),
        (800.0, 100.0, 0.0, 0.0, Pick::Fastest),
    ];
    for (load, free, fastest, leanest, expected) in table {
        assert_eq!(choose(load, free, fastest, leanest), expected, "{load} {free} {fastest} {leanest}");
    }
}

#[test]
fn load_is_per_cpu() {
    assert_eq!(cpu_load_pct(3.0, 4), 75.0);
    assert_eq!(cpu_load_pct(0.5, 0), 50.0);
}
