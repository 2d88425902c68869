// SPDX-License-Identifier: Apache-2.0
//! `imas bench --least-memory`: the smallest limit of memory in which a server does its work, untouched, under each
//! candidate, and with the limit of its runtime's heap. `imas_core::least_memory` says which limit is tried next.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use imas_cli::format::{percent, size};
use imas_cli::message::{self, Hinted};
use imas_core::SYSTEM;
use imas_core::least_memory::{
    LeastEnd, LeastOptions, LeastSearch, LimitEnd, LimitRun, NextLimit, Unlimited, next_share,
};
use imas_core::run::RawRun;
use imas_core::server_bench::GuardRail;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::runtime::Runtime;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::service::{MemoryBound, MemoryLimits, ServiceError, ServiceExecutor};

use super::least_report::{LeastOfCandidate, LeastReport, best_of};
use super::progress;
use crate::command_line::bench_args::BenchArgs;

/// Hint where the limit of a group cannot be set.
const AS_USER: &str =
    "as root, or in a group of its own: systemd-run --user --scope -p Delegate=yes imas bench ...";
/// Time that a line of load may take within a limit, as a multiple of the longest cycle without one, and in seconds more.
const PATIENCE: (f64, f64) = (2.0, 5.0);

/// Limit of a runtime's heap that follows the limit of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeapShare {
    runtime: Runtime,
    /// Per cent of the group's limit.
    per_cent: u64,
}

impl HeapShare {
    /// Shares that are tried first for a runtime, per cent: the usual advice, and less where much of it is no heap.
    fn usual(runtime: Runtime) -> &'static [u64] {
        match runtime {
            Runtime::Jvm => &[75, 50],
            Runtime::Go => &[90],
            Runtime::Node => &[60],
            Runtime::Dotnet => &[75],
            _ => &[],
        }
    }

    /// The variable that sets it within a limit in bytes. A JVM takes what the user gives it as well.
    fn variable(self, limit: u64, inherited: &Variables) -> (String, String) {
        let mib = (limit * self.per_cent / 100) >> 20;
        let joined = |name: &str, own: String| {
            let before =
                inherited.get(std::ffi::OsStr::new(name)).map(|text| text.to_string_lossy().into_owned());
            (name.to_owned(), before.into_iter().chain([own]).collect::<Vec<_>>().join(" "))
        };
        match self.runtime {
            Runtime::Jvm => joined("JAVA_TOOL_OPTIONS", format!("-XX:MaxRAMPercentage={}", self.per_cent)),
            Runtime::Node => joined("NODE_OPTIONS", format!("--max-old-space-size={mib}")),
            // In hexadecimal digits, as .NET reads it.
            Runtime::Dotnet => ("DOTNET_GCHeapHardLimitPercent".to_owned(), format!("{:X}", self.per_cent)),
            _ => ("GOMEMLIMIT".to_owned(), format!("{mib}MiB")),
        }
    }
}

/// A candidate, and what is set beside it.
#[derive(Debug, Clone, Copy)]
struct Contender<'a> {
    candidate: &'a CatalogueCandidate,
    heap: Option<HeapShare>,
    /// The variable that sets the number of workers, and this number.
    workers: Option<(&'a str, u32)>,
}

impl<'a> Contender<'a> {
    fn plain(candidate: &'a CatalogueCandidate) -> Self {
        Self { candidate, heap: None, workers: None }
    }

    fn name(&self) -> String {
        let share = self.heap.map(|heap| format!(", heap {} % of the limit", heap.per_cent));
        let workers = self.workers.map(|(variable, number)| format!(", {variable}={number}"));
        let beside = share.into_iter().chain(workers).collect::<String>();
        format!("{}{beside}", self.candidate.name)
    }

    /// Variables beside the candidate within a limit in bytes.
    fn variables(&self, limit: Option<u64>, inherited: &Variables) -> Vec<(String, String)> {
        let heap = self.heap.zip(limit).map(|(heap, limit)| heap.variable(limit, inherited));
        let workers = self.workers.map(|(variable, number)| (variable.to_owned(), number.to_string()));
        heap.into_iter().chain(workers).collect()
    }
}

/// A server whose least limits are looked for.
pub(super) struct LeastMemory<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) executor: &'a ServiceExecutor,
    /// Candidates that can be used, `system` first.
    pub(super) candidates: Vec<&'a CatalogueCandidate>,
    /// Candidates that cannot, and why.
    pub(super) unusable: Vec<(String, String)>,
    pub(super) runtimes: BTreeSet<Runtime>,
    pub(super) words: Vec<String>,
    /// Function that makes the command's error of a run that cannot be made.
    pub(super) hinted: fn(ServiceError) -> anyhow::Error,
}

impl LeastMemory<'_> {
    pub(super) fn run(&self, interruption: &Interruption) -> Result<ExitCode> {
        let limits =
            self.executor.limit_memory().map_err(|error| Hinted::error(error.to_string(), AS_USER))?;
        let options = options(&self.args.server.at_most)?;
        let bar = progress::bar(0, self.args.look.style.has_live_line());
        let mut search = Search {
            bench: self,
            limits,
            options,
            unlimited: None,
            patience_s: None,
            found: vec![],
            began: Instant::now(),
            is_over: false,
            bar,
            interruption,
        };
        let signal = search.all()?;
        search.bar.finish_and_clear();
        let Search { unlimited, found, .. } = search;
        self.report(options, unlimited, found)?;
        Ok(signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(InterruptedBy(signal).exit_status())))
    }

    fn report(
        &self,
        options: LeastOptions,
        unlimited: Option<Unlimited>,
        found: Vec<LeastOfCandidate>,
    ) -> Result<()> {
        let service = self.executor.service();
        LeastReport::new(service, &self.words, &self.unusable, options, unlimited, found).write(self.args)
    }
}

/// Demands on a run by what `--at-most` allows.
fn options(at_most: &[GuardRail]) -> Result<LeastOptions> {
    let mut options = LeastOptions::default();
    for limit in at_most {
        if limit.figure != "p99" {
            let what = format!("--least-memory knows no limit on {}", limit.figure);
            return Err(Hinted::error(what, "limit the latency: --at-most p99+25%"));
        }
        options.p99 = limit.most;
    }
    Ok(options)
}

/// The runs of all contenders.
struct Search<'a> {
    bench: &'a LeastMemory<'a>,
    limits: MemoryLimits<'a>,
    options: LeastOptions,
    unlimited: Option<Unlimited>,
    /// Most seconds of a line of load.
    patience_s: Option<f64>,
    found: Vec<LeastOfCandidate>,
    began: Instant,
    /// Whether the time of `--max-time` is over.
    is_over: bool,
    bar: indicatif::ProgressBar,
    interruption: &'a Interruption,
}

impl<'a> Search<'a> {
    /// Searches for each candidate, then with the heaps of the runtimes under the best. Returns the signal that ended it.
    fn all(&mut self) -> Result<Option<i32>> {
        let bench = self.bench;
        for candidate in &bench.candidates {
            if let Some(signal) = self.one(Contender::plain(candidate))? {
                return Ok(Some(signal));
            }
            if self.unlimited.is_none() || self.is_over {
                return Ok(None);
            }
        }
        let best = best_of(&self.found).map_or(SYSTEM, |(one, _)| &one.candidate);
        let Some(candidate) = bench.candidates.iter().find(|one| one.name == *best) else { return Ok(None) };
        for runtime in bench.runtimes.iter().copied() {
            let mut tried = vec![];
            while let Some(per_cent) = next_share(HeapShare::usual(runtime), &tried) {
                let heap = Some(HeapShare { runtime, per_cent });
                if let Some(signal) = self.one(Contender { heap, ..Contender::plain(candidate) })? {
                    return Ok(Some(signal));
                }
                if self.is_over {
                    return Ok(None);
                }
                tried.push((per_cent, self.found.last().and_then(|one| one.end.least())));
            }
        }
        self.workers(candidate)
    }

    /// Searches for each number of workers that was asked for.
    fn workers(&mut self, candidate: &'a CatalogueCandidate) -> Result<Option<i32>> {
        let asked = self.bench.args.server.workers.iter();
        for (variable, number) in
            asked.flat_map(|asked| asked.numbers.iter().map(|number| (asked.variable.as_str(), *number)))
        {
            let workers = Some((variable, number));
            if let Some(signal) = self.one(Contender { workers, ..Contender::plain(candidate) })? {
                return Ok(Some(signal));
            }
            if self.is_over {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn one(&mut self, contender: Contender<'a>) -> Result<Option<i32>> {
        let mut runs = vec![];
        // Other workers have a rate and a need of their own.
        let is_alone = contender.workers.is_some();
        let known = best_of(&self.found).map(|(_, least)| least).filter(|_| !is_alone);
        let mut unlimited = self.unlimited.filter(|_| !is_alone);
        let options = self.options;
        let end = loop {
            let search = LeastSearch { unlimited, known, options: &options };
            let limit = match search.next(&runs) {
                NextLimit::End(end) => break end,
                NextLimit::Unlimited => None,
                NextLimit::Limit(limit) => Some(limit),
            };
            self.is_over =
                self.bench.args.max_time.is_some_and(|most| self.began.elapsed().as_secs_f64() > most);
            if self.is_over {
                message::say("imas: --max-time is over: the answer is what was found until then");
                break best_so_far(search, &runs);
            }
            match self.made(contender, (limit, unlimited), runs.len())? {
                Ok(run) => runs.push(run),
                Err(signal) => {
                    self.add(contender, (best_so_far(search, &runs), unlimited), runs);
                    return Ok(Some(signal));
                }
            }
            unlimited = unlimited.or_else(|| Unlimited::of(&runs));
            if !is_alone {
                self.unlimited = unlimited;
            }
        };
        self.add(contender, (end, unlimited), runs);
        Ok(None)
    }

    fn add(
        &mut self,
        contender: Contender<'_>,
        (end, unlimited): (LeastEnd, Option<Unlimited>),
        runs: Vec<LimitRun>,
    ) {
        self.found.push(LeastOfCandidate {
            name: contender.name(),
            candidate: contender.candidate.name.clone(),
            variables: contender.variables(end.least(), &self.bench.executor.environment()),
            workers: contender.workers.map(|(_, number)| number),
            rate: unlimited.map(|unlimited| unlimited.rate),
            end,
            runs,
        });
    }

    /// Makes one run; the signal that ended it in its place.
    fn made(
        &mut self,
        contender: Contender<'_>,
        (limit, unlimited): (Option<u64>, Option<Unlimited>),
        number: usize,
    ) -> Result<std::result::Result<LimitRun, i32>> {
        let within = limit.map_or_else(|| "no limit".to_owned(), |bytes| size(bytes as f64));
        self.bar.set_message(format!("{}, run {}: {within}", contender.name(), number + 1));
        self.bar.tick();
        let bound = MemoryBound {
            limit,
            variables: contender.variables(limit, &self.bench.executor.environment()),
            longest_line_s: self.patience_s.filter(|_| limit.is_some()),
        };
        let round = u32::try_from(number).unwrap_or(u32::MAX);
        let run = match self.limits.run(contender.candidate, round, &bound, self.interruption) {
            Ok(run) => run,
            Err(ServiceError::Interrupted(signal)) => return Ok(Err(signal)),
            Err(error) => return Err((self.bench.hinted)(error)),
        };
        let made = limit_run(limit, &run);
        if limit.is_none() {
            let cycles = run.of_server().cycles.iter().map(|cycle| cycle.wall_s).fold(0.0, f64::max);
            let most = cycles * PATIENCE.0 + PATIENCE.1;
            self.patience_s = Some(self.patience_s.map_or(most, |before| before.max(most)));
        }
        if self.bench.args.look.verbose {
            let words = words(&made, unlimited.as_ref());
            self.bar.suspend(|| message::say(&format!("imas: {} in {within}: {words}", contender.name())));
        }
        Ok(Ok(made))
    }
}

/// Answer of a search that was ended early.
fn best_so_far(search: LeastSearch<'_>, runs: &[LimitRun]) -> LeastEnd {
    search.so_far(runs).map_or_else(
        || LeastEnd::Fails("it was ended before a limit was found".to_owned()),
        LeastEnd::NotSettled,
    )
}

fn limit_run(limit: Option<u64>, run: &RawRun) -> LimitRun {
    let was_killed = run.value("group_kills").is_some_and(|kills| kills > 0.0);
    let end = match &run.of_server().failure {
        _ if was_killed => LimitEnd::Killed,
        Some(failure) => LimitEnd::Failed(failure.what.clone()),
        None => LimitEnd::Worked,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
    let peak = run.value("group_peak").map(|bytes| bytes as u64);
    let cycle_ends = run.of_server().cycles.iter().map(|cycle| cycle.end_bytes).collect();
    LimitRun { limit, end, rate: run.value("rate"), p99: run.value("p99"), peak, cycle_ends }
}

fn words(run: &LimitRun, unlimited: Option<&Unlimited>) -> String {
    match &run.end {
        LimitEnd::Killed => "the kernel killed it".to_owned(),
        LimitEnd::Failed(why) => why.clone(),
        LimitEnd::Worked => match run.rate.zip(unlimited) {
            Some((rate, unlimited)) => format!("rate {}", percent(rate / unlimited.rate)),
            None => format!("most {}", run.peak.map_or_else(String::new, |bytes| size(bytes as f64))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_follows_the_limit() {
        let mut inherited = Variables::new();
        inherited.insert("JAVA_TOOL_OPTIONS".into(), "-Xss1m".into());
        let set = |runtime| {
            let shares = HeapShare::usual(runtime).iter();
            let heaps = shares.map(|per_cent| HeapShare { runtime, per_cent: *per_cent });
            heaps.map(|heap| heap.variable(200 << 20, &inherited).1).collect::<Vec<_>>()
        };
        assert_eq!(set(Runtime::Jvm), ["-Xss1m -XX:MaxRAMPercentage=75", "-Xss1m -XX:MaxRAMPercentage=50"]);
        assert_eq!(set(Runtime::Go), ["180MiB"]);
        assert_eq!(set(Runtime::Node), ["--max-old-space-size=120"]);
        assert_eq!(set(Runtime::Dotnet), ["4B"]);
        assert!(set(Runtime::Ruby).is_empty());
    }
}
