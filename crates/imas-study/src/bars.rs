// SPDX-License-Identifier: Apache-2.0
//! Bars to the right and left of zero, with intervals; and gains in descending order.

use imas_core::stats::Interval;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{Area, BLUE_LINE, Chart, GREEN_LINE, GRID, INK, RED_LINE, failed, legend};
use crate::error::Result;

const WIDTH: u32 = 760;
const NAMES_WIDTH: u32 = 150;
const BAR_HEIGHT: u32 = 16;
const AXIS_HEIGHT: u32 = 74;
const SORTED_HEIGHT: u32 = 260;
/// What is drawn of a loss at most: a mean of -9,000 % would make every other bar invisible. The number stands beside.
const MOST_LOSS: f64 = -150.0;

/// Colours of series, in order.
pub(crate) const COLOURS: [RGBColor; 3] = [BLUE_LINE, GREEN_LINE, RED_LINE];

/// A panel of bars: for each row as many bars as there are series.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    pub(crate) series: &'a [&'a str],
    pub(crate) rows: Vec<(String, Vec<Interval>)>,
    /// Whether the numbers are changes, which have a sign, or shares.
    pub(crate) signed: bool,
}

impl Bars<'_> {
    fn height(&self) -> u32 {
        let bars = self.rows.len() * self.series.len();
        let gaps = self.rows.len() * 6;
        u32::try_from(bars).unwrap_or(1) * BAR_HEIGHT + u32::try_from(gaps).unwrap_or(0) + AXIS_HEIGHT
    }

    fn range(&self) -> std::ops::Range<f64> {
        let all = || self.rows.iter().flat_map(|(_, row)| row);
        let low = all().map(|i| i.lo.max(MOST_LOSS)).fold(0.0, f64::min);
        let high = all().map(|i| i.hi).fold(0.0, f64::max);
        let room = (high - low).max(1.0) * 0.1;
        (if low < 0.0 { low - room } else { 0.0 })..high + room * 1.8
    }
}

/// The panels under each other.
pub(crate) fn bars(panels: &[Bars<'_>]) -> Result<String> {
    let heights: Vec<u32> = panels.iter().map(Bars::height).collect();
    stacked(&heights, |i, area| draw_bars(area, &panels[i]))
}

fn stacked(heights: &[u32], draw: impl Fn(usize, &Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, heights.iter().sum())).into_drawing_area();
        let mut rest = root.clone();
        for (i, height) in heights.iter().enumerate() {
            let (area, below) = rest.split_vertically(*height);
            draw(i, &area)?;
            rest = below;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn draw_bars(area: &Area<'_>, panel: &Bars<'_>) -> Result<()> {
    let rows = f64::from(u32::try_from(panel.rows.len()).unwrap_or(u32::MAX));
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 14).into_font().color(&INK))
        .margin(6)
        .margin_right(16)
        .x_label_area_size(24)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d(panel.range(), rows..0.0)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_labels(8)
        .y_labels(0)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()
        .map_err(failed)?;
    let zero = [(0.0, 0.0), (0.0, rows)];
    chart.draw_series([PathElement::new(zero, INK)]).map_err(failed)?;
    let slot = 0.86 / f64::from(u32::try_from(panel.series.len()).unwrap_or(1).max(1));
    for ((name, row), top) in panel.rows.iter().zip(0u32..) {
        let top = f64::from(top) + 0.07;
        let at = chart.backend_coord(&(0.0, top + 0.43));
        let style = ("sans-serif", 13).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        let left = i32::try_from(NAMES_WIDTH).unwrap_or(0);
        area.draw(&Text::new(name.clone(), (left - 2, at.1 - area_top(area)), style)).map_err(failed)?;
        for ((interval, colour), i) in row.iter().zip(COLOURS).zip(0u32..) {
            let y = top + slot * f64::from(i);
            // Without a minus before a zero.
            let shown = (interval.mid * 10.0).round() / 10.0 + 0.0;
            let number = if panel.signed { format!("{shown:+.1}") } else { format!("{shown:.1}") };
            draw_bar(&mut chart, (interval, number), (y, y + slot * 0.86), colour)?;
        }
    }
    match panel.series {
        [_] => Ok(()),
        series => name_series(&mut chart, series),
    }
}

/// Where the area begins within the document: texts are placed within the area, coordinates are of the document.
fn area_top(area: &Area<'_>) -> i32 {
    area.get_pixel_range().1.start
}

fn draw_bar(
    chart: &mut Chart<'_, '_>,
    (bar, number): (&Interval, String),
    (y0, y1): (f64, f64),
    colour: RGBColor,
) -> Result<()> {
    let (lo, mid) = (bar.lo.max(MOST_LOSS), bar.mid.max(MOST_LOSS));
    let middle = f64::midpoint(y0, y1);
    chart.draw_series([Rectangle::new([(0.0, y0), (mid, y1)], colour.mix(0.45).filled())]).map_err(failed)?;
    if bar.hi > bar.lo {
        let whisker = [(lo, middle), (bar.hi.max(lo), middle)];
        chart.draw_series([PathElement::new(whisker, colour.stroke_width(2))]).map_err(failed)?;
    }
    let style = ("sans-serif", 11).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let range = chart.x_range();
    let beside = bar.hi.max(0.0) + (range.end - range.start) * 0.008;
    chart.draw_series([Text::new(number, (beside, middle), style)]).map_err(failed)?;
    Ok(())
}

fn name_series<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, series: &[&str]) -> Result<()> {
    for (name, colour) in series.iter().zip(COLOURS) {
        chart
            .draw_series(std::iter::empty::<Rectangle<(f64, f64)>>())
            .map_err(failed)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.mix(0.45).filled()));
    }
    legend(chart, SeriesLabelPosition::LowerRight)
}

/// A panel of gains in descending order, each series on its own.
pub(crate) struct Sorted<'a> {
    pub(crate) title: &'a str,
    pub(crate) series: Vec<(&'a str, Vec<f64>)>,
}

/// The panels under each other. Losses beyond what is drawn stand at the lower edge.
pub(crate) fn sorted(panels: &[Sorted<'_>]) -> Result<String> {
    stacked(&vec![SORTED_HEIGHT; panels.len()], |i, area| draw_sorted(area, &panels[i]))
}

fn draw_sorted(area: &Area<'_>, panel: &Sorted<'_>) -> Result<()> {
    let drawn = |gain: &f64| gain.max(MOST_LOSS);
    let all = || panel.series.iter().flat_map(|(_, gains)| gains.iter().map(drawn));
    let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    let room = (high - low).max(1.0) * 0.06;
    let programs = panel.series.iter().map(|(_, gains)| gains.len()).max().unwrap_or(0);
    let right = f64::from(u32::try_from(programs).unwrap_or(u32::MAX)) + 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(54)
        .build_cartesian_2d(0.5..right, low - room..high + room)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("programs, in order of gain")
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()
        .map_err(failed)?;
    chart.draw_series([PathElement::new([(0.5, 0.0), (right, 0.0)], INK)]).map_err(failed)?;
    for ((name, gains), colour) in panel.series.iter().zip(COLOURS) {
        let points = || (1u32..).map(f64::from).zip(gains.iter().map(drawn));
        chart.draw_series(LineSeries::new(points(), colour.stroke_width(1))).map_err(failed)?;
        chart
            .draw_series(points().map(|at| Circle::new(at, 3, colour.filled())))
            .map_err(failed)?
            .label(*name)
            .legend(move |(x, y)| Circle::new((x + 7, y), 3, colour.filled()));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_loss_is_a_number_and_not_a_scale() {
        let interval = Interval { lo: -9000.0, mid: -8000.0, hi: -7000.0 };
        let rows = vec![("mimalloc".to_owned(), vec![interval])];
        let panel = Bars { title: "t", series: &["gain"], rows, signed: true };
        assert!(panel.range().start > -200.0);
        let svg = bars(&[panel]).unwrap();
        assert!(svg.contains("-8000.0") && svg.contains("mimalloc"));
    }

    #[test]
    fn a_share_of_nothing_has_no_minus() {
        let nothing = Interval { lo: -0.0, mid: -0.0, hi: -0.0 };
        let panel =
            Bars { title: "t", series: &["a"], rows: vec![("x".to_owned(), vec![nothing])], signed: false };
        assert!(!bars(&[panel]).unwrap().contains("-0.0"));
    }

    #[test]
    fn names_are_escaped() {
        let series = vec![("a<b", vec![1.0])];
        let svg = sorted(&[Sorted { title: "<script>", series }]).unwrap();
        assert!(!svg.contains("<script>") && !svg.contains("a<b"), "{svg}");
    }
}
