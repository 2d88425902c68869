// SPDX-License-Identifier: Apache-2.0
//! Services of language runtimes: what picks gain where settings of the runtime are among the candidates, on rounds
//! that did not choose them.
//!
//! The heap of such a service is the runtime's, so it says nothing about an allocator, and allocators say nothing about
//! it. That is why these services have a judgement of their own.

use std::array::from_fn;

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::compare::smallest_difference;
use imas_core::compare::{Answer, CostLimits, Margins};
use imas_core::judgement::Goal;
use imas_core::server_bench::{CandidateFigures, GuardRail};
use imas_core::stats::{CONFIDENCE, Interval, RESAMPLES, attainable_confidence};
use imas_linux::runtime::Runtime;
use imas_report::service::MeasuredService;
use serde::Serialize;

use crate::services::judge::{HeldOutPicks, JUDGED, JUDGED_COLUMNS, JudgedService, change, geometric_mean};
use crate::services::judgement::{MadeWorse, ROUNDS_FOR_PROOF};
use crate::services::pick_rule::PickRule;
use crate::services::round_changes::RoundChanges;
use crate::study::without_empty_columns;

/// Goals of picks, each with its name.
const AIMS: [(Goal, &str); 3] =
    [(Goal::Cpu, "fastest"), (Goal::Memory, "leanest"), (Goal::Balanced, "balanced")];
/// Most additional CPU time of the leanest pick.
const CPU_OF_THE_LEANEST: f64 = 0.05;
/// Figures of a service under one setting.
const SHOWN: [&str; 4] = ["cpu", "memory", "memory_idle", "p99"];

/// The picks of one kind for the services of a runtime.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct RuntimePicks {
    /// The runtime; None: all services together.
    pub runtime: Option<Runtime>,
    /// `fastest`, `leanest` or `balanced`.
    pub aim: &'static str,
    /// Only a proven gain is picked.
    pub is_proven: bool,
    /// Number of services that could be judged.
    pub services: usize,
    /// Number of services for which most rounds pick a candidate.
    pub picked: usize,
    /// Ratios to `system` in the order of [`JUDGED`], geometric means over the services with their 95 % intervals.
    pub ratios: [Option<Interval>; JUDGED.len()],
    /// Services that the picks made worse.
    pub made_worse: MadeWorse,
    /// Each service with its picks by the other rounds, the most frequent first.
    pub picks: Vec<(String, Vec<String>)>,
}

/// One kind of pick, judged for each service.
struct JudgedAim {
    aim: &'static str,
    is_proven: bool,
    services: Vec<(Runtime, JudgedService)>,
}

impl JudgedAim {
    fn of((goal, aim): (Goal, &'static str), is_proven: bool, services: &[RoundChanges]) -> Self {
        let rule = rule(goal, is_proven);
        let fewest = if is_proven { ROUNDS_FOR_PROOF } else { 2 };
        let is_enough = |one: &&RoundChanges| one.rounds.len() >= fewest;
        let judged = |one| Some((runtime_of(one)?, JudgedService::of(one, &rule)));
        Self { aim, is_proven, services: services.iter().filter(is_enough).filter_map(judged).collect() }
    }

    /// The picks for one runtime, or for all; None without a service.
    fn picks(&self, runtime: Option<Runtime>) -> Option<RuntimePicks> {
        let is_own = |of: Runtime| runtime.is_none_or(|wanted| wanted == of);
        let own: Vec<&JudgedService> =
            self.services.iter().filter(|(of, _)| is_own(*of)).map(|(_, one)| one).collect();
        let held_out: Vec<(&str, &HeldOutPicks)> =
            own.iter().filter_map(|one| Some((one.service.as_str(), one.held_out.as_ref()?))).collect();
        let ratio = |at: usize| {
            geometric_mean(&held_out.iter().filter_map(|(_, picks)| picks.ratios[at]).collect::<Vec<_>>())
        };
        let is_picked = |picks: &HeldOutPicks| {
            let rounds = picks.by_round.values();
            rounds.filter(|name| *name != SYSTEM).count() * 2 > picks.by_round.len()
        };
        (!held_out.is_empty()).then(|| RuntimePicks {
            runtime,
            aim: self.aim,
            is_proven: self.is_proven,
            services: held_out.len(),
            picked: held_out.iter().filter(|(_, picks)| is_picked(picks)).count(),
            ratios: from_fn(ratio),
            made_worse: MadeWorse::of(own.iter().copied()),
            picks: held_out
                .iter()
                .map(|(name, picks)| ((*name).to_owned(), picks.candidates.clone()))
                .collect(),
        })
    }
}

impl RuntimePicks {
    /// Every kind of pick for each runtime with a service that ran under settings, then for all such services.
    #[must_use]
    pub fn all(services: &[RoundChanges]) -> Vec<Self> {
        let both = |aim| [false, true].map(|is_proven| JudgedAim::of(aim, is_proven, services));
        let judged: Vec<JudgedAim> = AIMS.into_iter().flat_map(both).collect();
        let runtimes = Runtime::ALL.into_iter().map(Some).chain([None]);
        runtimes.flat_map(|runtime| judged.iter().filter_map(move |one| one.picks(runtime))).collect()
    }

    /// Table with a row for each kind of pick and runtime.
    #[must_use]
    pub fn table(all: &[Self]) -> Table {
        let own = ["runtime", "picks", "services", "with a pick"];
        let last = ["made worse (proven): memory, CPU, p99", "which"];
        let columns = [&own[..], &JUDGED_COLUMNS, &last].concat();
        let mut table = Table::new("runtimes", "Services with a runtime", &columns);
        all.iter().for_each(|one| table.push(one.cells()));
        without_empty_columns(table)
    }

    fn cells(&self) -> Vec<String> {
        let proven = if self.is_proven { ", proven" } else { "" };
        let own = [
            self.runtime.map_or("all", Runtime::name).to_owned(),
            format!("{}{proven}", self.aim),
            self.services.to_string(),
            self.picked.to_string(),
        ];
        let MadeWorse { worse, proven, failed, .. } = self.made_worse;
        let mut worse = [0, 1, 2].map(|at| format!("{} ({})", worse[at], proven[at])).join(", ");
        if failed > 0 {
            worse += &format!("; the pick of {failed} failed");
        }
        let which = |(service, names): &(String, Vec<String>)| format!("{service}: {}", names.join(", "));
        let which = match self.runtime {
            Some(_) => self.picks.iter().map(which).collect::<Vec<_>>().join("; "),
            None => String::new(),
        };
        // An interval over fewer than three services says nothing.
        let text = |ratio: Option<Interval>| match ratio {
            Some(ratio) if self.services < 3 => format::percent(ratio.mid),
            ratio => change(ratio),
        };
        own.into_iter().chain(self.ratios.map(text)).chain([worse, which]).collect()
    }
}

/// Rule of a pick. Of the axis that it is not picked for it may cost as much as picks of commands.
fn rule(goal: Goal, needs_proof: bool) -> PickRule {
    let rail = |figure: &str, most: f64| GuardRail { figure: figure.to_owned(), most };
    let (cpu, memory) = (rail("cpu", CostLimits::USUAL.cpu), rail("memory", CostLimits::USUAL.memory));
    let (rails, least_gain) = match goal {
        Goal::Memory => (vec![rail("cpu", CPU_OF_THE_LEANEST)], Margins::USUAL.memory),
        Goal::Cpu => (vec![memory], Margins::USUAL.cpu),
        Goal::Latency | Goal::Balanced => (vec![cpu, memory], Margins::USUAL.cpu),
    };
    PickRule { goal, rails, least_gain, needs_proof, resamples: RESAMPLES }
}

/// The runtime under whose settings the service ran.
fn runtime_of(service: &RoundChanges) -> Option<Runtime> {
    service.candidates.iter().find_map(|name| Runtime::of_candidate(name))
}

/// A table for each runtime: its services under each of its settings, medians of paired rounds. Bold is shown with
/// 95 %, which takes six rounds.
#[must_use]
pub fn services_by_runtime(services: &[MeasuredService<'_>]) -> Vec<(Runtime, Table)> {
    let table = |runtime: Runtime| {
        let is_its = |one: &&CandidateFigures| Runtime::of_candidate(&one.name) == Some(runtime);
        let its =
            |service: &MeasuredService<'_>| service.comparison.candidates.iter().any(|one| is_its(&one));
        let services: Vec<&MeasuredService<'_>> = services.iter().filter(|one| its(one)).collect();
        let candidates = services.iter().flat_map(|service| &service.comparison.candidates).filter(is_its);
        let mut names: Vec<&str> = candidates.map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let heads: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let first = "CPU, memory; after the pause; p99";
        let columns: Vec<&str> = std::iter::once(first).chain(heads.iter().map(String::as_str)).collect();
        let mut table = Table::new(runtime.id(), runtime.name(), &columns);
        services.iter().for_each(|service| table.push(row(service, &names)));
        (!names.is_empty()).then_some((runtime, table))
    };
    Runtime::ALL.into_iter().filter_map(table).collect()
}

fn row(service: &MeasuredService<'_>, names: &[&str]) -> Vec<String> {
    let named = |name: &str| service.comparison.candidates.iter().find(|one| one.name == name);
    let memory = named(SYSTEM).and_then(|system| system.figures.get("memory"));
    let mib = memory.map_or_else(String::new, |memory| format!(" ({:.0} MiB)", memory.median / 1048576.0));
    let by_clock = service.comparison.by_clock;
    let cells = names.iter().map(|name| named(name).map_or_else(String::new, |one| cell(one, by_clock)));
    std::iter::once(format!("{}{mib}", service.name)).chain(cells).collect()
}

/// Changes of the figures [`SHOWN`] under one setting. CPU time says nothing where a load runs for a fixed time.
fn cell(one: &CandidateFigures, by_clock: bool) -> String {
    if !one.failures.is_empty() {
        return format!("failed in {} of {}", one.failures.len(), one.runs + one.failures.len());
    }
    let of = |figure: &str| {
        let found = one.figures.get(figure).filter(|_| !(by_clock && figure == "cpu"));
        let Some(ratio) = found.and_then(|found| found.ratio) else { return "-".to_owned() };
        let text = format::percent(ratio.mid);
        let is_shown = Answer::by_interval(ratio, smallest_difference(figure)) != Answer::NotShown;
        if is_shown && attainable_confidence(one.rounds) >= CONFIDENCE { format!("**{text}**") } else { text }
    };
    let [cpu, memory, idle, p99] = SHOWN.map(of);
    format!("{cpu}, {memory}; {idle}; {p99}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::run::RawRun;
    use imas_core::server_bench::{ServiceOptions, compare_services};
    use imas_core::server_run::{Figure, ServerRun};

    /// Six rounds of a service; `all` has memory and CPU seconds by candidate.
    fn runs(service: &str, all: &[(&str, f64, f64)]) -> Vec<RawRun> {
        let of = |round: u32| {
            all.iter().map(move |(candidate, memory, cpu)| {
                let figures =
                    [("memory", *memory), ("memory_idle", memory / 2.0), ("cpu", *cpu), ("p99", 5.0)];
                let server = ServerRun::of(figures.map(|(name, value)| Figure::lower(name, value, "x")));
                let (program, candidate) = (service.to_owned(), (*candidate).to_owned());
                let at_s = f64::from(round);
                RawRun { program, candidate, round, at_s, user_s: *cpu, ..RawRun::default() }
                    .with_server(server)
            })
        };
        (0..6).flat_map(of).collect()
    }

    fn journal() -> Vec<RawRun> {
        [
            runs("java", &[(SYSTEM, 100.0, 1.0), ("jvm:serial", 60.0, 1.0), ("jvm:c1", 90.0, 0.5)]),
            runs("js", &[(SYSTEM, 100.0, 1.0), ("node:semi1", 50.0, 1.5), ("glibc:trim", 90.0, 1.0)]),
            runs("web", &[(SYSTEM, 100.0, 1.0), ("glibc:trim", 50.0, 1.0)]),
        ]
        .concat()
    }

    #[test]
    fn each_runtime_has_its_picks_within_their_limits() {
        let all = RuntimePicks::all(&RoundChanges::of_all(&journal()));
        let of = |runtime: Option<Runtime>, aim: &str| {
            let is_it = |one: &&RuntimePicks| one.runtime == runtime && one.aim == aim && !one.is_proven;
            all.iter().find(is_it).unwrap()
        };
        let picks = |runtime, aim| of(Some(runtime), aim).picks[0].1.clone();
        assert_eq!(picks(Runtime::Jvm, "leanest"), ["jvm:serial"]);
        assert_eq!(picks(Runtime::Jvm, "fastest"), ["jvm:c1"]);
        assert_eq!(
            picks(Runtime::Node, "leanest"),
            ["glibc:trim"],
            "the other costs half of the CPU time more"
        );
        assert_eq!(picks(Runtime::Node, "fastest"), [SYSTEM]);
        let both = of(None, "leanest");
        assert_eq!((both.services, both.picked), (2, 2), "a service without settings is not of a runtime");
        assert!((both.ratios[0].unwrap().mid - (0.6_f64 * 0.9).sqrt()).abs() < 1e-9, "{both:?}");
        assert_eq!(both.made_worse.worse, [0; JUDGED.len()]);
        assert!(all.iter().all(|one| one.runtime.is_none_or(|of| of == Runtime::Jvm || of == Runtime::Node)));
        let table = RuntimePicks::table(&all).plain();
        assert!(table.contains("leanest, proven") && table.contains("java: jvm:serial"), "{table}");
        assert!(table.contains(" -40 % ") && table.contains(" -27 % "), "one service, both: {table}");
        assert!(!table.contains("over the day"), "{table}");
    }

    #[test]
    fn two_rounds_hold_out_and_do_not_prove() {
        let mut runs = journal();
        runs.retain(|run| run.round < 2);
        let all = RuntimePicks::all(&RoundChanges::of_all(&runs));
        assert!(!all.is_empty() && all.iter().all(|one| !one.is_proven), "{all:?}");
        runs.retain(|run| run.round < 1);
        assert_eq!(RuntimePicks::all(&RoundChanges::of_all(&runs)), []);
    }

    #[test]
    fn each_service_has_a_row_under_the_settings_of_its_runtime() {
        let runs = journal();
        let compared: Vec<_> = ["java", "js", "web"]
            .map(|service| {
                let own: Vec<RawRun> = runs.iter().filter(|run| run.program == service).cloned().collect();
                let mut names: Vec<String> = own.iter().map(|run| run.candidate.clone()).collect();
                names.sort_unstable();
                names.dedup();
                let options = ServiceOptions { seed: 1, ..ServiceOptions::default() };
                (service, compare_services(&names, &own, &options))
            })
            .into();
        let measured: Vec<MeasuredService<'_>> = compared
            .iter()
            .map(|(name, comparison)| MeasuredService { name, comparison, runs: vec![] })
            .collect();
        let tables = services_by_runtime(&measured);
        let found: Vec<(Runtime, usize)> = tables.iter().map(|(of, table)| (*of, table.rows.len())).collect();
        assert_eq!(found, [(Runtime::Jvm, 1), (Runtime::Node, 1)]);
        let java = &tables[0].1;
        assert_eq!(java.columns[1..], ["`jvm:c1`", "`jvm:serial`"]);
        assert!(java.rows[0][2].contains("**-40 %**; **-40 %**; +0 %"), "{java:?}");
    }
}
