// SPDX-License-Identifier: Apache-2.0
//! From runs to ratios, words, picks and warnings. Last, runs that are looked at while they are made: when they end. How
//! often noise is taken for a gain is in `one_judge.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::Conditions;
use imas_core::bench::{
    CandidateResult, CandidateRuns, Comparison, Floor, IneligibleCandidate, Looks, Options, Warning, compare,
};
use imas_core::compare::{CostLimits, Demand, PairedRatio, Resampling, Spread};
use imas_core::judgement::{BenchCourse, BenchEnding, FigureAnswer, Goal};
use imas_core::run::RawRun;
use imas_core::stats::Interval;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The machine's drift from round to round, which hits every candidate alike.
const DRIFT: [f64; 8] = [1.0, 1.3, 0.9, 1.1, 1.6, 1.0, 0.8, 1.2];

/// Effect of a candidate on a run of one CPU second and 100 MiB.
struct Traits {
    name: &'static str,
    cpu: f64,
    memory: f64,
    /// Relative amplitude of its own noise, on top of the drift.
    noise: f64,
}

fn traits(name: &'static str, cpu: f64, memory: f64) -> Traits {
    Traits { name, cpu, memory, noise: 0.0 }
}

/// Runs of every candidate over `rounds` rounds.
fn runs(candidates: &[Traits], rounds: usize, seed: u64) -> Vec<CandidateRuns> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut run = |traits: &Traits, round: usize| {
        let noise = 1.0 + traits.noise * random.random_range(-1.0..1.0);
        let cpu_s = DRIFT[round % DRIFT.len()] * traits.cpu * noise;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let mean_bytes = (100.0 * 1024.0 * 1024.0 * traits.memory) as u64;
        let (user_s, system_s) = (0.75 * cpu_s, 0.25 * cpu_s);
        let round = u32::try_from(round).unwrap();
        RawRun {
            round,
            user_s,
            system_s,
            wall_s: cpu_s,
            mean_bytes,
            peak_bytes: mean_bytes,
            ..RawRun::default()
        }
    };
    candidates
        .iter()
        .map(|traits| CandidateRuns {
            name: traits.name.into(),
            runs: (0..rounds).map(|round| run(traits, round)).collect(),
        })
        .collect()
}

/// Fewer resamples than in production: noise-free figures need no more.
fn options() -> Options {
    Options { resamples: 200, ..Options::default() }
}

fn compared(candidates: &[Traits]) -> Comparison {
    compare(&runs(candidates, 8, 1), &options())
}

fn result<'a>(comparison: &'a Comparison, name: &str) -> &'a CandidateResult {
    comparison.candidates.iter().find(|result| result.name == name).unwrap()
}

/// The fastest, the leanest and the balanced pick.
fn picks(comparison: &Comparison) -> (&str, &str, &str) {
    let pick = |goal| comparison.judgement.pick(goal).unwrap_or("system");
    (pick(Goal::Cpu), pick(Goal::Memory), pick(Goal::Balanced))
}

/// Answers that are proven of CPU time and of memory.
fn answers(comparison: &Comparison, name: &str) -> (FigureAnswer, FigureAnswer) {
    let figures = &comparison.judgement.candidate(name).unwrap().figures;
    let answer = |figure: &str| figures.get(figure).map_or(FigureAnswer::Unknown, |one| one.answer);
    (answer("cpu"), answer("memory"))
}

#[track_caller]
fn about(interval: Option<Interval>, expected: f64) {
    let i = interval.unwrap();
    for x in [i.lo, i.mid, i.hi] {
        assert!((x - expected).abs() < 1e-6, "{i:?} {expected}");
    }
}

#[test]
fn drift_cancels_and_the_words_follow() {
    let comparison = compared(&[
        traits("system", 1.0, 1.0),
        traits("jemalloc", 0.8, 1.25),
        traits("hoard", 1.2, 0.5),
        traits("mimalloc", 0.99, 1.04),
    ]);
    let jemalloc = result(&comparison, "jemalloc");
    about(jemalloc.ratio.cpu, 0.8);
    about(jemalloc.ratio.memory, 1.25);
    use FigureAnswer::{Better, NoGain, Worse};
    assert_eq!(answers(&comparison, "jemalloc"), (Better, Worse));
    assert_eq!(answers(&comparison, "hoard"), (Worse, Better));
    assert_eq!(answers(&comparison, "mimalloc"), (NoGain, NoGain));
    assert_eq!(picks(&comparison), ("jemalloc", "hoard", "system"));
    assert!((jemalloc.median.as_ref().unwrap().cpu_s - 0.8 * 1.05).abs() < 1e-12);
}

#[test]
fn fewer_than_three_rounds_are_not_enough() {
    let all = [traits("system", 1.0, 1.0), traits("jemalloc", 0.5, 0.5)];
    let comparison = compare(&runs(&all, 2, 1), &options());
    let jemalloc = result(&comparison, "jemalloc");
    assert_eq!(answers(&comparison, "jemalloc"), (FigureAnswer::Unknown, FigureAnswer::Unknown));
    about(jemalloc.ratio.cpu, 0.5);
    assert_eq!(picks(&comparison), ("system", "system", "system"));
    let comparison = compare(&runs(&all, 3, 1), &options());
    assert_eq!(picks(&comparison), ("jemalloc", "jemalloc", "jemalloc"));
}

#[test]
fn nothing_that_beats_system_leaves_system() {
    let comparison = compared(&[
        traits("system", 1.0, 1.0),
        traits("a", 0.985, 0.96),
        traits("b", 1.2, 1.0),
        Traits { noise: 0.9, ..traits("c", 0.95, 1.0) },
    ]);
    assert_eq!(picks(&comparison), ("system", "system", "system"));
}

#[test]
fn among_near_equals_the_other_criterion_decides() {
    // b is 1 % slower than a, which is inside the margin, and 30 % leaner.
    let all = [traits("system", 1.0, 1.0), traits("a", 0.80, 1.0), traits("b", 0.808, 0.7)];
    assert_eq!(picks(&compared(&all)).0, "b");
    // 3 % slower is not a tie.
    let all = [traits("system", 1.0, 1.0), traits("a", 0.80, 1.0), traits("b", 0.824, 0.7)];
    assert_eq!(picks(&compared(&all)).0, "a");
    // Leanest: 4 % more memory is a tie, and b is faster.
    let all = [traits("system", 1.0, 1.0), traits("a", 1.0, 0.50), traits("b", 0.9, 0.52)];
    assert_eq!(picks(&compared(&all)).1, "b");
}

#[test]
fn among_equals_on_both_the_catalogues_order_decides() {
    let all = [traits("system", 1.0, 1.0), traits("a", 0.808, 0.7), traits("b", 0.80, 0.7)];
    assert_eq!(picks(&compared(&all)), ("a", "a", "a"));
    let all = [traits("b", 0.80, 0.7), traits("a", 0.808, 0.7), traits("system", 1.0, 1.0)];
    assert_eq!(picks(&compared(&all)), ("b", "b", "b"));
}

#[test]
fn balanced_weighs_both_and_tolerates_no_loss_beyond_the_margin() {
    let of = |cpu, memory| {
        let comparison = compared(&[traits("system", 1.0, 1.0), traits("x", cpu, memory)]);
        picks(&comparison).2.to_owned()
    };
    assert_eq!(of(0.9, 0.9), "x");
    assert_eq!(of(0.9, 1.04), "x", "sqrt(0.936) and a loss inside the margin");
    assert_eq!(of(0.7, 1.06), "system", "6 % more memory");
    assert_eq!(of(1.019, 0.5), "x");
    assert_eq!(of(1.021, 0.5), "system", "2.1 % slower");
    assert_eq!(of(0.97, 1.0), "x");
    assert_eq!(of(0.985, 1.0), "system", "not worth it");
    assert_eq!(of(0.97, 1.04), "system", "one takes what the other gives");
}

#[test]
fn a_candidate_that_changes_the_behaviour_is_not_picked() {
    let all = [
        traits("system", 1.0, 1.0),
        traits("crash", 0.2, 0.2),
        traits("exit", 0.3, 0.3),
        traits("output", 0.4, 0.4),
        traits("good", 0.9, 0.9),
    ];
    let mut all = runs(&all, 8, 1);
    all.iter_mut().flat_map(|c| &mut c.runs).for_each(|run| run.output = Some("abc".into()));
    all[1].runs[3].exit = 139;
    all[2].runs[7].exit = 1;
    all[3].runs[0].output = Some("abd".into());
    let comparison = compare(&all, &options());
    assert_eq!(picks(&comparison), ("good", "good", "good"));
    let why: Vec<_> = comparison.candidates.iter().map(|result| result.ineligible).collect();
    let expected = [
        None,
        Some(IneligibleCandidate::Crashed { signal: 11 }),
        Some(IneligibleCandidate::ExitDiffers { exit: 1 }),
        Some(IneligibleCandidate::OutputDiffers),
        None,
    ];
    assert_eq!(why, expected);
    let expected = [
        Warning::CrashUnder { candidate: "crash".into(), signal: 11 },
        Warning::ExitDiffers { candidate: "exit".into(), exit: 1 },
        Warning::OutputDiffers { candidate: "output".into() },
    ];
    assert!(
        expected.iter().all(|warning| comparison.warnings.contains(warning)),
        "{:?}",
        comparison.warnings
    );
}

#[test]
fn each_warning_about_the_benchmark_itself() {
    let quiet = |rounds| {
        let mut all = runs(&[traits("system", 1.0, 1.0)], rounds, 1);
        all[0].runs.iter_mut().for_each(|run| (run.user_s, run.system_s, run.wall_s) = (1.0, 0.0, 1.0));
        all
    };
    let warnings = |all: &[CandidateRuns]| compare(all, &options()).warnings;
    assert_eq!(warnings(&quiet(6)), []);
    let few = warnings(&quiet(4));
    assert_eq!(few, [Warning::FewRuns { runs: 4, confidence: 0.875 }]);
    let mut all = quiet(6);
    all[0].runs.iter_mut().for_each(|run| (run.wall_s, run.mean_bytes) = (0.01, 0));
    assert_eq!(warnings(&all), [Warning::TooShort { wall_s: 0.01 }, Warning::NoMemory]);
    let mut all = quiet(6);
    all[0].runs.iter_mut().zip(DRIFT).for_each(|(run, drift)| run.user_s = drift);
    assert!(matches!(warnings(&all)[..], [Warning::TooNoisy { half_width }] if half_width > 0.05));
    let mut all = quiet(6);
    all[0].runs[2].outlier = Some(true);
    let outliers = Warning::Outliers { candidate: "system".into(), outliers: 1, runs: 6 };
    assert_eq!(warnings(&all), [outliers]);
    let mut all = quiet(6);
    all[0].runs.iter_mut().for_each(|run| run.exit = 2);
    assert_eq!(warnings(&all), [Warning::SystemFails { exit: 2 }]);
    let mut all = quiet(6);
    all[0].runs.iter_mut().for_each(|run| run.output = Some(run.round.to_string()));
    assert_eq!(warnings(&all), [Warning::OutputVariesByItself]);
}

#[test]
fn a_busy_machine_is_warned_of() {
    let at = |load5| {
        let conditions = Some(Conditions::new(load5, 4, 0));
        compare(&[], &Options { conditions, ..options() }).warnings
    };
    assert_eq!(at(2.0), []);
    assert_eq!(at(2.1), [Warning::LoadHigh { load5: 2.1, cpus: 4 }]);
}

#[test]
fn without_system_there_is_no_comparison() {
    let comparison = compare(&runs(&[traits("a", 0.5, 0.5)], 8, 1), &options());
    let a = result(&comparison, "a");
    assert_eq!((a.ratio.cpu, answers(&comparison, "a").0), (None, FigureAnswer::Unknown));
    assert_eq!(picks(&comparison), ("system", "system", "system"));
}

#[test]
fn a_candidate_that_could_not_run_is_listed() {
    let mut all = runs(&[traits("system", 1.0, 1.0)], 8, 1);
    all.push(CandidateRuns { name: "scudo".into(), runs: vec![] });
    let comparison = compare(&all, &options());
    let scudo = result(&comparison, "scudo");
    assert_eq!((&scudo.median, scudo.ineligible), (&None, Some(IneligibleCandidate::NoRuns)));
}

#[test]
fn unmeasured_memory_has_no_verdict() {
    let comparison = compared(&[traits("system", 1.0, 0.0), traits("a", 0.5, 0.0)]);
    let a = result(&comparison, "a");
    assert_eq!(answers(&comparison, "a"), (FigureAnswer::Better, FigureAnswer::Unknown));
    assert_eq!(a.ratio.memory, None);
    assert_eq!(picks(&comparison), ("a", "system", "system"));
}

#[test]
fn the_comparison_survives_json() {
    let comparison = compared(&[traits("system", 1.0, 1.0), traits("jemalloc", 0.8, 1.25)]);
    let text = serde_json::to_string(&comparison).unwrap();
    assert!(text.contains(r#""answer":{"kind":"better"}"#), "{text}");
    assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), comparison);
}

/// Two invocations of `-n 5` on a machine with 3 % noise must agree, and where all candidates are alike
/// system must stay: both far more often than not.
#[test]
fn picks_are_stable_from_one_invocation_to_the_next() {
    let options = Options { resamples: 400, ..Options::default() };
    let named = |all: &[Traits], seed| {
        let comparison = compare(&runs(all, 5, seed), &options);
        let (fastest, leanest, balanced) = picks(&comparison);
        [fastest, leanest, balanced].map(str::to_owned)
    };
    let noisy = |name, cpu, memory| Traits { noise: 0.03, ..traits(name, cpu, memory) };
    let different = || {
        [
            noisy("system", 1.0, 1.0),
            noisy("a", 0.85, 0.95),
            noisy("b", 0.855, 0.7),
            noisy("c", 0.86, 1.3),
            noisy("d", 1.1, 0.9),
        ]
    };
    let first = named(&different(), 1000);
    assert_eq!(first, ["b", "b", "b"]);
    let same = (0..60).filter(|&seed| named(&different(), seed) == first).count();
    assert!(same >= 54, "{same} of 60 invocations agree");
    let alike = || ["system", "a", "b", "c", "d"].map(|name| noisy(name, 1.0, 1.0));
    let kept = (0..60).filter(|&seed| named(&alike(), seed)[0] == "system").count();
    assert!(kept >= 54, "system stays in {kept} of 60");
}

/// One second and 100 MiB under `system`; these ratios of both, round by round.
fn with_ratios(name: &str, ratios: [(f64, f64); 3]) -> CandidateRuns {
    let run = |(round, (cpu, memory)): (usize, (f64, f64))| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let mean_bytes = (1e8 * memory) as u64;
        let round = u32::try_from(round).unwrap();
        RawRun { round, user_s: cpu, wall_s: cpu, mean_bytes, ..RawRun::default() }
    };
    CandidateRuns { name: name.into(), runs: ratios.into_iter().enumerate().map(run).collect() }
}

/// Table and outlook must agree: faster and less memory. The outlook must never be that nothing is better.
#[test]
fn few_runs_that_look_better_are_reported_so() {
    let same = [(1.0, 1.0); 3];
    // So noisy that a difference of their size would be by chance.
    let loud = [(1.15, 1.2), (0.9, 0.85), (1.0, 1.1)];
    let better = [(0.863, 0.75), (0.912, 0.746), (0.89, 0.859)];
    let mut candidates = vec![with_ratios("system", same), with_ratios("jemalloc", better)];
    candidates.extend((0..8).map(|other| {
        let mut own = loud;
        own.rotate_left(other % 3);
        with_ratios(&format!("other{other}"), own)
    }));
    let comparison = compare(&candidates, &options());
    assert_eq!(picks(&comparison), ("system", "system", "system"), "nine candidates: not proven");
    let open = |answer| matches!(answer, FigureAnswer::Open { .. });
    let (cpu, memory) = answers(&comparison, "jemalloc");
    assert!(open(cpu) && open(memory), "{cpu:?}, {memory:?}");
    let BenchEnding::LooksBetter { candidate, more_rounds } = comparison.judgement.ending else {
        panic!("{:?}", comparison.judgement.ending);
    };
    assert_eq!(candidate, "jemalloc");
    assert!((3..20).contains(&more_rounds), "{more_rounds:?}");
}

/// A load of a moment must not buy CPU time with any amount of memory: 43 % less CPU for 237 % more memory, where
/// another candidate has 40 % less for 5 % more.
#[test]
fn a_pick_costs_no_more_than_the_limit() {
    let all = [traits("system", 1.0, 1.0), traits("dear", 0.57, 3.37), traits("fair", 0.60, 1.05)];
    let comparison = compared(&all);
    assert_eq!(picks(&comparison).0, "fair");
    let dear = comparison.judgement.picks[&Goal::Cpu].too_dear.as_ref().unwrap();
    assert_eq!((dear.candidate.as_str(), dear.breaks.as_slice()), ("dear", &["--max-memory".to_owned()][..]));
    let free = Options { most_cost: CostLimits::NONE, ..options() };
    let comparison = compare(&runs(&all, 8, 1), &free);
    assert_eq!((picks(&comparison).0, comparison.judgement.has_too_dear()), ("dear", false));
    let all = [traits("system", 1.0, 1.0), traits("slow", 1.3, 0.5), traits("fair", 1.2, 0.6)];
    assert_eq!(picks(&compared(&all)).1, "fair");
    let all = [traits("system", 1.0, 1.0), traits("dear", 0.57, 3.37)];
    assert_eq!(picks(&compared(&all)).0, "system");
}

#[test]
fn the_best_figure_of_the_table_is_accounted_for() {
    let all = [traits("system", 1.0, 1.0), traits("a", 0.80, 1.0), traits("b", 0.808, 0.7)];
    let comparison = compared(&all);
    assert_eq!(picks(&comparison).0, "b");
    assert_eq!(comparison.judgement.picks[&Goal::Cpu].tied, ["a"]);
}

#[test]
fn rounds_that_can_prove_nothing_recommend_nothing() {
    let all = [traits("system", 1.0, 1.0), traits("jemalloc", 0.5, 0.5)];
    for made in [1, 2] {
        let comparison = compare(&runs(&all, made, 1), &options());
        assert_eq!(comparison.judgement.ending, BenchEnding::TooFewRounds { least: 3 });
    }
}

#[test]
fn none_is_better_only_if_the_runs_prove_it() {
    let ending = |candidates: &[Traits]| compared(candidates).judgement.ending;
    let alike = [traits("system", 1.0, 1.0), traits("a", 1.0, 1.0), traits("b", 1.4, 1.5)];
    assert_eq!(ending(&alike), BenchEnding::NoneBetter);
    let noisy = Traits { noise: 0.3, ..traits("a", 1.0, 1.0) };
    let open = ending(&[traits("system", 1.0, 1.0), noisy]);
    assert!(matches!(open, BenchEnding::NotSettled { .. } | BenchEnding::TooNoisy), "{open:?}");
    assert_eq!(ending(&[traits("system", 1.0, 1.0), traits("a", 0.8, 1.0)]), BenchEnding::Picked);
    assert_eq!(ending(&[traits("system", 1.0, 1.0)]), BenchEnding::NothingToCompare);
}

#[test]
fn too_short_runs_are_not_compared() {
    let short = |cpu| Traits { noise: 0.0, ..traits("a", cpu, 1.0) };
    let mut candidates = runs(&[traits("system", 1.0, 1.0), short(1.57)], 8, 1);
    for run in candidates.iter_mut().flat_map(|candidate| &mut candidate.runs) {
        (run.user_s, run.system_s) = (run.user_s / 1000.0, run.system_s / 1000.0);
    }
    let comparison = compare(&candidates, &Options { floor: Floor::BENCH, ..options() });
    assert_eq!(result(&comparison, "a").ratio.cpu, None);
    assert_eq!(
        result(&comparison, "system").ratio.cpu,
        Some(Interval { lo: 1.0, mid: 1.0, hi: 1.0 }),
        "it is the reference of itself"
    );
    let is_short = |warning: &Warning| matches!(warning, Warning::TooLittleCpu { .. });
    assert!(comparison.warnings.iter().any(is_short));
    let all = compare(&candidates, &options());
    assert!(result(&all, "a").ratio.cpu.is_some(), "summaries of many programs compare what is short, too");
    assert!(!all.warnings.iter().any(is_short));
}

/// Nearly normal, with a standard deviation of 1.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// One more round: `system` and candidates with these ratios of CPU and memory, 4 and 2 % of noise.
fn round(candidates: &mut Vec<CandidateRuns>, ratios: &[(f64, f64)], random: &mut ChaCha8Rng) {
    let all = std::iter::once(&(1.0, 1.0)).chain(ratios);
    for (at, (cpu, memory)) in all.enumerate() {
        if candidates.len() <= at {
            let name = if at == 0 { "system".to_owned() } else { format!("c{at}") };
            candidates.push(CandidateRuns { name, runs: vec![] });
        }
        let runs = &mut candidates[at].runs;
        let user_s = cpu * (1.0 + 0.04 * normal(random));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let mean_bytes = (1e8 * memory * (1.0 + 0.02 * normal(random))) as u64;
        let round = u32::try_from(runs.len()).unwrap();
        runs.push(RawRun { round, user_s, wall_s: user_s, mean_bytes, ..RawRun::default() });
    }
}

/// Rounds that were made, and whether a candidate was picked.
fn session(ratios: &[(f64, f64)], seed: u64) -> (usize, bool, BenchEnding) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let options = Options { resamples: 50, seed, looks: Some(Looks::AUTO), ..Options::default() };
    let mut candidates = vec![];
    loop {
        round(&mut candidates, ratios, &mut random);
        let made = candidates[0].runs.len();
        if made < 5 {
            continue;
        }
        let judgement = compare(&candidates, &options).judgement;
        if judgement.course != BenchCourse::Open || made == 30 {
            return (made, judgement.best().is_some(), judgement.ending);
        }
    }
}

#[test]
fn a_clear_gain_ends_the_runs_early() {
    let ratios = [(0.7, 0.7), (1.0, 1.0), (1.3, 1.0)];
    let ended: Vec<_> = (0..10).map(|seed| session(&ratios, seed)).collect();
    assert!(ended.iter().all(|(made, picked, _)| *picked && *made < 15), "{ended:?}");
    assert!(ended.iter().all(|(_, _, ending)| *ending == BenchEnding::Picked), "{ended:?}");
}

#[test]
fn a_clearly_worse_candidate_needs_few_rounds() {
    let (made, picked, ending) = session(&[(1.5, 1.5)], 1);
    assert!(made < 15 && !picked, "{made}");
    assert_eq!(ending, BenchEnding::NoneBetter);
}

#[test]
fn faster_and_slower_share_the_error_of_a_look() {
    let demand = Demand { looks: Some(Looks { first: 5, most: 5 }), ..Demand::of(1) };
    let is_shown = |t: f64| {
        let ratio = |deviation: f64| (0.01 * (deviation - t / 5_f64.sqrt())).exp();
        let ratios = [-1.0, -1.0, 0.0, 1.0, 1.0].map(ratio);
        let how = Resampling { seed: 1, resamples: 10 };
        PairedRatio::of(&ratios, Spread::default(), how).unwrap().is_shown(&demand)
    };
    // With four degrees of freedom 2.132 is exceeded with a probability of 0.05, 2.776 with half of that.
    assert!(!is_shown(2.4) && is_shown(2.9));
}
