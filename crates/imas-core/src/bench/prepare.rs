// SPDX-License-Identifier: Apache-2.0
//! Runs prepared for comparison: normalised CPU time, and marks on outliers.

use super::eligibility::Reference;
use super::run::CandidateRuns;
use crate::candidate::SYSTEM;
use crate::pace::{PaceCorrection, Paced};
use crate::run::RawRun;
use crate::stats::outliers;

/// Prepares the runs of one program for comparison: normalised CPU time, then marks on outliers.
pub fn prepare(candidates: &mut [CandidateRuns]) {
    normalise_pace(candidates);
    for candidate in candidates {
        mark_outliers(&mut candidate.runs);
    }
}

/// Writes the normalised CPU time into the runs of one program ([`PaceCorrection`]). It is learnt from those
/// that ended as one under `system` did: the time of a run that crashed or hung does not depend on the pace.
fn normalise_pace(candidates: &mut [CandidateRuns]) {
    let paced = |run: &RawRun| (run.cpu_s(), run.pace);
    let system = candidates.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
    let reference = Reference::of(system, &[]);
    let is_comparable = |run: &&RawRun| system.is_empty() || reference.is_expected(run);
    let groups: Vec<Vec<Paced>> =
        candidates.iter().map(|c| c.runs.iter().filter(is_comparable).map(paced).collect()).collect();
    let even = PaceCorrection::fit(&groups);
    for run in candidates.iter_mut().flat_map(|candidate| &mut candidate.runs) {
        run.even_cpu_s = run.pace.map(|_| even.cpu_s(paced(run)));
    }
}

/// Sets [`RawRun::outlier`]: of a candidate's runs, those whose elapsed or CPU time is an outlier among
/// them. They stay in the comparison, where medians keep them harmless, and become a warning.
fn mark_outliers(runs: &mut [RawRun]) {
    let wall = outliers(&runs.iter().map(|run| run.wall_s).collect::<Vec<_>>());
    let cpu = outliers(&runs.iter().map(RawRun::compared_cpu_s).collect::<Vec<_>>());
    for ((run, wall), cpu) in runs.iter_mut().zip(wall).zip(cpu) {
        run.outlier = Some(wall || cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;

    fn run(user_s: f64) -> RawRun {
        RawRun { user_s, wall_s: user_s, ..RawRun::default() }
    }

    #[test]
    fn a_run_on_a_slow_cpu_is_no_outlier_when_normalised() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of = |factor: f64| RawRun { pace: Some(slow(factor)), ..run(1.5 * factor.powf(1.6)) };
        let runs: Vec<RawRun> = [1.0, 1.02, 0.99, 1.01, 1.4].map(of).to_vec();
        let mut candidates = [CandidateRuns { name: "a".into(), runs }];
        candidates[0].runs.iter_mut().for_each(|run| run.wall_s = 2.0);
        prepare(&mut candidates);
        let [CandidateRuns { runs, .. }] = &candidates;
        assert!(runs.iter().all(|run| run.outlier == Some(false)), "{runs:?}");
        assert!((runs[4].compared_cpu_s() / runs[0].compared_cpu_s() - 1.0).abs() < 0.01);
        assert!(runs[4].cpu_s() > 2.0, "what the kernel counted stays");
    }

    #[test]
    fn runs_that_crashed_or_hung_do_not_hide_the_pace() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of = |cpu_s: f64, factor: f64, exit: i32| RawRun { pace: Some(slow(factor)), exit, ..run(cpu_s) };
        let steady: Vec<RawRun> =
            [1.0, 1.3, 0.9, 1.4].map(|factor: f64| of(factor.powf(1.6), factor, 0)).to_vec();
        let broken = [of(0.01, 1.0, 139), of(60.0, 0.9, 137), of(0.01, 1.4, 139), of(60.0, 1.0, 137)];
        let named = |name: &str, runs: &[RawRun]| CandidateRuns { name: name.into(), runs: runs.to_vec() };
        let mut candidates = [named(SYSTEM, &steady), named("broken", &broken)];
        prepare(&mut candidates);
        let even: Vec<f64> = candidates[0].runs.iter().map(RawRun::compared_cpu_s).collect();
        assert!(even.iter().all(|cpu_s| (cpu_s / even[0] - 1.0).abs() < 0.03), "{even:?}");
        assert!(candidates[1].runs.iter().all(|run| run.even_cpu_s.is_some()), "theirs is written, too");
    }

    #[test]
    fn an_odd_run_is_marked() {
        let mut runs: Vec<_> = [1.0, 1.01, 0.99, 1.02, 5.0].map(run).to_vec();
        runs[0].outlier = Some(true);
        mark_outliers(&mut runs);
        assert_eq!(
            runs.iter().map(|run| run.outlier).collect::<Vec<_>>(),
            [false, false, false, false, true].map(Some)
        );
    }
}
