// SPDX-License-Identifier: Apache-2.0
//! The figures that the paper prints, and its claims about the policies in general, judged by the tests in which they
//! differ.

use super::runs::Runs;
use super::runs::Subject;
use crate::band::{Band, per_cent_of_ppm, ratio, whole};
use crate::verdict::{Finding, Reproduction};

/// "In general" means in at least this share of the seeds.
pub(crate) const MOST: f64 = 0.75;

const FRAGMENTATION: (usize, &str) = (5, "fragmentation_ppm");
const GROWTH: (usize, &str) = (6, "growth_bytes");
const MAX_HEAP: (usize, &str) = (7, "max_heap_bytes");
const TIME: (usize, &str) = (8, "ns_per_operation");

pub(crate) fn findings(runs: &Runs) -> Vec<Finding> {
    vec![
        system_is_faster(runs),
        first_is_fastest(runs),
        next_is_fast(runs),
        next_fragments(runs),
        best_is_slow(runs),
        best_is_leanest(runs),
        worst_fragments(runs),
        worst_is_slow(runs),
    ]
}

/// Whether in at least [`MOST`] seeds the figure of `less` is below each figure of `others`.
fn below(runs: &Runs, (test, key): (usize, &str), less: Subject, others: &[Subject]) -> bool {
    others.iter().all(|more| runs.share_below(test, key, less, *more) >= MOST)
}

fn above(runs: &Runs, figure: (usize, &str), more: Subject, others: &[Subject]) -> bool {
    others.iter().all(|less| below(runs, figure, *less, &[more]))
}

/// The figure of every policy, in the order of the tables.
fn each(runs: &Runs, (test, key): (usize, &str), worded: fn(Option<Band>) -> String) -> String {
    let one = |policy: Subject| format!("{} {}", policy.name(), worded(runs.band(test, policy, key)));
    Subject::POLICIES.map(one).join(", ")
}

fn times(runs: &Runs) -> String {
    each(runs, TIME, whole) + " ns"
}

fn system_is_faster(runs: &Runs) -> Finding {
    let worded = |policy| ratio(Band::of(&runs.ratios(TIME.0, policy, TIME.1)));
    let ratios = Subject::POLICIES.map(|policy| format!("{} {}", policy.name(), worded(policy)));
    Finding {
        claim: "The system's malloc is superior in performance".to_owned(),
        printed: "faster than all four".to_owned(),
        ours: format!("time an operation over the system's: {}", ratios.join(", ")),
        verdict: Reproduction::holds(below(runs, TIME, Subject::System, &Subject::POLICIES)),
        remark: "Test 8: size classes against a walk over a list.".to_owned(),
    }
}

fn first_is_fastest(runs: &Runs) -> Finding {
    let others = [Subject::Next, Subject::Best, Subject::Worst];
    Finding {
        claim: "The best policy for speed is first fit".to_owned(),
        printed: "up to a certain extent".to_owned(),
        ours: times(runs),
        verdict: Reproduction::holds(below(runs, TIME, Subject::First, &others)),
        remark: "First fit walks over the crumbs at the start of the heap each time; next fit does not go back to \
                 them."
            .to_owned(),
    }
}

fn next_is_fast(runs: &Runs) -> Finding {
    Finding {
        claim: "Next fit allocates as fast as first fit, or faster".to_owned(),
        printed: "12 against 13 ms in test 2".to_owned(),
        ours: times(runs),
        verdict: Reproduction::holds(below(runs, TIME, Subject::Next, &[Subject::First])),
        remark: "Test 8, where there is a list to search.".to_owned(),
    }
}

fn next_fragments(runs: &Runs) -> Finding {
    Finding {
        claim: "Next fit is as prone to fragmentation as first fit".to_owned(),
        printed: "no figure".to_owned(),
        ours: each(runs, FRAGMENTATION, per_cent_of_ppm),
        verdict: if below(runs, FRAGMENTATION, Subject::First, &[Subject::Next]) {
            Reproduction::Differs
        } else {
            Reproduction::Reproduced
        },
        remark: "Differs when it is more prone: it cuts into every part of the heap in turn.".to_owned(),
    }
}

fn best_is_slow(runs: &Runs) -> Finding {
    Finding {
        claim: "Best fit takes longer to allocate than first and next fit".to_owned(),
        printed: "13 ms, as first fit, in test 2".to_owned(),
        ours: times(runs),
        verdict: Reproduction::holds(above(runs, TIME, Subject::Best, &[Subject::First, Subject::Next])),
        remark: "It walks the whole list unless a block fits exactly.".to_owned(),
    }
}

fn best_is_leanest(runs: &Runs) -> Finding {
    let others = [Subject::First, Subject::Next, Subject::Worst];
    let leanest = |figure| below(runs, figure, Subject::Best, &others);
    let wins = [FRAGMENTATION, GROWTH, MAX_HEAP].map(leanest);
    let count = wins.iter().filter(|won| **won).count();
    let verdict = match count {
        3 => Reproduction::Reproduced,
        0 => Reproduction::NotReproduced,
        _ => Reproduction::Differs,
    };
    Finding {
        claim: "The best policy for memory is best fit".to_owned(),
        printed: "highly resistant to fragmentation".to_owned(),
        ours: format!("leanest in {count} of 3 tests; largest heap: {} bytes", each(runs, MAX_HEAP, whole)),
        verdict,
        remark:
            "Tests 5, 6 and 7; where it is not the leanest, first fit in address order is as good, as a list \
                 in address order keeps large blocks at its end."
                .to_owned(),
    }
}

fn worst_fragments(runs: &Runs) -> Finding {
    let others = [Subject::First, Subject::Next, Subject::Best];
    let most = [FRAGMENTATION, GROWTH, MAX_HEAP].map(|figure| above(runs, figure, Subject::Worst, &others));
    Finding {
        claim: "Worst fit is extremely likely to suffer from fragmentation".to_owned(),
        printed: "no figure".to_owned(),
        ours: each(runs, FRAGMENTATION, per_cent_of_ppm),
        verdict: Reproduction::holds(most.iter().all(|m| *m)),
        remark: "Largest of the four in tests 5, 6 and 7: no large block survives.".to_owned(),
    }
}

fn worst_is_slow(runs: &Runs) -> Finding {
    let others = [Subject::First, Subject::Next, Subject::Best];
    Finding {
        claim: "Worst fit is unfavourable to speed".to_owned(),
        printed: "12 ms, the quickest, in test 2".to_owned(),
        ours: times(runs),
        verdict: Reproduction::holds(above(runs, TIME, Subject::Worst, &others)),
        remark: "Every request walks the whole list, and the list is the longest of the four.".to_owned(),
    }
}

/// The nine statistics in the paper's order, under the names of the driver.
pub(crate) const STATISTICS: [&str; 9] =
    ["mallocs", "frees", "reuses", "grows", "splits", "coalesces", "blocks", "requested", "max_heap"];

/// One of the three printed runs, the same under all four policies.
pub(crate) struct PrintedRun {
    pub(crate) test: usize,
    pub(crate) what: &'static str,
    pub(crate) statistics: [u64; 9],
}

pub(crate) const RUNS: [PrintedRun; 3] = [
    PrintedRun {
        test: 1,
        what: "a simple malloc and free",
        statistics: [2, 1, 0, 2, 0, 0, 2, 66_559, 66_560],
    },
    PrintedRun {
        test: 2,
        what: "exercise malloc and free",
        statistics: [1027, 514, 1, 1026, 1, 2, 1025, 1_180_670, 1_115_136],
    },
    PrintedRun { test: 3, what: "coalesce", statistics: [4, 3, 1, 3, 1, 2, 2, 5472, 3424] },
];

/// Test 2, "real": the system 8 ms, next and worst fit 12 ms, first and best fit 13 ms.
pub(crate) const TEST2_SYSTEM_MS: f64 = 8.0;
/// The higher of the policies' two printed times.
pub(crate) const TEST2_SLOWER_MS: f64 = 13.0;
/// The lower one.
pub(crate) const TEST2_QUICKER_MS: f64 = 12.0;
