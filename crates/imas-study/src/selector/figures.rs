// SPDX-License-Identifier: Apache-2.0
//! Figures 7 to 11 of the paper, each in its metric and in ours.

use imas_core::stats::Interval;

use super::Judged;
use super::findings::paper_shares;
use super::judge::Outcome;
use super::strategy::{Aim, PAPERS_FOUR, Strategy};
use super::total::{Metric, total, with_interval};
use crate::bars::{Bars, Sorted, bars, sorted};
use crate::error::Result;
use crate::study::Figure;
use crate::table::Table;

pub(crate) fn figures(judged: &Judged) -> Result<Vec<Figure>> {
    Ok(vec![
        shares(judged)?,
        gains(judged)?,
        cpu(judged)?,
        saved(judged, Who::Imas)?,
        saved(judged, Who::Hoard)?,
    ])
}

/// Share of the picks by candidate.
type Shares = Vec<(String, Vec<f64>)>;

fn joined(columns: Vec<Vec<(String, f64)>>) -> Shares {
    let names: Vec<String> = columns[0].iter().map(|(name, _)| name.clone()).collect();
    names.into_iter().enumerate().map(|(i, name)| (name, columns.iter().map(|c| c[i].1).collect())).collect()
}

/// Shares of the adaptive policy: mean over programs of the shares of splits.
fn adaptive_shares(judged: &Judged, aim: Aim) -> Vec<(String, f64)> {
    let Some(outcomes) = judged.outcomes.get(&Strategy::Adaptive(aim)) else { return vec![] };
    let share = |candidate: &String| {
        let of = |picks: &[(String, f64)]| -> f64 {
            picks.iter().filter(|(name, _)| name == candidate).map(|(_, share)| share).sum()
        };
        outcomes.values().map(|outcome| of(&outcome.picks)).sum::<f64>() / outcomes.len().max(1) as f64
    };
    judged.source.candidates.iter().map(|candidate| (candidate.clone(), share(candidate))).collect()
}

fn shares(judged: &Judged) -> Result<Figure> {
    let is_papers = |name: &str| PAPERS_FOUR.contains(&name);
    let four = joined(Aim::ALL.map(|aim| paper_shares(judged, aim, is_papers)).to_vec());
    let four: Shares = four.into_iter().filter(|(name, _)| is_papers(name)).collect();
    let panels = [
        ("Paper's metric and collection: % of programs", four),
        (
            "Paper's metric, all candidates",
            joined(Aim::ALL.map(|aim| paper_shares(judged, aim, |_| true)).to_vec()),
        ),
        (
            "Ours: CPU and resident memory, adaptive policy",
            joined(Aim::ALL.map(|aim| adaptive_shares(judged, aim)).to_vec()),
        ),
    ];
    let columns = ["panel", "candidate", "fastest %", "leanest %", "balanced %"];
    let mut data = Table::new("figure7", "Share of picks (the paper's figure 7)", &columns);
    let exact = |share: f64| Interval { lo: share * 100.0, mid: share * 100.0, hi: share * 100.0 };
    let mut drawn = vec![];
    for (title, shares) in panels {
        for (name, values) in &shares {
            let cells = values.iter().map(|share| format!("{:.1}", share * 100.0));
            data.push([title.to_owned(), name.clone()].into_iter().chain(cells).collect());
        }
        let rows = shares.into_iter().map(|(name, v)| (name, v.into_iter().map(exact).collect())).collect();
        drawn.push(Bars { title, series: &["fastest", "leanest", "balanced"], rows, signed: false });
    }
    let caption = "Of how many programs each candidate is the pick. The paper's: fastest almost even, leanest and balanced mostly Hoard and system.";
    Ok(Figure { caption: caption.to_owned(), svg: bars(&drawn)?, data })
}

/// One allocator for all, and IMAS.
fn shown(judged: &Judged, aim: Aim) -> Vec<(String, Strategy)> {
    let singles = judged.source.candidates.iter().filter(|name| *name != imas_core::SYSTEM);
    let singles = singles.map(|name| (name.clone(), Strategy::Always(name.clone())));
    let imas = [
        ("IMAS paper".to_owned(), Strategy::Paper(aim)),
        ("IMAS adaptive".to_owned(), Strategy::Adaptive(aim)),
    ];
    singles.chain(imas).collect()
}

fn gains(judged: &Judged) -> Result<Figure> {
    let panels = [
        ("Paper's metric: ns per operation, mean gain % (IMAS: balanced)", Metric::Time, Aim::Balanced),
        ("Paper's metric: fragmentation, mean gain in points (IMAS: balanced)", Metric::Frag, Aim::Balanced),
        ("Ours: CPU time, mean gain % (IMAS: fastest)", Metric::Cpu, Aim::Fastest),
        ("Ours: resident memory, mean gain % (IMAS: leanest)", Metric::Memory, Aim::Leanest),
        ("Ours: both, mean gain % (IMAS: balanced)", Metric::Balance, Aim::Balanced),
    ];
    let columns = ["panel", "what decides", "programs", "mean gain [95 %]"];
    let mut data =
        Table::new("figure8", "One allocator for all programs, and IMAS (the paper's figure 8)", &columns);
    let mut drawn = vec![];
    for (title, metric, aim) in panels {
        let mut rows = vec![];
        for (name, strategy) in shown(judged, aim) {
            let Some(total) = total(&judged.outcomes, &strategy, metric, judged.by) else { continue };
            data.push(vec![
                title.to_owned(),
                name.clone(),
                total.programs.to_string(),
                with_interval(&total.mean),
            ]);
            rows.push((name, vec![total.mean]));
        }
        if !rows.is_empty() {
            drawn.push(Bars { title, series: &["gain"], rows, signed: true });
        }
    }
    let caption = "Mean gain over system with its 95 % interval; losses beyond 150 % are cut off, the number is not. glibc:arena2 is MALLOC_ARENA_MAX=2. IMAS: on runs that did not choose. \
                   The paper's: all slower, only Hoard leaner, IMAS 1.79 % faster and 7.16 % less fragmented.";
    Ok(Figure { caption: caption.to_owned(), svg: bars(&drawn)?, data })
}

/// Gains of the programs, largest first.
fn in_order(judged: &Judged, strategy: &Strategy, metric: Metric) -> Vec<(String, f64)> {
    let outcomes = judged.outcomes.get(strategy).into_iter().flatten();
    let gain = |(i, outcome): (&usize, &Outcome)| {
        Some((judged.source.programs[*i].name.clone(), metric.gain(metric.of(outcome)?)))
    };
    let mut gains: Vec<(String, f64)> = outcomes.filter_map(gain).collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    gains
}

/// Title, metric, and the strategies drawn in it with their names.
type Panel = (&'static str, Metric, Vec<(&'static str, Strategy)>);

/// Panels of sorted gains, and the same as a table.
struct PerProgram {
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    panels: Vec<Panel>,
}

impl PerProgram {
    fn figure(&self, judged: &Judged) -> Result<Figure> {
        let mut data = Table::new(self.id, self.title, &["panel", "series", "place", "program", "gain"]);
        let mut drawn = vec![];
        for (title, metric, series) in &self.panels {
            let mut lines = vec![];
            for (name, strategy) in series {
                let gains = in_order(judged, strategy, *metric);
                for ((program, gain), place) in gains.iter().zip(1u32..) {
                    let head = [*title, *name].map(str::to_owned);
                    let tail = [place.to_string(), program.clone(), format!("{gain:.2}")];
                    data.push(head.into_iter().chain(tail).collect());
                }
                lines.push((*name, gains.into_iter().map(|(_, gain)| gain).collect()));
            }
            drawn.push(Sorted { title, series: lines });
        }
        Ok(Figure { caption: self.caption.to_owned(), svg: sorted(&drawn)?, data })
    }
}

fn cpu(judged: &Judged) -> Result<Figure> {
    PerProgram {
        id: "figure9",
        title: "CPU gain per program under IMAS (the paper's figure 9)",
        caption: "Each series in its own order, so a place is not the same program in both.",
        panels: vec![
            (
                "Paper's metric: ns per operation, gain %",
                Metric::Time,
                vec![
                    ("paper, balanced", Strategy::Paper(Aim::Balanced)),
                    ("paper, fastest", Strategy::Paper(Aim::Fastest)),
                ],
            ),
            (
                "Ours: CPU time, gain %",
                Metric::Cpu,
                vec![
                    ("adaptive, balanced", Strategy::Adaptive(Aim::Balanced)),
                    ("adaptive, fastest", Strategy::Adaptive(Aim::Fastest)),
                ],
            ),
        ],
    }
    .figure(judged)
}

/// Whose gains figures 10 and 11 show.
#[derive(Clone, Copy)]
enum Who {
    Imas,
    Hoard,
}

fn saved(judged: &Judged, who: Who) -> Result<Figure> {
    let hoard = || Strategy::Always("hoard".to_owned());
    let (id, title, paper, ours) = match who {
        Who::Imas => (
            "figure10",
            "Fragmentation and memory gain per program under IMAS (the paper's figure 10)",
            vec![
                ("paper, balanced", Strategy::Paper(Aim::Balanced)),
                ("paper, leanest", Strategy::Paper(Aim::Leanest)),
            ],
            vec![
                ("adaptive, balanced", Strategy::Adaptive(Aim::Balanced)),
                ("adaptive, leanest", Strategy::Adaptive(Aim::Leanest)),
            ],
        ),
        Who::Hoard => (
            "figure11",
            "Fragmentation and memory gain per program under Hoard for all (the paper's figure 11)",
            vec![("hoard", hoard())],
            vec![("hoard", hoard())],
        ),
    };
    let panels = vec![
        ("Paper's metric: fragmentation, gain in points", Metric::Frag, paper),
        ("Ours: resident memory, gain %", Metric::Memory, ours),
    ];
    PerProgram { id, title, caption: "Losses beyond 150 % stand at the lower edge.", panels }.figure(judged)
}
