// SPDX-License-Identifier: Apache-2.0
//! Every figure that the paper prints, beside ours.

use imas_core::plural::counted;
use imas_core::stats::Interval;

use super::Judged;
use super::strategy::{Aim, PAPERS_FOUR, Strategy, analyse};
use super::total::{Metric, ahead, total, with_interval};
use crate::verdict::{Finding, Reproduction};

pub(crate) fn findings(judged: &Judged) -> Vec<Finding> {
    vec![
        most(judged, Metric::Frag, "Up to 58 % less fragmentation", 58.0),
        most(judged, Metric::Time, "Up to 90 % faster operations", 90.0),
        mean(
            judged,
            Metric::Frag,
            "On average 7.16 % less fragmentation than system",
            "7.16 +- 2.53 %",
            7.16,
        ),
        mean(judged, Metric::Time, "On average 1.79 % faster operations than system", "1.79 +- 7.32 %", 1.79),
        hoard(judged),
        evenly(judged),
        dominated(judged),
        slower(judged),
        only_hoard(judged),
    ]
}

/// The strategy of the paper's figures: the paper's four candidates and the balanced pick.
const BALANCED: Strategy = Strategy::PaperFour(Aim::Balanced);

/// The finding for a claim about the four, if not all of them have counted runs.
fn missing(claim: &str, printed: &str, lacking: &[&str]) -> Finding {
    let remark = match lacking {
        [] => "No program has two counted rounds of system, Hoard, TCMalloc and jemalloc.".to_owned(),
        lacking => format!("It names four allocators; these runs lack {}.", lacking.join(", ")),
    };
    Finding {
        claim: claim.to_owned(),
        printed: printed.to_owned(),
        ours: "no figure".to_owned(),
        verdict: Reproduction::Undecided,
        remark,
    }
}

/// Names of the paper's four allocators that have no counted runs.
fn lacking(judged: &Judged) -> Vec<&'static str> {
    let of =
        |name: &str| total(&judged.outcomes, &Strategy::Always(name.to_owned()), Metric::Frag, judged.by);
    PAPERS_FOUR.into_iter().filter(|name| of(name).is_none()).collect()
}

/// The finding, unless one of the four allocators that it is about was not measured.
fn unless_lacking(
    judged: &Judged,
    (claim, printed): (&str, &str),
    finding: impl FnOnce() -> Option<Finding>,
) -> Finding {
    let lacking = lacking(judged);
    let found = if lacking.is_empty() { finding() } else { None };
    found.unwrap_or_else(|| missing(claim, printed, &lacking))
}

fn most(judged: &Judged, metric: Metric, claim: &str, printed: f64) -> Finding {
    let text = format!("{printed} %");
    unless_lacking(judged, (claim, &text), || most_of(judged, metric, claim, printed))
}

fn most_of(judged: &Judged, metric: Metric, claim: &str, printed: f64) -> Option<Finding> {
    let text = format!("{printed} %");
    let all = judged.outcomes.get(&BALANCED);
    let gains = all.into_iter().flatten().filter_map(|(i, o)| Some((i, metric.gain(metric.of(o)?))));
    let (program, gain) = gains.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Finding {
        claim: claim.to_owned(),
        printed: text,
        ours: format!("{gain:.1} % ({})", judged.source.programs[*program].name),
        verdict: match gain {
            gain if gain >= printed => Reproduction::Reproduced,
            gain if gain > 0.0 => Reproduction::Differs,
            _ => Reproduction::NotReproduced,
        },
        remark: format!(
            "The program that gains most in {}, balanced picks among the paper's four.",
            metric.name()
        ),
    })
}

/// The verdict on a printed mean. Reproduced: it lies in our interval, or ours is higher. Differs: there is a
/// gain of another size.
fn of_mean(printed: f64, ours: &Interval) -> Reproduction {
    match ours {
        ours if ours.lo > printed || (ours.contains(printed) && ours.lo > 0.0) => Reproduction::Reproduced,
        ours if ours.lo > 0.0 || ours.contains(printed) => Reproduction::Differs,
        _ => Reproduction::NotReproduced,
    }
}

fn mean(judged: &Judged, metric: Metric, claim: &str, text: &str, printed: f64) -> Finding {
    unless_lacking(judged, (claim, text), || mean_of(judged, metric, claim, text, printed))
}

fn mean_of(judged: &Judged, metric: Metric, claim: &str, text: &str, printed: f64) -> Option<Finding> {
    let of = |strategy: &Strategy| total(&judged.outcomes, strategy, metric, judged.by);
    let ours = of(&BALANCED)?;
    let other = |strategy| of(&strategy).map_or_else(|| "-".to_owned(), |t| t.mean_and_count());
    Some(Finding {
        claim: claim.to_owned(),
        printed: text.to_owned(),
        ours: ours.mean_and_count(),
        verdict: of_mean(printed, &ours.mean),
        remark: format!(
            "Balanced picks among the paper's four, on runs that did not choose them. Judged on the runs that chose, as the paper judges: {}. \
             Among all our candidates: {}. The adaptive policy, which does not look at this metric: {}.{}",
            other(Strategy::PaperAsPrinted(Aim::Balanced)),
            other(Strategy::Paper(Aim::Balanced)),
            other(Strategy::Adaptive(Aim::Balanced)),
            if metric == Metric::Time { " The printed interval contains 0." } else { "" }
        ),
    })
}

fn hoard(judged: &Judged) -> Finding {
    let (claim, printed) = ("IMAS saves 23 % more fragmentation than Hoard for everything", "23 %");
    unless_lacking(judged, (claim, printed), || hoard_of(judged, claim, printed))
}

fn hoard_of(judged: &Judged, claim: &str, printed: &str) -> Option<Finding> {
    let always = Strategy::Always("hoard".to_owned());
    let of = |strategy| total(&judged.outcomes, strategy, Metric::Frag, judged.by);
    let (programs, lead) = ahead(&judged.outcomes, (&BALANCED, &always), Metric::Frag, judged.by)?;
    let (imas, hoard) = (of(&BALANCED)?, of(&always)?);
    let ratio = imas.mean.mid / hoard.mean.mid - 1.0;
    Some(Finding {
        claim: claim.to_owned(),
        printed: printed.to_owned(),
        ours: format!("{} points more ({})", with_interval(&lead), counted(programs, "program")),
        verdict: match lead.lo > 0.0 {
            // If both have a loss, the smaller loss is not a gain.
            true if imas.mean.mid > 0.0 && (hoard.mean.mid <= 0.0 || ratio >= 0.23) => {
                Reproduction::Reproduced
            }
            true => Reproduction::Differs,
            false => Reproduction::NotReproduced,
        },
        remark: format!(
            "Gains against system, in points: IMAS {}, Hoard {}.{}",
            with_interval(&imas.mean),
            with_interval(&hoard.mean),
            if imas.mean.mid > 0.0 { "" } else { " IMAS loses less than Hoard, and both lose." }
        ),
    })
}

/// Share of the programs for each candidate, with one pick of Algorithm 9 over all counted runs.
pub(crate) fn paper_shares(judged: &Judged, aim: Aim, may: impl Fn(&str) -> bool) -> Vec<(String, f64)> {
    let mut counts = vec![0.0; judged.source.candidates.len()];
    for program in &judged.source.programs {
        let rounds: Vec<usize> = (0..program.counted.len()).collect();
        let Some(picks) = analyse(program, &rounds, &may) else { continue };
        let pick = match aim {
            Aim::Fastest => picks.fastest,
            Aim::Leanest => picks.leanest,
            Aim::Balanced => picks.balanced,
        };
        let place = judged.source.candidates.iter().position(|name| *name == program.candidates[pick]);
        if let Some(place) = place {
            counts[place] += 1.0;
        }
    }
    let all: f64 = counts.iter().sum();
    let share = |count: f64| if all > 0.0 { count / all } else { 0.0 };
    judged.source.candidates.iter().cloned().zip(counts.into_iter().map(share)).collect()
}

fn among_four(judged: &Judged, aim: Aim) -> Vec<(String, f64)> {
    let is_papers = |name: &str| PAPERS_FOUR.contains(&name);
    let shares = paper_shares(judged, aim, is_papers).into_iter();
    shares.filter(|(name, _)| is_papers(name)).collect()
}

fn worded(shares: &[(String, f64)]) -> String {
    super::best_worst::shares(shares)
}

fn evenly(judged: &Judged) -> Finding {
    let published = ("The fastest picks are spread almost evenly over the four (figure 7)", "no winner");
    let shares = among_four(judged, Aim::Fastest);
    let even = |(_, share): &(String, f64)| (0.15..=0.35).contains(share);
    unless_lacking(judged, published, || {
        Some(Finding {
            claim: published.0.to_owned(),
            printed: published.1.to_owned(),
            ours: worded(&shares),
            verdict: Reproduction::holds(shares.len() == 4 && shares.iter().all(even)),
            remark: "Evenly: each of the four between 15 and 35 % of the programs. All counted runs, as the paper has it."
                .to_owned(),
        })
    })
}

fn dominated(judged: &Judged) -> Finding {
    let published = (
        "The leanest and balanced picks are mostly Hoard and system; TCMalloc and jemalloc lose (figure 7)",
        "dominated by Hoard and system",
    );
    unless_lacking(judged, published, || Some(dominated_of(judged, published)))
}

fn dominated_of(judged: &Judged, (claim, printed): (&str, &str)) -> Finding {
    let both = [Aim::Leanest, Aim::Balanced].map(|aim| among_four(judged, aim));
    let of = |shares: &[(String, f64)]| -> f64 {
        shares.iter().filter(|(name, _)| name == "hoard" || name == "system").map(|(_, share)| share).sum()
    };
    let most = both.iter().all(|shares| of(shares) > 0.5);
    Finding {
        claim: claim.to_owned(),
        printed: printed.to_owned(),
        ours: format!("leanest: {}; balanced: {}", worded(&both[0]), worded(&both[1])),
        verdict: Reproduction::holds(most),
        remark: "By virtual sizes, in which those two reserve more than they use. In resident memory see figure 7's third panel."
            .to_owned(),
    }
}

/// Mean gains of the single allocators of the paper other than `system`.
fn singles(judged: &Judged, metric: Metric) -> Vec<(&'static str, Interval)> {
    let of = |name: &'static str| {
        let total = total(&judged.outcomes, &Strategy::Always(name.to_owned()), metric, judged.by)?;
        Some((name, total.mean))
    };
    PAPERS_FOUR[1..].iter().filter_map(|name| of(name)).collect()
}

fn slower(judged: &Judged) -> Finding {
    let (claim, printed) =
        ("Every single allocator is slower than system on average (figure 8)", "all slower");
    unless_lacking(judged, (claim, printed), || Some(slower_of(judged, claim, printed)))
}

fn slower_of(judged: &Judged, claim: &str, printed: &str) -> Finding {
    let singles = singles(judged, Metric::Time);
    Finding {
        claim: claim.to_owned(),
        printed: printed.to_owned(),
        ours: listed(&singles, "%"),
        verdict: match () {
            () if singles.iter().all(|(_, gain)| gain.hi < 0.0) => Reproduction::Reproduced,
            () if singles.iter().all(|(_, gain)| gain.mid < 0.0) => Reproduction::Differs,
            () => Reproduction::NotReproduced,
        },
        remark: format!(
            "Gain in ns per operation, mean over the programs. In CPU time of the whole program: {}.",
            listed(&self::singles(judged, Metric::Cpu), "%")
        ),
    }
}

fn only_hoard(judged: &Judged) -> Finding {
    let (claim, printed) = ("Of single allocators only Hoard is leaner than system (figure 8)", "only Hoard");
    unless_lacking(judged, (claim, printed), || Some(only_hoard_of(judged, claim, printed)))
}

fn only_hoard_of(judged: &Judged, claim: &str, printed: &str) -> Finding {
    let singles = singles(judged, Metric::Frag);
    Finding {
        claim: claim.to_owned(),
        printed: printed.to_owned(),
        ours: listed(&singles, "points"),
        verdict: Reproduction::holds(
            singles.iter().all(|(name, gain)| (*name == "hoard") == (gain.mid > 0.0)),
        ),
        remark: format!(
            "By virtual sizes. In resident memory: {}.",
            listed(&self::singles(judged, Metric::Memory), "%")
        ),
    }
}

fn listed(singles: &[(&str, Interval)], unit: &str) -> String {
    let one = |(name, gain): &(&str, Interval)| format!("{name} {} {unit}", with_interval(gain));
    singles.iter().map(one).collect::<Vec<_>>().join("; ")
}
