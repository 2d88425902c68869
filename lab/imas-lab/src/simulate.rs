// SPDX-License-Identifier: Apache-2.0
//! `imas-lab simulate`: policies on stored or made-up runs, judged on runs that they did not see.

use std::process::ExitCode;

use anyhow::Result;
use imas_core::History;
use imas_core::adaptive::Settings;
use imas_core::paper::Limits;
use imas_core::stats::Interval;
use imas_simulate::{
    Contender, ExcludedProgram, Plan, PolicyResult, SimulatedProgram, World, assess, floor, from_store,
    programs,
};
use imas_store::Store;
use serde_json::json;

use crate::study_args::SimulateArgs;
use imas_cli::format::counted;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_engine::context::Context;
use imas_engine::flags::Places;

/// Programs to replay and where they come from.
struct Source {
    programs: Vec<SimulatedProgram>,
    left_out: Vec<ExcludedProgram>,
    says: String,
}

impl Source {
    /// Whether any program has runs of what the contender always takes.
    fn knows(&self, contender: &Contender) -> bool {
        let Contender::Always(name) = contender else { return true };
        self.programs.iter().any(|program| program.candidates.contains(name))
    }
}

pub(crate) fn run(args: &SimulateArgs, places: &Places) -> Result<ExitCode> {
    check_names(args)?;
    let source = source(args, places)?;
    if args.fleet {
        output::text(&crate::fleet::page(&source.programs, args.weight, args.seed))?;
        return Ok(ExitCode::SUCCESS);
    }
    let contenders = contenders(args, &source)?;
    let plan = Plan { splits: args.splits, seed: args.seed, w: args.weight, ..Plan::default() };
    let results: Vec<PolicyResult> =
        contenders.iter().map(|contender| assess(contender, &source.programs, &plan)).collect();
    let floor = floor(&source.programs, &plan);
    let answer = json!({
        "schema": 1,
        "source": source.says,
        "programs": source.programs.len(),
        "left_out": source.left_out.iter().map(|one| json!({"name": one.name, "why": one.why})).collect::<Vec<_>>(),
        "weight": plan.w,
        "splits": plan.splits,
        "seed": plan.seed,
        "policies": results,
        "floor": floor,
    });
    output::json_or(args.json, &answer, || page(&source, &plan, &results, floor.as_ref(), args.details))?;
    Ok(ExitCode::SUCCESS)
}

/// Unknown policies are an error before any file is read.
fn check_names(args: &SimulateArgs) -> Result<()> {
    args.policy.iter().try_for_each(|name| contender(name).map(drop))
}

/// The programs: one at least.
fn source(args: &SimulateArgs, places: &Places) -> Result<Source> {
    let from_store = args.stored || args.store_named;
    let source = match args.data.as_slice() {
        [] if from_store => store(&Context::new(places)?)?,
        [] => made_up(args),
        files => measured(files)?,
    };
    for one in &source.left_out {
        message::warning(&format!("{} is left out: {}", one.name, one.why));
    }
    if source.programs.is_empty() {
        let hint = match from_store {
            true => {
                "a program needs 4 rounds of trials: imas run --policy paper --retest 0 -- COMMAND, 5 times a candidate"
            }
            false => NO_RUNS,
        };
        return Err(Hinted::error("no program to replay", hint));
    }
    Ok(source)
}

/// Contenders that the arguments name; the usual contenders where they name none.
fn contenders(args: &SimulateArgs, source: &Source) -> Result<Vec<Contender>> {
    let contenders = match args.policy.as_slice() {
        [] => baselines().into_iter().filter(|one| source.knows(one)).collect(),
        named => named.iter().map(|name| contender(name)).collect::<Result<Vec<_>>>()?,
    };
    if let Some(unknown) = contenders.iter().find(|one| !source.knows(one)) {
        return Err(Hinted::error(
            format!("{}: no program has runs of that candidate", unknown.name()),
            "name one of the data's candidates, or measure it: imas-lab suite run --with LIST",
        ));
    }
    Ok(contenders)
}

/// The contender of that name.
fn contender(name: &str) -> Result<Contender> {
    Ok(match name {
        "adaptive" => Contender::Adaptive(Settings::default()),
        "paper" => Contender::Paper(Limits::default()),
        "all" => Contender::All,
        "once" => Contender::Once,
        candidate => match candidate.strip_prefix("always:") {
            Some(candidate) if !candidate.is_empty() => Contender::Always(candidate.to_owned()),
            _ => {
                return Err(Hinted::error(
                    format!("{name}: no such policy"),
                    "there are adaptive, paper, all, once and always:CANDIDATE",
                ));
            }
        },
    })
}

/// Policies that users compare with: nothing, and one candidate for everything.
fn baselines() -> Vec<Contender> {
    let always = |name: &str| Contender::Always(name.to_owned());
    vec![
        Contender::Adaptive(Settings::default()),
        Contender::Paper(Limits::default()),
        Contender::All,
        always("system"),
        always("jemalloc"),
        always("glibc:arena1"),
        always("glibc:arena2"),
    ]
}

fn made_up(args: &SimulateArgs) -> Source {
    let world = World { programs: args.programs as usize, ..World::default() };
    let says = format!("{} made-up programs of known truth (seed {})", args.programs, args.seed);
    Source { programs: world.programs(args.seed), left_out: vec![], says }
}

/// Every program of the store, by the trials of the build that was tried last.
fn store(context: &Context) -> Result<Source> {
    let path = &context.store_path;
    let store = Store::open_read_only(path).map_err(|error| {
        Hinted::error(
            format!("store: {error}"),
            "name one that is there with --store FILE; 'imas run -- COMMAND' begins your own",
        )
    })?;
    let candidates = imas_engine::candidates::all(&context.catalogue);
    let (mut replayable, mut left_out, mut trials) = (vec![], vec![], 0);
    for program in store.programs()? {
        let records = store.trials(program.id)?;
        let Some(newest) = imas_core::candidate::in_order_of_time(&records).pop() else { continue };
        let history = History {
            build_id: &newest.build_id,
            limits: context.limits,
            now_unix_s: imas_linux::host::now_unix_s(),
            ..History::of(&records, &candidates)
        };
        let (program, without) = from_store(&program.to_string(), &history);
        trials += program.as_ref().map_or(0, |program| program.rounds.iter().flatten().flatten().count());
        replayable.extend(program);
        left_out.extend(without);
    }
    let says = format!(
        "{}, {} of {}",
        counted(replayable.len(), "program"),
        counted(trials, "trial"),
        path.display()
    );
    Ok(Source { programs: replayable, left_out, says })
}

fn measured(files: &[std::path::PathBuf]) -> Result<Source> {
    let data = imas_runs::journal::read_data(files)?;
    if data.runs.is_empty() {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Hinted::error(format!("no run in {}", names.join(", ")), NO_RUNS));
    }
    let (programs, left_out) = programs(&data);
    let says = format!("{}, {}", counted(programs.len(), "program"), counted(data.runs.len(), "run"));
    Ok(Source { programs, left_out, says })
}

const NO_RUNS: &str = "make a data set: imas bench -n 12 --trials 5 --export-runs runs.jsonl -- COMMAND";

fn page(
    source: &Source,
    plan: &Plan,
    results: &[PolicyResult],
    floor: Option<&PolicyResult>,
    details: bool,
) -> String {
    let mut text = format!(
        "{}; weight of CPU {:.2}, {} splits of each program's rounds, judged on a third not seen\n\n",
        source.says, plan.w, plan.splits
    );
    let head = [
        "policy",
        "programs",
        "trials",
        "regret % [95 %]",
        "gain % [95 %]",
        "CPU %",
        "memory %",
        "within 3 %",
        "less noise",
        "beyond",
        "wrong",
        "harmed",
    ];
    text.push_str(&imas_cli::table::plain(&head, results.iter().chain(floor).map(row)));
    text.push_str(
        "\nregret: score lost against the best candidate; gain: score won over system; within 3 %: programs whose regret is at most that;\n\
         less noise: the same with the noise of the runs that judge taken out; beyond: programs shown to lose more; wrong: regret above\n\
         the margin; harmed: left worse than system by more than the margin. Score: CPU^w x memory^(1-w).\n",
    );
    if floor.is_some() {
        text.push_str(
            "The best candidate is the one that all rounds which do not judge call best, with every candidate in each of them and without proof: 'best of all seen'.\n\
             best candidate itself: what this judgement says of it on runs made up with this data's noise; nobody can look better than that for sure.\n",
        );
    }
    if details {
        for result in results {
            text.push_str(&format!("\n{}\n", result.policy));
            let head = ["program", "trials", "regret %", "gain %", "CPU %", "memory %", "picks"];
            text.push_str(&imas_cli::table::plain(&head, result.details.iter().map(detail)));
        }
    }
    text
}

fn row(result: &PolicyResult) -> Vec<String> {
    vec![
        result.policy.clone(),
        result.programs.to_string(),
        if result.programs == 0 { "-".to_owned() } else { format!("{:.1}", result.trials) },
        with_interval(result.regret, result.regret_interval),
        with_interval(result.gain, result.gain_interval),
        percent(result.gain_cpu),
        percent(result.gain_memory),
        share(Some(result.within_3_pct)),
        share(result.within_3_pct_less_noise),
        result.beyond_3_pct.to_string(),
        result.wrong.to_string(),
        result.harmed.to_string(),
    ]
}

fn share(share: Option<f64>) -> String {
    let known = share.filter(|share| !share.is_nan());
    // Adding 0 avoids a minus zero, as in `percent`.
    known.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", (share * 100.0).round() + 0.0))
}

fn detail(one: &imas_simulate::ProgramResult) -> Vec<String> {
    let picks: Vec<String> =
        one.picks.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
    vec![
        one.program.clone(),
        format!("{:.1}", one.trials),
        percent(one.regret),
        percent(-one.score),
        percent(-one.cpu),
        percent(-one.memory),
        picks.join(", "),
    ]
}

fn percent(fraction: f64) -> String {
    if fraction.is_nan() {
        return "-".to_owned(); // of no programs
    }
    // Adding 0 makes of a minus zero a plus zero, which reads better in a table.
    format!("{:+.2}", (fraction * 1e4).round() / 100.0 + 0.0)
}

fn with_interval(mid: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(i) => format!("{} [{}, {}]", percent(mid), percent(i.lo), percent(i.hi)),
        None => percent(mid),
    }
}
