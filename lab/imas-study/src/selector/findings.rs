// SPDX-License-Identifier: Apache-2.0
//! Every figure that the paper prints, beside ours.

use imas_core::printable::counted;
use imas_core::stats::Interval;

use super::strategy::{Aim, PAPERS_FOUR, Strategy, analyse, is_papers};
use super::total::{Metric, ahead, total, with_interval};
use super::{Judged, best_worst};
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

/// Names of the paper's four allocators that have no counted runs.
fn lacking(judged: &Judged) -> Vec<&'static str> {
    let of =
        |name: &str| total(&judged.outcomes, &Strategy::Always(name.to_owned()), Metric::Frag, judged.by);
    PAPERS_FOUR.into_iter().filter(|name| of(name).is_none()).collect()
}

/// Our figure, the verdict, and a sentence of explanation.
type Shown = (String, Reproduction, String);

/// The finding on a claim about the four; undecided without runs of all of them.
fn finding(judged: &Judged, claim: &str, printed: &str, shown: impl FnOnce() -> Option<Shown>) -> Finding {
    let lacking = lacking(judged);
    let shown = if lacking.is_empty() { shown() } else { None };
    let (ours, verdict, remark) = shown.unwrap_or_else(|| {
        let remark = match lacking.as_slice() {
            [] => "No program has two counted rounds of system, Hoard, TCMalloc and jemalloc.".to_owned(),
            lacking => format!("It names four allocators; these runs lack {}.", lacking.join(", ")),
        };
        ("no figure".to_owned(), Reproduction::Undecided, remark)
    });
    Finding { claim: claim.to_owned(), printed: printed.to_owned(), ours, verdict, remark }
}

fn most(judged: &Judged, metric: Metric, claim: &str, printed: f64) -> Finding {
    finding(judged, claim, &format!("{printed} %"), || {
        let all = judged.outcomes.get(&BALANCED);
        let gains = all.into_iter().flatten().filter_map(|(i, o)| Some((i, metric.gain(metric.of(o)?))));
        let (program, gain) = gains.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let verdict = match gain {
            gain if gain >= printed => Reproduction::Reproduced,
            gain if gain > 0.0 => Reproduction::Differs,
            _ => Reproduction::NotReproduced,
        };
        let remark = format!(
            "The program that gains most in {}, balanced picks among the paper's four.",
            metric.name()
        );
        Some((format!("{gain:.1} % ({})", judged.source.programs[*program].name), verdict, remark))
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
    finding(judged, claim, text, || {
        let of = |strategy: &Strategy| total(&judged.outcomes, strategy, metric, judged.by);
        let ours = of(&BALANCED)?;
        let other = |strategy| of(&strategy).map_or_else(|| "-".to_owned(), |t| t.mean_and_count());
        let remark = format!(
            "Balanced picks among the paper's four, on runs that did not choose them. Judged on the runs that chose, as the paper judges: {}. \
             Among all our candidates: {}. The adaptive policy, which does not look at this metric: {}.{}",
            other(Strategy::PaperAsPrinted(Aim::Balanced)),
            other(Strategy::Paper(Aim::Balanced)),
            other(Strategy::Adaptive(Aim::Balanced)),
            if metric == Metric::Time { " The printed interval contains 0." } else { "" }
        );
        Some((ours.mean_and_count(), of_mean(printed, &ours.mean), remark))
    })
}

fn hoard(judged: &Judged) -> Finding {
    finding(judged, "IMAS saves 23 % more fragmentation than Hoard for everything", "23 %", || {
        let always = Strategy::Always("hoard".to_owned());
        let of = |strategy| total(&judged.outcomes, strategy, Metric::Frag, judged.by);
        let (programs, lead) = ahead(&judged.outcomes, (&BALANCED, &always), Metric::Frag, judged.by)?;
        let (imas, hoard) = (of(&BALANCED)?, of(&always)?);
        let ratio = imas.mean.mid / hoard.mean.mid - 1.0;
        let verdict = match lead.lo > 0.0 {
            // If both have a loss, the smaller loss is not a gain.
            true if imas.mean.mid > 0.0 && (hoard.mean.mid <= 0.0 || ratio >= 0.23) => {
                Reproduction::Reproduced
            }
            true => Reproduction::Differs,
            false => Reproduction::NotReproduced,
        };
        let remark = format!(
            "Gains against system, in points: IMAS {}, Hoard {}.{}",
            with_interval(&imas.mean),
            with_interval(&hoard.mean),
            if imas.mean.mid > 0.0 { "" } else { " IMAS loses less than Hoard, and both lose." }
        );
        let ours = format!("{} points more ({})", with_interval(&lead), counted(programs, "program"));
        Some((ours, verdict, remark))
    })
}

/// Share of the programs for each candidate, with one pick of Algorithm 9 over all counted runs.
pub(crate) fn paper_shares(judged: &Judged, aim: Aim, may: impl Fn(&str) -> bool) -> Vec<(String, f64)> {
    let mut counts = vec![0.0; judged.source.candidates.len()];
    for program in &judged.source.programs {
        let rounds: Vec<usize> = (0..program.counted.len()).collect();
        let Some(picks) = analyse(program, &rounds, &may) else { continue };
        let pick = aim.of(&picks);
        let place = judged.source.candidates.iter().position(|name| *name == program.candidates[pick]);
        if let Some(place) = place {
            counts[place] += 1.0;
        }
    }
    let all: f64 = counts.iter().sum();
    let share = |count: f64| if all > 0.0 { count / all } else { 0.0 };
    judged.source.candidates.iter().cloned().zip(counts.into_iter().map(share)).collect()
}

pub(crate) fn among_four(judged: &Judged, aim: Aim) -> Vec<(String, f64)> {
    let shares = paper_shares(judged, aim, is_papers).into_iter();
    shares.filter(|(name, _)| is_papers(name)).collect()
}

fn evenly(judged: &Judged) -> Finding {
    let claim = "The fastest picks are spread almost evenly over the four (figure 7)";
    finding(judged, claim, "no winner", || {
        let shares = among_four(judged, Aim::Fastest);
        let even = |(_, share): &(String, f64)| (0.15..=0.35).contains(share);
        let verdict = Reproduction::holds(shares.len() == 4 && shares.iter().all(even));
        let remark = "Evenly: each of the four between 15 and 35 % of the programs. All counted runs, as the paper has it.";
        Some((best_worst::shares(&shares), verdict, remark.to_owned()))
    })
}

fn dominated(judged: &Judged) -> Finding {
    let claim =
        "The leanest and balanced picks are mostly Hoard and system; TCMalloc and jemalloc lose (figure 7)";
    finding(judged, claim, "dominated by Hoard and system", || {
        let both = [Aim::Leanest, Aim::Balanced].map(|aim| among_four(judged, aim));
        let of = |shares: &[(String, f64)]| -> f64 {
            let dominating = shares.iter().filter(|(name, _)| name == "hoard" || name == "system");
            dominating.map(|(_, share)| share).sum()
        };
        let most = both.iter().all(|shares| of(shares) > 0.5);
        let [leanest, balanced] = both.map(|shares| best_worst::shares(&shares));
        let remark = "By virtual sizes, in which those two reserve more than they use. In resident memory see figure 7's third panel.";
        let ours = format!("leanest: {leanest}; balanced: {balanced}");
        Some((ours, Reproduction::holds(most), remark.to_owned()))
    })
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
    let claim = "Every single allocator is slower than system on average (figure 8)";
    finding(judged, claim, "all slower", || {
        let time = singles(judged, Metric::Time);
        let verdict = match () {
            () if time.iter().all(|(_, gain)| gain.hi < 0.0) => Reproduction::Reproduced,
            () if time.iter().all(|(_, gain)| gain.mid < 0.0) => Reproduction::Differs,
            () => Reproduction::NotReproduced,
        };
        let remark = format!(
            "Gain in ns per operation, mean over the programs. In CPU time of the whole program: {}.",
            listed(&singles(judged, Metric::Cpu), "%")
        );
        Some((listed(&time, "%"), verdict, remark))
    })
}

fn only_hoard(judged: &Judged) -> Finding {
    let claim = "Of single allocators only Hoard is leaner than system (figure 8)";
    finding(judged, claim, "only Hoard", || {
        let frag = singles(judged, Metric::Frag);
        let only = frag.iter().all(|(name, gain)| (*name == "hoard") == (gain.mid > 0.0));
        let memory = listed(&singles(judged, Metric::Memory), "%");
        let remark = format!("By virtual sizes. In resident memory: {memory}.");
        Some((listed(&frag, "points"), Reproduction::holds(only), remark))
    })
}

fn listed(singles: &[(&str, Interval)], unit: &str) -> String {
    let one = |(name, gain): &(&str, Interval)| format!("{name} {} {unit}", with_interval(gain));
    singles.iter().map(one).collect::<Vec<_>>().join("; ")
}
