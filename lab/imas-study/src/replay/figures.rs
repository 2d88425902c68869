// SPDX-License-Identifier: Apache-2.0
//! The charts of the study.

use std::collections::BTreeSet;

use imas_cli::table::Table;
use imas_core::stats::{Interval, more};
use imas_replay::reliability::PredictedFigure;
use imas_report::chart::{Axis, BarRow, Bars, Distribution, DistributionRow};

use super::agreement::pairs;
use super::choice::{ChoiceObjective, ChoiceSummary};
use super::{ReplayJudgement, figure_name};
use crate::band::Band;
use crate::study::StudyFigure;

const OFF: &str = "live over predicted, per cent";

pub(super) fn figures(judgement: &ReplayJudgement) -> Vec<StudyFigure> {
    [off(judgement), losses(judgement)].into_iter().collect()
}

/// How far the predictions of each candidate were off.
fn off(judgement: &ReplayJudgement) -> StudyFigure {
    let title = "How far predictions were off";
    let caption = "Live over predicted, both as ratios to system. Dot: median over the programs; box: quartiles; line: \
                   the central nine tenths.";
    let columns = ["figure", "candidate", "5 %", "25 %", "50 %", "75 %", "95 %"];
    let mut data = Table::new("off", title, &columns);
    let mut rows = vec![];
    let all = judgement.programs.iter().flat_map(|program| &program.candidates);
    let names: BTreeSet<&str> = all.map(|one| one.name.as_str()).collect();
    for figure in [PredictedFigure::Cpu, PredictedFigure::Memory] {
        for name in &names {
            let pairs = pairs(&judgement.programs, figure, |one| one.name == *name);
            let offs: Vec<f64> =
                pairs.iter().map(|(predicted, live)| more(live - predicted) * 100.0).collect();
            let Some(band) = Band::of(&offs) else { continue };
            let five = [band.low, band.lower_quartile, band.median, band.upper_quartile, band.high];
            let mut row = vec![figure_name(figure).to_owned(), (*name).to_owned()];
            row.extend(five.map(|value| format!("{value:.2}")));
            data.push(row);
            rows.push(DistributionRow {
                group: figure_name(figure).to_owned(),
                name: (*name).to_owned(),
                low: band.low,
                lower: band.lower_quartile,
                middle: band.median,
                upper: band.upper_quartile,
                high: band.high,
                text: format!("{:+.1} %", band.median),
            });
        }
    }
    let chart =
        Distribution { title: title.to_owned(), caption: caption.to_owned(), axis: Axis::new(OFF), rows };
    StudyFigure { caption: caption.to_owned(), chart: chart.draw(), data }
}

/// Mean losses by objective.
fn losses(judgement: &ReplayJudgement) -> StudyFigure {
    let title = "Mean loss against the live best";
    let caption = "Lower is better. The first two predictions are measured live beside system, and the best of the \
                   three is taken.";
    let series = ["system", "first choice", "best of system and the first two"];
    let mut data = Table::new("losses", title, &["objective", series[0], series[1], series[2]]);
    let mut rows = vec![];
    for objective in ChoiceObjective::ALL {
        let summary = ChoiceSummary::of(judgement.losses(objective));
        let losses = [summary.system, summary.first, summary.two].map(|loss| loss * 100.0);
        let mut row = vec![objective.name().to_owned()];
        row.extend(losses.map(|loss| format!("{loss:.2}")));
        data.push(row);
        let bars = losses.map(|loss| Interval { lo: loss, mid: loss, hi: loss });
        rows.push(BarRow { name: objective.name().to_owned(), bars: bars.to_vec() });
    }
    let chart = Bars {
        title: title.to_owned(),
        caption: caption.to_owned(),
        unit: " %".to_owned(),
        decimals: 1,
        series: series.map(str::to_owned).to_vec(),
        rows,
        ..Bars::default()
    };
    StudyFigure { caption: caption.to_owned(), chart: chart.draw(), data }
}
