// SPDX-License-Identifier: Apache-2.0
//! No rendering of a judgement contradicts another one, nor the figures that it stands beside: ten thousand made-up
//! benches of commands and servers.
//!
//! `cargo test --profile checked -p imas-report --test judgement -- --nocapture` prints the number of contradictions.
//! The rules are read from the texts, and none of them asks the code that decides.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use imas_core::bench::{CandidateRuns, Looks, Observed, Options};
use imas_core::compare::CostLimits;
use imas_core::judgement::Goal;
use imas_core::run::RawRun;
use imas_core::server_bench::{GuardRail, ServiceOptions, compare_services};
use imas_core::server_run::Figure;
use imas_core::server_run::{Failure, ServerRun, Stage};
use imas_report::bench::{BenchLayout, BenchReport, CandidateReport};
use imas_report::html::ProgramFindings;
use imas_report::service::{self, MeasuredService};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TABLES: u64 = 10_000;
/// Intervals need not be exact: every rule holds for any.
const RESAMPLES: usize = 40;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A candidate of a made-up bench.
#[derive(Clone, Debug)]
struct Traits {
    name: &'static str,
    cpu: f64,
    memory: f64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Fine,
    /// It ends otherwise than under `system`, in one run.
    Fails,
    Hangs,
    NoRuns,
    /// Only the first two rounds have it.
    Leaves,
}

/// A made-up bench.
#[derive(Clone, Debug)]
struct Made {
    candidates: Vec<Traits>,
    rounds: u32,
    noise: f64,
    looks: Option<Looks>,
    has_cpu: bool,
    has_memory: bool,
    max_memory: f64,
}

fn one_of<T: Copy>(random: &mut SmallRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

impl Made {
    fn of(random: &mut SmallRng) -> Self {
        let count = random.random_range(1..=NAMES.len());
        let kind = random.random_range(0..6);
        let mut ratio = || match kind {
            0 => 1.0,
            1 => one_of(random, &[0.7, 0.71, 0.705]),
            2 => one_of(random, &[1.05, 1.3, 2.0]),
            3 => one_of(random, &[0.4, 1.0, 4.0]),
            _ => random.random_range(0.5..1.6),
        };
        let ratios: Vec<(f64, f64)> = (0..count).map(|_| (ratio(), ratio())).collect();
        let ends = [
            End::Fine,
            End::Fine,
            End::Fine,
            End::Fine,
            End::Fine,
            End::Fails,
            End::Hangs,
            End::NoRuns,
            End::Leaves,
        ];
        let candidates = ratios.into_iter().zip(NAMES).map(|((cpu, memory), name)| Traits {
            name,
            cpu,
            memory,
            end: one_of(random, &ends),
        });
        let candidates = candidates.collect();
        let rounds = one_of(random, &[1, 2, 3, 4, 5, 6, 8, 12, 29, 30]);
        let is_looked_at = rounds >= 5 && random.random::<f64>() < 0.5;
        Self {
            candidates,
            rounds,
            noise: one_of(random, &[0.0, 0.01, 0.04, 0.15, 0.5]),
            looks: is_looked_at.then_some(Looks::AUTO),
            has_cpu: random.random::<f64>() < 0.9,
            has_memory: random.random::<f64>() < 0.9,
            max_memory: one_of(random, &[0.0, 0.25, 10.0]),
        }
    }

    /// Logarithms of CPU time and memory of one run.
    fn draw(&self, traits: &Traits, random: &mut SmallRng) -> (f64, f64) {
        let mut noise = || {
            let plain = (0..6).map(|_| random.random::<f64>()).sum::<f64>() - 3.0;
            (self.noise * plain).exp()
        };
        let cpu = if self.has_cpu { traits.cpu * noise() } else { 0.0 };
        let memory = if self.has_memory { 1e8 * traits.memory * noise() } else { 0.0 };
        (cpu, memory)
    }

    fn all(&self) -> Vec<Traits> {
        let system = Traits { name: "system", cpu: 1.0, memory: 1.0, end: End::Fine };
        std::iter::once(system).chain(self.candidates.iter().cloned()).collect()
    }

    fn rounds_of(&self, traits: &Traits) -> u32 {
        match traits.end {
            End::NoRuns => 0,
            End::Leaves => self.rounds.min(2),
            _ => self.rounds,
        }
    }
}

/// Output of a bench, taken apart.
#[derive(Debug)]
struct Shown {
    sentence: String,
    /// Verdicts by candidate, marks included.
    verdicts: BTreeMap<String, String>,
    /// Figures as ratios to `system`, of candidates that ended as they should.
    cpu: BTreeMap<String, f64>,
    memory: BTreeMap<String, f64>,
    /// Candidates that may not be picked at all.
    out: BTreeSet<String>,
    /// Candidates that break the limit for this mark.
    over: BTreeSet<(&'static str, String)>,
    /// Names in JSON by mark.
    json: BTreeMap<&'static str, String>,
    /// Candidates that JSON calls better, by the mark that they might have.
    proven: BTreeSet<(&'static str, String)>,
    /// Further texts that must have the sentence.
    texts: Vec<String>,
    /// Texts with a bound of their width.
    tables: Vec<(usize, String)>,
    made: u32,
    most: u32,
    /// Words for less of each mark's figure.
    gains: [(&'static str, &'static str); 2],
}

const MARKS: [&str; 4] = ["fastest", "leanest", "balanced", "quickest"];

impl Shown {
    fn is_marked(&self, name: &str, mark: &str) -> bool {
        self.verdicts[name].contains(&format!("*{mark}"))
    }

    fn marked(&self, mark: &str) -> Option<&String> {
        self.verdicts.keys().find(|name| self.is_marked(name, mark))
    }

    fn sentences(&self) -> Vec<&str> {
        self.sentence.trim_end_matches('.').split(". ").collect()
    }

    /// Names that the sentence tells to use, and when.
    fn used(&self) -> Vec<(String, String)> {
        let Some(first) = self.sentences()[0].strip_prefix("Use ") else { return vec![] };
        let part = |part: &str| {
            let (name, rest) = part.split_once(' ').unwrap();
            (name.to_owned(), rest.split(" (").next().unwrap().trim_start_matches('(').to_owned())
        };
        first.split("; ").map(part).collect()
    }

    fn number_before(&self, words: &str) -> Option<f64> {
        let (before, _) = self.sentence.split_once(words)?;
        before.rsplit(' ').next()?.parse().ok()
    }

    /// All contradictions.
    fn contradictions(&self) -> Vec<String> {
        let mut found = vec![];
        let mut rule = |is_kept: bool, what: String| {
            if !is_kept {
                found.push(what);
            }
        };
        self.about_the_sentence(&mut rule);
        self.about_picks(&mut rule);
        self.about_words(&mut rule);
        for text in &self.texts {
            rule(text.contains(&self.sentence), format!("a text lacks the sentence: {text}"));
        }
        for (width, table) in &self.tables {
            let longest = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            rule(longest <= *width, format!("{longest} characters in {width}\n{table}"));
        }
        found
    }

    fn about_the_sentence(&self, rule: &mut impl FnMut(bool, String)) {
        let sentences = self.sentences();
        rule(sentences.len() <= 2 && self.sentence.ends_with('.'), "more than two sentences".to_owned());
        let more = ["more round would", "more rounds would"]
            .into_iter()
            .find_map(|words| self.number_before(&format!(" {words}")));
        let left = f64::from(self.most.saturating_sub(self.made));
        rule(more.is_none_or(|more| more >= 1.0 && more <= left), format!("{more:?} more rounds of {left}"));
        let bound = self.sentence.split_once("below ").map(|(_, rest)| rest.split(' ').next().unwrap());
        let bound = bound.map(|bound| bound.parse::<f64>().unwrap());
        rule(bound.is_none_or(|bound| bound <= 10.0 && bound > 0.0), format!("a bound of {bound:?} %"));
        rule(
            !self.sentence.contains("()") && !self.sentence.contains("as it is)"),
            "an empty change".to_owned(),
        );
    }

    fn about_picks(&self, rule: &mut impl FnMut(bool, String)) {
        let used = self.used();
        let marked: BTreeSet<&String> = MARKS.iter().filter_map(|mark| self.marked(mark)).collect();
        let named: BTreeSet<&String> = used.iter().map(|(name, _)| name).collect();
        rule(marked == named, format!("marks of {marked:?}, and the sentence names {named:?}"));
        for mark in MARKS {
            let all = self.verdicts.keys().filter(|name| self.is_marked(name, mark));
            rule(all.count() <= 1, format!("two are {mark}"));
            let json = self.json.get(mark);
            rule(json == self.marked(mark), format!("{mark} is {json:?} in JSON"));
            if let Some(pick) = self.marked(mark) {
                rule(!self.out.contains(pick), format!("{pick} is out, and {mark}"));
                rule(
                    !self.over.contains(&(mark, pick.clone())),
                    format!("{pick} breaks a limit, and is {mark}"),
                );
            }
        }
        let second = self.sentences().get(1).copied().unwrap_or_default().to_owned();
        let loses =
            |name: &String, text: &str| text.split("; ").any(|part| part.starts_with(&format!("{name} (")));
        for (name, _) in &used {
            let is_unproven = ["not prove", "not proven", "not shown to be"]
                .iter()
                .any(|word| self.sentence.contains(word));
            let about_it = self.sentence.contains("is not shown to cost") || !is_unproven;
            rule(about_it, format!("{name} is the pick and unproven"));
            rule(!loses(name, &second), format!("{name} is the pick and costs too much"));
        }
        for (mark, figure) in [("fastest", &self.cpu), ("leanest", &self.memory)] {
            let Some(pick) = self.marked(mark) else { continue };
            let (Some(own), worst) = (figure.get(pick), f64::INFINITY) else {
                rule(false, format!("{pick} is {mark} without a figure"));
                continue;
            };
            let ahead = figure
                .iter()
                .filter(|(name, ratio)| **ratio < own - 1e-9 && !self.out.contains(*name) && *ratio < &worst);
            let ahead: Vec<&String> = ahead
                .map(|(name, _)| name)
                .filter(|name| !self.over.contains(&(mark, (*name).clone())))
                .collect();
            let is_tied = self.verdicts[pick].contains(&format!("*{mark} (tied)*"));
            rule(
                is_tied != ahead.is_empty(),
                format!("{pick} is {mark}, {ahead:?} are ahead, tied: {is_tied}"),
            );
            let says = self.sentence.contains("tied with");
            rule(ahead.is_empty() || says, format!("{ahead:?} are ahead of {pick}, and no word of a tie"));
        }
    }

    fn about_words(&self, rule: &mut impl FnMut(bool, String)) {
        let is_gain = |name: &String| self.gains.iter().any(|(_, word)| self.verdicts[name].contains(word));
        let better: Vec<&String> = self.verdicts.keys().filter(|name| is_gain(name)).collect();
        let over: BTreeSet<&String> = self.over.iter().map(|(_, name)| name).collect();
        let says_none = ["no candidate", "Nothing", "Not settled", "Too "]
            .iter()
            .any(|word| self.sentence.starts_with(word))
            || self.sentence.starts_with("No candidate");
        for name in &better {
            let is_limited = over.contains(*name) && self.sentence.contains("within the limits");
            rule(
                !says_none || is_limited,
                format!("{name} is better by its verdict, and nothing is by the sentence"),
            );
            let is_leader = self.sentence.starts_with(&format!("{name} looks better"));
            rule(!is_leader, format!("{name} is proven by its verdict and not by the sentence"));
            rule(!self.out.contains(*name), format!("{name} is out and better"));
        }
        for (mark, word) in self.gains {
            if let Some(pick) = self.marked(mark) {
                let is_proven = self.proven.contains(&(mark, pick.clone()));
                rule(is_proven, format!("{pick} is {mark} and not '{word}' in JSON"));
            }
        }
        for (mark, name) in &self.proven {
            let word = self.gains.iter().find(|(of, _)| of == mark).unwrap().1;
            let is_said = self.is_marked(name, mark) || self.verdicts[name].contains(word);
            rule(is_said, format!("{name} is '{word}' in JSON and not in its verdict"));
        }
        for worse in ["slower", "more memory", "more CPU"] {
            let marks: &[&str] =
                if worse == "more memory" { &["leanest", "balanced"] } else { &["fastest", "balanced"] };
            for mark in marks {
                let is_so = self.marked(mark).is_some_and(|pick| self.verdicts[pick].contains(worse));
                rule(!is_so, format!("the {mark} one is '{worse}'"));
            }
        }
        let leader = self.sentence.split(" looks better").next().filter(|name| *name != self.sentence);
        if let Some(leader) = leader.map(str::to_owned) {
            rule(!self.out.contains(&leader), format!("{leader} looks better and is out"));
            let limits =
                self.over.iter().filter(|(mark, name)| *name == leader && *mark != "balanced").count();
            let figures = [&self.cpu, &self.memory];
            let gains =
                figures.iter().filter(|figure| figure.get(&leader).is_some_and(|ratio| *ratio < 1.0)).count();
            rule(
                limits < 2 && (limits == 0 || gains > 1),
                format!("{leader} looks better and breaks a limit"),
            );
        }
    }
}

/// A bench of a command, rendered in every way.
fn command(made: &Made, random: &mut SmallRng) -> Shown {
    let all = made.all();
    let runs: Vec<CandidateRuns> = all
        .iter()
        .map(|traits| {
            let run = |round: u32, random: &mut SmallRng| {
                let (user_s, memory) = made.draw(traits, random);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small, positive"
                )]
                let mean_bytes = memory as u64;
                let exit = i32::from(traits.end == End::Fails && round == 0);
                RawRun { round, user_s, wall_s: 1.0, mean_bytes, exit, ..RawRun::default() }
            };
            let runs = (0..made.rounds_of(traits)).map(|round| run(round, random)).collect();
            CandidateRuns { name: traits.name.to_owned(), runs }
        })
        .collect();
    let hung = all.iter().filter(|one| one.end == End::Hangs).map(|one| one.name.to_owned()).collect();
    let most_cost = CostLimits { cpu: 0.25, memory: made.max_memory };
    let options = Options { resamples: RESAMPLES, looks: made.looks, most_cost, ..Options::default() };
    let (runs, comparison) = Observed { runs, hung, ..Observed::default() }.compare(&options);
    let findings = ProgramFindings::of_runs(&runs, comparison.clone());
    let report = BenchReport::of_runs(vec!["x".to_owned()], runs, comparison);
    let mut shown = of_report(&report, made);
    let page: BTreeMap<&str, Vec<&str>> = findings
        .table
        .rows
        .iter()
        .map(|row| (row[0].as_str(), row[1].split(", ").filter(|mark| !mark.is_empty()).collect()))
        .collect();
    for (name, marks) in page {
        for mark in MARKS {
            if marks.contains(&mark) != (shown.is_marked(name, mark)) && name != "system" {
                shown.texts.push(format!("the page marks {name} as {marks:?}"));
            }
        }
    }
    shown.texts.push(findings.sentence);
    shown
}

fn of_report(report: &BenchReport<()>, made: &Made) -> Shown {
    let table = |width| report.table(&BenchLayout { width: Some(width), ..BenchLayout::default() });
    let wide = report.table(&BenchLayout {
        columns: vec!["verdict".parse().unwrap()],
        width: Some(1000),
        ..BenchLayout::default()
    });
    let line = |line: &str| {
        let (name, verdict) = line.trim().split_once(' ').unwrap_or_else(|| (line.trim(), ""));
        (name.to_owned(), verdict.trim().to_owned())
    };
    let json = serde_json::to_value(report).unwrap();
    let proven = better(&json["judgement"], &[("fastest", "cpu"), ("leanest", "memory")]);
    let pick = |goal: &str| json["judgement"]["picks"][goal]["candidate"].as_str().map(str::to_owned);
    let json = [("fastest", pick("cpu")), ("leanest", pick("memory")), ("balanced", pick("balanced"))];
    let others = || report.candidates.iter().filter(|one| one.name != "system");
    let out: BTreeSet<String> =
        others().filter(|one| one.ineligible.is_some()).map(|one| one.name.clone()).collect();
    let of = |get: fn(&CandidateReport) -> Option<f64>| {
        let fine = others().filter(|one| !out.contains(&one.name));
        fine.filter_map(|one| Some((one.name.clone(), get(one)?))).collect::<BTreeMap<_, _>>()
    };
    let cpu = of(|one| one.ratio.cpu.map(|ratio| ratio.mid));
    let memory = of(|one| one.ratio.memory.map(|ratio| ratio.mid));
    let beyond = |figure: &BTreeMap<String, f64>, most: f64, mark: &'static str| {
        figure
            .iter()
            .filter(|(_, ratio)| **ratio > 1.0 + most)
            .map(|(name, _)| (mark, name.clone()))
            .collect::<Vec<_>>()
    };
    let over = [
        beyond(&memory, made.max_memory, "fastest"),
        beyond(&cpu, 0.25, "leanest"),
        beyond(&memory, 0.05, "balanced"),
        beyond(&cpu, 0.02, "balanced"),
    ];
    Shown {
        sentence: report.sentence(),
        verdicts: wide.lines().skip(2).map(line).collect(),
        out: out.clone(),
        over: over.concat().into_iter().collect(),
        json: json.into_iter().filter_map(|(mark, name)| Some((mark, name?))).collect(),
        proven,
        texts: vec![report.markdown(&BenchLayout::default())],
        tables: [80, 100, 140].map(|width| (width, table(width))).to_vec(),
        made: made.rounds,
        most: 30,
        gains: [("fastest", "faster"), ("leanest", "less memory")],
        cpu,
        memory,
    }
}

/// The candidates that JSON calls better in these figures.
fn better(
    judgement: &serde_json::Value,
    figures: &[(&'static str, &str)],
) -> BTreeSet<(&'static str, String)> {
    let candidates = judgement["candidates"].as_array().unwrap();
    let of = |(mark, figure): &(&'static str, &str)| {
        let is_better = |one: &&serde_json::Value| one["figures"][figure]["answer"]["kind"] == "better";
        let all =
            candidates.iter().filter(is_better).map(|one| (*mark, one["name"].as_str().unwrap().to_owned()));
        all.collect::<Vec<_>>()
    };
    figures.iter().flat_map(of).collect()
}

/// A bench of a server, rendered in every way. Its goal is one figure.
fn server(made: &Made, random: &mut SmallRng) -> Shown {
    let goal = one_of(random, &[Goal::Memory, Goal::Cpu]);
    let rail: GuardRail = if goal == Goal::Memory { "cpu+2%" } else { "memory+5%" }.parse().unwrap();
    let all = made.all();
    let mut runs = vec![];
    for traits in &all {
        for round in 0..made.rounds_of(traits) {
            let (cpu, memory) = made.draw(traits, random);
            let mut figures = vec![];
            figures.extend(made.has_memory.then(|| Figure::lower("memory", memory, "B")));
            figures.extend(made.has_cpu.then(|| Figure::lower("cpu", cpu, "s")));
            let mut server = ServerRun::of(figures);
            if traits.end == End::Fails && round == 0 {
                server.failure = Some(Failure::new(Stage::Died, "it died".to_owned()));
            }
            let run = RawRun { candidate: traits.name.into(), round, user_s: cpu, ..RawRun::default() };
            runs.push(run.with_server(server));
        }
    }
    let names: Vec<String> = all.iter().map(|one| one.name.to_owned()).collect();
    let looks = made.looks.map(|_| Looks::SERVER);
    let worth = if goal == Goal::Memory { one_of(random, &[0.0, 1.0]) } else { 0.0 };
    let options = ServiceOptions { goal, rails: vec![rail], worth, seed: 1, resamples: RESAMPLES, looks };
    let comparison = compare_services(&names, &runs, &options);
    let verdict = |one: &_| service::verdict(&comparison, one);
    let measured = MeasuredService { name: "x", comparison: &comparison, runs: vec![] };
    let page = service::page("x", &[measured], &[]).result;
    let others = || comparison.candidates.iter().filter(|one| one.name != "system");
    let out: BTreeSet<String> = others().filter(|one| one.has_failed()).map(|one| one.name.clone()).collect();
    let mark = if goal == Goal::Memory { "leanest" } else { "fastest" };
    let figure: BTreeMap<String, f64> = others()
        .filter(|one| !out.contains(&one.name))
        .filter_map(|one| Some((one.name.clone(), one.cost?)))
        .collect();
    let over = others().filter(|one| verdict(one).contains("not within")).map(|one| (mark, one.name.clone()));
    let json = serde_json::to_value(&comparison).unwrap();
    let key = if goal == Goal::Memory { "memory" } else { "cpu" };
    let proven = better(&json["judgement"], &[(mark, key)]);
    let picked = json["judgement"]["picks"][key]["candidate"].as_str().map(|name| (mark, name.to_owned()));
    let words = if goal == Goal::Memory { "less memory" } else { "less CPU" };
    let (cpu, memory) =
        if goal == Goal::Memory { (BTreeMap::new(), figure) } else { (figure, BTreeMap::new()) };
    Shown {
        sentence: service::sentence(&comparison),
        verdicts: comparison.candidates.iter().map(|one| (one.name.clone(), verdict(one))).collect(),
        over: over.collect(),
        out,
        json: picked.into_iter().collect(),
        proven,
        texts: vec![page],
        tables: [80, 100, 140]
            .map(|width| (width, service::terminal_table(&comparison, &[], width)))
            .to_vec(),
        made: made.rounds,
        most: looks.map_or(30, |looks| looks.most),
        gains: [(mark, words), (mark, words)],
        cpu,
        memory,
    }
}

#[test]
fn no_rendering_contradicts_another() {
    let mut contradictions = vec![];
    let mut endings: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..TABLES {
        let mut random = SmallRng::seed_from_u64(seed);
        let made = Made::of(&mut random);
        let shown = if seed % 4 == 3 { server(&made, &mut random) } else { command(&made, &mut random) };
        let kind: Vec<&str> = shown.sentence.split(' ').take(2).collect();
        let kind = if shown.sentence.starts_with("Use") { "Use".to_owned() } else { kind.join(" ") };
        let kind = if NAMES.iter().any(|name| kind == format!("{name} looks")) {
            "X looks".to_owned()
        } else {
            kind
        };
        *endings.entry(kind).or_default() += 1;
        for what in shown.contradictions() {
            contradictions
                .push(format!("{what}\n  table {seed}: {}\n  {:?}", shown.sentence, shown.verdicts));
        }
    }
    println!("endings: {endings:?}");
    println!("contradictions in {TABLES} tables: {}", contradictions.len());
    let first = contradictions.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
    assert!(contradictions.is_empty(), "{first}");
    assert!(endings.len() >= 8, "every ending is among them: {endings:?}");
}
