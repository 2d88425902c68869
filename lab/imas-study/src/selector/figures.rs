// SPDX-License-Identifier: Apache-2.0
//! Figures 7 to 11 of the paper, each in the paper's metric and in ours.

use imas_core::stats::Interval;
use imas_report::chart::{Axis, BarRow, Bars, Chart, CurveLine, Curves, ReferenceLine, Spacing};

use super::Judged;
use super::findings::{among_four, paper_shares};
use super::judge::Outcome;
use super::strategy::{Aim, Strategy};
use super::total::{Metric, total, with_interval};
use crate::study::StudyFigure;
use imas_cli::table::Table;

/// Losses are drawn up to this value: a mean of -9,000 % would make every other bar invisible. The true
/// figure is printed beside the bar.
const MOST_LOSS: f64 = -150.0;

pub(crate) fn figures(judged: &Judged) -> Vec<StudyFigure> {
    vec![shares(judged), gains(judged), cpu(judged), saved(judged, Who::Imas), saved(judged, Who::Hoard)]
}

/// A figure with several charts below each other.
fn figure(caption: &str, data: Table, charts: &[Chart]) -> StudyFigure {
    StudyFigure { caption: caption.to_owned(), chart: Chart::stacked(&data.title, caption, charts), data }
}

/// Gains of allocators and of IMAS.
fn gain_bars(title: &str, unit: &str, rows: Vec<BarRow>) -> Bars {
    Bars {
        title: title.to_owned(),
        unit: unit.to_owned(),
        decimals: 1,
        signed: true,
        least: Some(MOST_LOSS),
        series: vec!["gain".to_owned()],
        rows,
        ..Bars::default()
    }
}

/// The result of the study: the gains of each allocator and of IMAS for all programs.
pub(crate) fn picture(judged: &Judged) -> Option<Chart> {
    let row = |(name, strategy): (String, Strategy)| {
        let total = total(&judged.outcomes, &strategy, Metric::Balance, judged.by)?;
        Some(BarRow { name, bars: vec![total.geometric?] })
    };
    let mut rows: Vec<BarRow> = shown(judged, Aim::Balanced).into_iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.bars[0].mid.total_cmp(&a.bars[0].mid));
    let title = "Gain over system in CPU time and memory together, geometric mean of the programs";
    let caption = "One allocator for all programs, and IMAS's balanced picks under its two policies, each on runs that \
                   did not choose them. Bars: geometric mean; lines: 95 % interval. A candidate that fails with a \
                   program is judged on the others.";
    Bars { caption: caption.to_owned(), ..gain_bars(title, " %", rows) }.draw()
}

/// Share of the picks by candidate.
type Shares = Vec<(String, Vec<f64>)>;

fn joined(columns: Vec<Vec<(String, f64)>>) -> Shares {
    let names: Vec<String> = columns[0].iter().map(|(name, _)| name.clone()).collect();
    names.into_iter().enumerate().map(|(i, name)| (name, columns.iter().map(|c| c[i].1).collect())).collect()
}

/// Shares of the adaptive policy: the mean over the programs of their shares in the splits.
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

fn shares(judged: &Judged) -> StudyFigure {
    let panels = [
        (
            "Paper's metric and collection: % of programs",
            joined(Aim::ALL.map(|aim| among_four(judged, aim)).to_vec()),
        ),
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
    let row =
        |(name, shares): (String, Vec<f64>)| BarRow { name, bars: shares.into_iter().map(exact).collect() };
    let mut drawn = vec![];
    for (title, shares) in panels {
        for (name, values) in &shares {
            let cells = values.iter().map(|share| format!("{:.1}", share * 100.0));
            data.push([title.to_owned(), name.clone()].into_iter().chain(cells).collect());
        }
        let rows = shares.into_iter().map(row).collect();
        let series = Aim::ALL.map(|aim| aim.name().to_owned()).to_vec();
        drawn.extend(Bars { signed: false, series, ..gain_bars(title, " %", rows) }.draw());
    }
    let caption = "Of how many programs each candidate is the pick. The paper's: fastest almost even, leanest and balanced mostly Hoard and system.";
    figure(caption, data, &drawn)
}

/// One allocator for all programs, and IMAS.
fn shown(judged: &Judged, aim: Aim) -> Vec<(String, Strategy)> {
    let singles = judged.source.candidates.iter().filter(|name| *name != imas_core::SYSTEM);
    let singles = singles.map(|name| (name.clone(), Strategy::Always(name.clone())));
    let imas = [
        ("IMAS paper".to_owned(), Strategy::Paper(aim)),
        ("IMAS adaptive".to_owned(), Strategy::Adaptive(aim)),
    ];
    singles.chain(imas).collect()
}

fn gains(judged: &Judged) -> StudyFigure {
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
            rows.push(BarRow { name, bars: vec![total.mean] });
        }
        drawn.extend(gain_bars(title, metric.unit(), rows).draw());
    }
    let caption = "Mean gain over system with its 95 % interval; losses beyond 150 % are cut off, the number is not. glibc:arena2 is MALLOC_ARENA_MAX=2. IMAS: on runs that did not choose. \
                   The paper's: all slower, only Hoard leaner, IMAS 1.79 % faster and 7.16 % less fragmented.";
    figure(caption, data, &drawn)
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

/// Title, metric, and the named strategies of a panel.
type Panel = (&'static str, Metric, Vec<(&'static str, Strategy)>);

/// Panels of sorted gains, and their table.
struct PerProgram {
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    panels: Vec<Panel>,
}

impl PerProgram {
    fn figure(&self, judged: &Judged) -> StudyFigure {
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
                let places = (1u32..).map(f64::from).zip(gains.into_iter().map(|(_, gain)| gain));
                lines.push(CurveLine::new(&strategy.policy(name), places.collect()).dotted());
            }
            drawn.extend(in_order_of_gain(title, metric.unit(), lines));
        }
        figure(self.caption, data, &drawn)
    }
}

fn in_order_of_gain(title: &str, unit: &str, lines: Vec<CurveLine>) -> Option<Chart> {
    Curves {
        title: title.to_owned(),
        x: Axis::new("programs, in order of gain").spaced(Spacing::Whole),
        y: Axis::new(&format!("gain,{unit}")).from_zero(),
        least: Some(MOST_LOSS),
        references: vec![ReferenceLine {
            name: "system".to_owned(),
            of: "system".to_owned(),
            ..ReferenceLine::default()
        }],
        lines,
        ..Curves::default()
    }
    .draw()
}

fn cpu(judged: &Judged) -> StudyFigure {
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

/// The strategies of figures 10 and 11.
#[derive(Clone, Copy)]
enum Who {
    Imas,
    Hoard,
}

fn saved(judged: &Judged, who: Who) -> StudyFigure {
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
