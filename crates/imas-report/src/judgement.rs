// SPDX-License-Identifier: Apache-2.0
//! A judgement in words: the verdict on a candidate, the marks of picks, and the sentence under the table. Commands,
//! servers, pages and Markdown say it alike. Nothing is decided here.

use imas_cli::format::{self, counted};
use imas_core::compare::Answer;
use imas_core::judgement::{
    BenchEnding, BenchJudgement, FigureAnswer, Goal, GoalPick, JudgedCandidate, JudgedFigure, TooDear,
};

/// Figures in the order of the sentence, and their names.
const NAMES: [(&str, &str); 8] = [
    ("cpu", "CPU"),
    ("memory", "memory"),
    ("memory_idle", "memory after the pause"),
    ("memory_day", "memory over the day"),
    ("p99", "p99"),
    ("p95", "p95"),
    ("mean", "mean latency"),
    ("rate", "time per request"),
];
/// Figures for one place of the sentence: the first one that was measured stands there.
const LATENCIES: [&str; 4] = ["p99", "p95", "mean", "rate"];
/// Tied candidates that are named.
const MOST_TIED: usize = 2;

/// Word for the pick of a goal.
#[must_use]
pub fn title(goal: Goal) -> &'static str {
    match goal {
        Goal::Balanced => "balanced",
        Goal::Cpu => "fastest",
        Goal::Memory => "leanest",
        Goal::Latency => "quickest",
    }
}

/// When the pick of a goal is the one to use.
fn when(goal: Goal) -> &'static str {
    match goal {
        Goal::Balanced => "",
        Goal::Cpu => " when CPU is short",
        Goal::Memory => " when memory is short",
        Goal::Latency => " when latency counts",
    }
}

/// Name of a figure in a sentence.
#[must_use]
pub fn figure_name(figure: &str) -> &str {
    NAMES.iter().find(|(name, _)| *name == figure).map_or(figure, |(_, words)| words)
}

/// The figures of a candidate in the order of the sentence.
pub(crate) fn told(candidate: &JudgedCandidate) -> impl Iterator<Item = (&'static str, &JudgedFigure)> {
    let latency = LATENCIES.into_iter().find(|name| candidate.figures.contains_key(*name));
    let is_told = move |name: &str| !LATENCIES.contains(&name) || Some(name) == latency;
    NAMES
        .into_iter()
        .filter(move |(name, _)| is_told(name))
        .filter_map(|(name, words)| Some((words, candidate.figures.get(name)?)))
}

/// Picks that a candidate is, as marks in a table.
pub fn marks(judgement: &BenchJudgement, name: &str) -> Vec<String> {
    let mark =
        |(goal, is_tied): (Goal, bool)| format!("*{}{}*", title(goal), if is_tied { " (tied)" } else { "" });
    judgement.goals_of(name).map(mark).collect()
}

/// Words on CPU time and memory of a command's candidate. What a mark says already is left out.
#[must_use]
pub fn words(judgement: &BenchJudgement, name: &str) -> Vec<String> {
    let Some(candidate) = judgement.candidate(name) else { return vec![] };
    if name == imas_core::SYSTEM {
        return vec!["reference".to_owned()];
    }
    let picked: Vec<Goal> = judgement.goals_of(name).map(|(goal, _)| goal).collect();
    let answers = [("cpu", Goal::Cpu), ("memory", Goal::Memory)]
        .map(|(figure, goal)| (goal, candidate.figures.get(figure).map(|one| one.answer)));
    let word = |(goal, answer): &(Goal, Option<FigureAnswer>)| match (answer, goal) {
        (Some(FigureAnswer::Better), goal) if picked.contains(goal) => None,
        (Some(FigureAnswer::Better), Goal::Cpu) => Some("faster"),
        (Some(FigureAnswer::Better), _) => Some("less memory"),
        (Some(FigureAnswer::Worse), Goal::Cpu) => Some("slower"),
        (Some(FigureAnswer::Worse), _) => Some("more memory"),
        _ => None,
    };
    let words: Vec<String> = answers.iter().filter_map(word).map(str::to_owned).collect();
    let is_known = |(_, answer): &(Goal, Option<FigureAnswer>)| {
        matches!(answer, Some(FigureAnswer::NoGain | FigureAnswer::Open { .. }))
    };
    match answers.iter().any(is_known) {
        _ if !words.is_empty() || !picked.is_empty() => words,
        true => vec!["within noise".to_owned()],
        false => vec!["not enough data".to_owned()],
    }
}

/// `CPU +24 %, for memory -43 %`: what it costs comes first.
#[must_use]
pub fn change(candidate: &JudgedCandidate) -> String {
    changes(candidate, |figure| figure.answer == FigureAnswer::Better)
}

fn has_gain(candidate: &JudgedCandidate) -> bool {
    candidate.figures.values().any(|figure| figure.answer == FigureAnswer::Better)
}

/// Change as [`change`] writes it, with gains that are not proven.
fn looks(candidate: &JudgedCandidate) -> String {
    changes(candidate, |figure| figure.looks == Answer::Better)
}

fn changes(candidate: &JudgedCandidate, is_gain: impl Fn(&JudgedFigure) -> bool) -> String {
    let percent =
        |(words, figure): (&str, &JudgedFigure)| format!("{words} {}", format::percent(figure.ratio.mid));
    let gains: Vec<String> = told(candidate).filter(|(_, figure)| is_gain(figure)).map(percent).collect();
    let is_cost = |figure: &JudgedFigure| figure.looks == Answer::Worse;
    let costs: Vec<String> = told(candidate)
        .filter(|(_, figure)| is_cost(figure))
        .map(|(words, figure)| {
            let perhaps = if figure.answer == FigureAnswer::Worse { "" } else { "perhaps " };
            format!("{perhaps}{}", percent((words, figure)))
        })
        .collect();
    match (costs.is_empty(), gains.is_empty()) {
        (true, true) => "as it is".to_owned(),
        (false, false) => format!("{}, for {}", costs.join(", "), gains.join(", ")),
        _ => [costs, gains].concat().join(", "),
    }
}

/// Result of a bench, in one or two sentences.
#[must_use]
pub fn sentence(judgement: &BenchJudgement) -> String {
    sentence_with(judgement, &[])
}

/// Sentences of [`sentence`], with remarks on the pick in the second.
#[must_use]
pub fn sentence_with(judgement: &BenchJudgement, remarks: &[String]) -> String {
    let mut dear: Vec<&TooDear> = vec![];
    for one in judgement.picks.values().filter_map(|pick| pick.too_dear.as_ref()) {
        if dear.iter().all(|known| known.candidate != one.candidate) {
            dear.push(one);
        }
    }
    let costs = |one: &&TooDear| {
        let what = judgement.candidate(&one.candidate).map(change).unwrap_or_default();
        let allow = if one.breaks.len() == 1 { "allows" } else { "allow" };
        format!("{} ({what}) costs more than {} {allow}", one.candidate, one.breaks.join(" and "))
    };
    let dear = dear.iter().map(costs);
    let remarks = dear.chain(remarks.iter().cloned()).collect::<Vec<_>>().join("; ");
    let second = if remarks.is_empty() { String::new() } else { format!(" {remarks}.") };
    first(judgement) + &second
}

fn first(judgement: &BenchJudgement) -> String {
    let none = match judgement.has_too_dear() {
        true => "no candidate within the limits",
        false => "no candidate",
    };
    match &judgement.ending {
        BenchEnding::NothingToCompare => "Nothing could be compared with system.".to_owned(),
        BenchEnding::NothingToSave { share } => format!(
            "Nothing to save: an allocator could take at most {:.1} % of its memory. Leave it as it is; --all \
             measures all the same.",
            share * 100.0
        ),
        BenchEnding::NoneLooksBetter => format!(
            "None looks better than system after {}: leave it as it is. -n 6 measures all candidates so often.",
            counted(judgement.rounds, "round")
        ),
        BenchEnding::TooFewRounds { least } => format!(
            "Nothing can be said after {}: a proof takes at least {least} (-n {least}, or more).",
            counted(judgement.rounds, "round")
        ),
        BenchEnding::Picked => picked(judgement),
        BenchEnding::LooksBetter { candidate, more_rounds } => format!(
            "{candidate} looks better ({}), and {} not prove it; about {} would settle it.",
            judgement.candidate(candidate).map(looks).unwrap_or_default(),
            if judgement.rounds == 1 {
                "1 round does".to_owned()
            } else {
                format!("{} rounds do", judgement.rounds)
            },
            counted(*more_rounds, "more round")
        ),
        BenchEnding::NotSettled { more_rounds } => format!(
            "Not settled: {none} is proven better than system, and some may be; about {} would settle it.",
            counted(*more_rounds, "more round")
        ),
        BenchEnding::TooClose { gain_below } => format!(
            "Too close to tell: {none} is proven better than system, and a gain would be below {:.0} %.",
            (gain_below * 100.0).ceil()
        ),
        BenchEnding::TooNoisy => format!("Too noisy to tell: {none} is proven better than system."),
        BenchEnding::NoneWithinLimits => {
            "No candidate within the limits is better than system: leave it as it is.".to_owned()
        }
        BenchEnding::NoneBetter => {
            "Nothing here is better than system for this program: leave it as it is.".to_owned()
        }
    }
}

/// `Use X (CPU -12 %); Y when memory is short (memory -31 %, tied with Z).`
fn picked(judgement: &BenchJudgement) -> String {
    let mut groups: Vec<(&str, Vec<(Goal, &GoalPick)>)> = vec![];
    for (goal, pick) in &judgement.picks {
        let Some(name) = pick.candidate.as_deref() else { continue };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, goals)) => goals.push((*goal, pick)),
            None => groups.push((name, vec![(*goal, pick)])),
        }
    }
    let of_group = |(name, goals): (&str, Vec<(Goal, &GoalPick)>)| {
        let is_for_one = goals.len() == 1 && judgement.picks.len() > 1;
        let when = if is_for_one { when(goals[0].0) } else { "" };
        let mut tied: Vec<&str> = goals.iter().flat_map(|(_, pick)| &pick.tied).map(String::as_str).collect();
        tied.sort_unstable();
        tied.dedup();
        let what = judgement.candidate(name).filter(|one| has_gain(one)).map(change);
        // A goal of several figures may be proven where none of them is.
        let what = what.unwrap_or_else(|| "on the whole".to_owned());
        format!("{name}{when} ({what}{})", tied_with(&tied))
    };
    let parts: Vec<String> = groups.into_iter().map(of_group).collect();
    format!("Use {}.", parts.join("; "))
}

fn tied_with(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        some if some.len() <= MOST_TIED => format!(", tied with {}", some.join(" and ")),
        many => format!(", tied with {} and {} more", many[..MOST_TIED].join(", "), many.len() - MOST_TIED),
    }
}
