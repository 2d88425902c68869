// SPDX-License-Identifier: Apache-2.0
//! The course of a bench of a server whose number of runs is not fixed: the runs that `imas_core` wants next are made
//! until it ends, and what is known so far is shown.

use std::time::Instant;

use anyhow::Result;
use imas_cli::format::{counted, seconds};
use imas_cli::message;
use imas_core::SYSTEM;
use imas_core::server_bench::course::{CourseEnd, CourseOptions, NextRuns, runs_of_a_course};
use imas_core::server_bench::{ServiceComparison, ServiceOptions, compare_services};
use imas_engine::prices;
use imas_linux::runtime::Runtime;
use imas_report::service::{leanest, so_far};
use imas_runs::executor::Executor;
use imas_runs::runner::{Runner, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};

use super::service_rounds::BenchRounds;

/// A course of runs.
pub(super) struct Course<'a> {
    pub(super) names: &'a [String],
    pub(super) options: ServiceOptions,
    pub(super) course: CourseOptions,
    /// Runs under `system` before the first that counts.
    pub(super) warmup: u32,
    pub(super) seed: u64,
    /// Runtime of the server, by which candidates have their expectations.
    pub(super) runtime: Option<Runtime>,
    /// Plan and time go to standard error.
    pub(super) is_told: bool,
}

impl Course<'_> {
    /// Runs of a course as it usually is, and at most.
    pub(super) fn planned(&self) -> (usize, usize) {
        let (usual, most) = runs_of_a_course(self.names.len().saturating_sub(1), self.course.looks);
        (usual + self.warmup as usize, most + self.warmup as usize)
    }

    /// Makes the runs. Returns how the session ended, and how the course did if it was not cut short.
    pub(super) fn make(
        &self,
        runner: &mut Runner<'_>,
        executor: &mut dyn Executor,
        rounds: &mut BenchRounds<'_>,
    ) -> Result<(SessionEnd, Option<CourseEnd>)> {
        let of = |name: &str| self.names.iter().position(|one| one == name).unwrap_or(0);
        let warm = Step { subject: 0, candidate: of(SYSTEM), kind: RoundKind::Warmup };
        self.tell(|| self.plan());
        let mut ended = runner.run(std::iter::repeat_n(warm, self.warmup as usize), executor, rounds)?;
        while ended == SessionEnd::Finished {
            let comparison = compare_services(self.names, rounds.runs(), &self.options);
            let (round, names) = match NextRuns::after(rounds.runs(), &comparison, &self.course) {
                NextRuns::System => (0, vec![SYSTEM.to_owned()]),
                NextRuns::Candidates(names) => (0, self.by_expectation(names)),
                NextRuns::Round(round, names) => (round, [vec![SYSTEM.to_owned()], names].concat()),
                NextRuns::End(end) => return Ok((ended, Some(end))),
            };
            rounds.so_far = firmer(&comparison);
            let began = Instant::now();
            let order = match round {
                0 => (0..names.len()).collect(),
                _ => schedule::candidates("", names.len(), round, self.seed),
            };
            let kind = RoundKind::Measured { round };
            let steps = order.into_iter().map(|at| Step { subject: 0, candidate: of(&names[at]), kind });
            ended = runner.run(steps, executor, rounds)?;
            if rounds.runs().len() == 1 {
                self.tell(|| self.time(began.elapsed().as_secs_f64()));
            }
        }
        Ok((ended, None))
    }

    /// The candidates of the first round, the best expectation first: a bench that is cut short has compared these.
    fn by_expectation(&self, mut names: Vec<String>) -> Vec<String> {
        let rank = |name: &String| prices::rank(name, self.runtime);
        names.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        names
    }

    fn tell(&self, text: impl Fn() -> String) {
        if self.is_told {
            message::say(&text());
        }
    }

    /// Runs that will be made, before anything is known of the time.
    fn plan(&self) -> String {
        let others = counted(self.names.len().saturating_sub(1), "candidate");
        let (usual, most) = self.planned();
        format!(
            "imas: one run under system, which may be the answer; then one of each of {others}, and more of the best: \
             about {usual} runs, at most {most}; ^C prints the best answer so far"
        )
    }

    /// How long that takes, after one run of so many seconds.
    fn time(&self, run_s: f64) -> String {
        let first = self.names.len();
        let (usual, most) = self.planned();
        let of = |runs: usize| seconds(run_s * runs.saturating_sub(1) as f64);
        format!(
            "imas: a run takes {}: {first} runs end in {}, {usual} in {}, {most} in {}",
            seconds(run_s),
            of(first),
            of(usual),
            of(most)
        )
    }
}

/// The best answer so far, in a few words.
fn firmer(comparison: &ServiceComparison) -> Option<String> {
    leanest(comparison).map(|one| so_far(comparison, one))
}
