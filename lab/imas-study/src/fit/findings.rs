// SPDX-License-Identifier: Apache-2.0
//! The paper's results, judged by our runs. Its general claims about the policies are in `claims`.

use super::claims;
use super::claims::{PrintedRun, RUNS, STATISTICS, TEST2_QUICKER_MS, TEST2_SLOWER_MS, TEST2_SYSTEM_MS};
use super::runs::Runs;
use super::runs::Subject;
use crate::band::Band;
use crate::band::ratio;
use crate::verdict::{Finding, Reproduction};

pub(crate) fn findings(runs: &Runs) -> Vec<Finding> {
    let mut all: Vec<Finding> = RUNS.iter().map(|printed| printed_run(runs, printed)).collect();
    all.extend([indistinguishable(runs), slower_than_system(runs), order_in_test_2(runs)]);
    all.extend(claims::findings(runs));
    all
}

fn statistics(runs: &Runs, test: usize, policy: Subject) -> [Option<u64>; 9] {
    STATISTICS.map(|key| runs.exact(test, policy, key))
}

fn printed_run(runs: &Runs, printed: &PrintedRun) -> Finding {
    let same = |policy: &&Subject| statistics(runs, printed.test, **policy) == printed.statistics.map(Some);
    let matching = Subject::POLICIES.iter().filter(same).count();
    Finding {
        claim: format!("Test {}, {}: nine statistics, the same under all policies", printed.test, printed.what),
        printed: printed.statistics.map(|n| n.to_string()).join(" "),
        ours: format!("the same digits under {matching} of 4 policies"),
        verdict: Reproduction::holds(matching == Subject::POLICIES.len()),
        remark: "Mallocs, frees, reuses, grows, splits, coalesces, blocks, requested, max heap; stdio's buffer of \
                 1,024 bytes, which a terminal gets, is one of the mallocs."
            .to_owned(),
    }
}

/// Whether the four policies have four different medians of the figure.
fn all_differ(runs: &Runs, test: usize, key: &str) -> bool {
    let median = |policy| runs.band(test, policy, key).map_or(0, |b| b.median.to_bits());
    let mut medians = Subject::POLICIES.map(median).to_vec();
    medians.sort_unstable();
    medians.dedup();
    medians.len() == Subject::POLICIES.len()
}

fn indistinguishable(runs: &Runs) -> Finding {
    let keys = ["placement", "fragmentation_ppm", "growth_bytes", "max_heap_bytes"];
    let telling = (4..).zip(keys).filter(|(test, key)| all_differ(runs, *test, key)).count();
    Finding {
        claim: "Whatever the policy, the statistics of all eight tests are the same".to_owned(),
        printed: "identical statistics".to_owned(),
        ours: format!("identical in the paper's tests; four different medians in {telling} of tests 4 to 7"),
        verdict: Reproduction::holds(telling == 0),
        remark: "In the printed tests at most one free block fits at any time, so there is nothing to choose; where \
                 there is, the policies part."
            .to_owned(),
    }
}

fn slower_than_system(runs: &Runs) -> Finding {
    let pooled: Vec<f64> =
        Subject::POLICIES.iter().flat_map(|policy| runs.ratios(2, *policy, "cpu_us")).collect();
    let ours = Band::of(&pooled);
    let printed = (TEST2_SLOWER_MS + TEST2_QUICKER_MS) / 2.0 / TEST2_SYSTEM_MS;
    Finding {
        claim: "Test 2 takes longer with the custom malloc than with the system's".to_owned(),
        printed: format!("12 to 13 against 8 ms, ratio {printed:.2}"),
        ours: format!("ratio {}", ratio(ours)),
        verdict: ours.map_or(Reproduction::NotReproduced, |band| Reproduction::of_ratio(printed, band)),
        remark:
            "One system call for each of 1,026 grows, where the system's malloc asks for 132 KiB at a time, \
                 beside the start of a process that both pay."
                .to_owned(),
    }
}

fn order_in_test_2(runs: &Runs) -> Finding {
    let share = |quick, slow| runs.share_below(2, "cpu_us", quick, slow);
    let pairs = [
        (Subject::Next, Subject::First),
        (Subject::Next, Subject::Best),
        (Subject::Worst, Subject::First),
        (Subject::Worst, Subject::Best),
    ];
    let shares = pairs.map(|(quick, slow)| share(quick, slow));
    let text = shares.map(|s| format!("{:.0}", s * 100.0)).join(", ");
    Finding {
        claim: "In test 2 next and worst fit are quicker than first and best fit".to_owned(),
        printed: "12 against 13 ms".to_owned(),
        ours: format!(
            "quicker in {text} % of the seeds (next over first, over best, worst over first, over best)"
        ),
        verdict: Reproduction::holds(shares.iter().all(|s| *s >= claims::MOST)),
        remark:
            "The four do the same work in test 2: one search of a list of 513 blocks or fewer; a millisecond \
                 between single runs is noise."
                .to_owned(),
    }
}
