// SPDX-License-Identifier: Apache-2.0
//! Drawings: curves with their bands, and intervals side by side. Printed values are dashed lines.

use crate::band::Band;
use crate::error::{Result, StudyError};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Readable on white, and inverted by the page in the dark.
pub(crate) const BLUE_LINE: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
pub(crate) const GREEN_LINE: RGBColor = RGBColor(0x1c, 0x7c, 0x54);
/// For a printed value that belongs to no one curve by its colour.
pub(crate) const RED_LINE: RGBColor = RGBColor(0xb3, 0x3a, 0x1f);
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

const WIDTH: u32 = 760;
pub(crate) const PANEL_HEIGHT: u32 = 260;
/// Room above the highest value, as a share of the range.
const HEADROOM: f64 = 0.08;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A line of medians within the central nine tenths; the first point is at `first_x`, the next ones 1 apart.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: RGBColor,
    pub(crate) first_x: f64,
    pub(crate) bands: &'a [Band],
}

/// A value that the paper prints: dashed, from `from_x` to the right edge.
pub(crate) struct Mark<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: RGBColor,
    pub(crate) value: f64,
    pub(crate) from_x: f64,
}

/// One pair of axes.
pub(crate) struct Panel<'a> {
    pub(crate) x_name: &'a str,
    pub(crate) y_name: &'a str,
    pub(crate) logarithmic: bool,
    pub(crate) curves: Vec<Curve<'a>>,
    pub(crate) marks: Vec<Mark<'a>>,
}

/// The panels under each other, as one SVG document.
pub(crate) fn curves(panels: &[Panel<'_>]) -> Result<String> {
    drawn(panels.len(), |root| {
        for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
            draw_panel(area, panel)?;
        }
        Ok(())
    })
}

/// Medians with their central nine tenths, one column a name.
pub(crate) fn intervals(y_name: &str, items: &[(&str, Band)]) -> Result<String> {
    drawn(1, |root| draw_intervals(root, y_name, items))
}

pub(crate) fn drawn(panels: usize, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let height = PANEL_HEIGHT * u32::try_from(panels).unwrap_or(1);
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

pub(crate) fn failed(error: impl std::fmt::Display) -> StudyError {
    StudyError::Draw(error.to_string())
}

/// Values as they are drawn: themselves or their logarithm to base ten.
#[derive(Clone, Copy)]
struct Scale {
    logarithmic: bool,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        if self.logarithmic { value.max(1.0).log10() } else { value }
    }

    fn label(self, place: f64) -> String {
        if self.logarithmic { two_digits(10f64.powf(place)) } else { short(place) }
    }
}

/// A number for an axis: no decimals that say nothing.
fn short(value: f64) -> String {
    if value.abs() >= 20.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Rounded to two significant digits: the places between the decades are odd powers of the root of ten.
fn two_digits(value: f64) -> String {
    let step = 10f64.powf(value.max(1.0).log10().floor() - 1.0);
    format!("{:.0}", (value / step).round() * step)
}

fn draw_panel(area: &Area<'_>, panel: &Panel<'_>) -> Result<()> {
    let scale = Scale { logarithmic: panel.logarithmic };
    let (x_range, y_range) = ranges(panel, scale);
    let mut chart = axes(area, x_range.clone(), y_range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc(panel.x_name)
        .y_desc(panel.y_name)
        .y_labels(6)
        .y_label_formatter(&|y| scale.label(*y))
        .x_label_formatter(&|x| short(*x))
        .draw()
        .map_err(failed)?;
    for curve in &panel.curves {
        draw_curve(&mut chart, curve, scale)?;
    }
    for mark in &panel.marks {
        draw_mark(&mut chart, mark, x_range.end, scale)?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

pub(crate) fn axes<'a, 'b>(
    area: &'a Area<'b>,
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
) -> Result<Chart<'a, 'b>> {
    ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(failed)
}

fn ranges(panel: &Panel<'_>, scale: Scale) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
    let bands = || panel.curves.iter().flat_map(|c| c.bands);
    let marks = || panel.marks.iter().map(|m| m.value);
    let top = bands().map(|b| b.high).chain(marks()).map(|v| scale.place(v)).fold(0.0, f64::max);
    let floor = bands().map(|b| b.low).chain(marks()).map(|v| scale.place(v)).fold(f64::INFINITY, f64::min);
    let bottom = if panel.logarithmic { floor } else { 0.0 };
    let left = panel.curves.iter().map(|c| c.first_x).fold(f64::INFINITY, f64::min);
    let right = panel.curves.iter().map(|c| c.first_x + length(c.bands) - 1.0).fold(left + 1.0, f64::max);
    (left..right, bottom..(top + (top - bottom) * HEADROOM).max(bottom + 1e-9))
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand points")]
fn length(bands: &[Band]) -> f64 {
    bands.len() as f64
}

fn draw_curve(chart: &mut Chart<'_, '_>, curve: &Curve<'_>, scale: Scale) -> Result<()> {
    let xs = || std::iter::successors(Some(curve.first_x), |x| Some(x + 1.0));
    let points = |of: fn(&Band) -> f64| xs().zip(curve.bands.iter().map(move |b| scale.place(of(b))));
    let mut outline: Vec<(f64, f64)> = points(|b| b.high).collect();
    let lower: Vec<(f64, f64)> = points(|b| b.low).collect();
    outline.extend(lower.into_iter().rev());
    chart.draw_series([Polygon::new(outline, curve.colour.mix(0.18))]).map_err(failed)?;
    let colour = curve.colour;
    chart
        .draw_series(LineSeries::new(points(|b| b.median), colour.stroke_width(2)))
        .map_err(failed)?
        .label(curve.name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    Ok(())
}

fn draw_mark(chart: &mut Chart<'_, '_>, mark: &Mark<'_>, to_x: f64, scale: Scale) -> Result<()> {
    let (y, colour) = (scale.place(mark.value), mark.colour);
    let line = [(mark.from_x, y), (to_x, y)];
    chart
        .draw_series(DashedLineSeries::new(line, 6, 4, colour.stroke_width(2)))
        .map_err(failed)?
        .label(mark.name)
        .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 18, y)], 4, 3, colour.stroke_width(2)));
    Ok(())
}

/// Names of what was drawn with a label so far, in a box.
pub(crate) fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Result<()> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(("sans-serif", 12).into_font().color(&INK))
        .draw()
        .map_err(failed)
}

fn draw_intervals(area: &Area<'_>, y_name: &str, items: &[(&str, Band)]) -> Result<()> {
    let columns = f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX));
    let top = items.iter().map(|(_, b)| b.high).fold(0.0, f64::max);
    let mut chart = axes(area, -0.5..columns - 0.5, 0.0..(top * (1.0 + HEADROOM)).max(1e-9))?;
    let name_at = |x: &f64| {
        let nearest = items.iter().zip(0u32..).find(|(_, i)| (f64::from(*i) - x).abs() < 1e-6);
        nearest.map_or_else(String::new, |((name, _), _)| (*name).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .y_desc(y_name)
        .x_labels(items.len() * 2 + 1)
        .x_label_formatter(&name_at)
        .y_label_formatter(&|y| short(*y))
        .draw()
        .map_err(failed)?;
    for ((_, band), i) in items.iter().zip(0u32..) {
        draw_interval(&mut chart, f64::from(i), band)?;
    }
    Ok(())
}

fn draw_interval(chart: &mut Chart<'_, '_>, x: f64, band: &Band) -> Result<()> {
    let range = [(x - 0.18, band.low), (x + 0.18, band.high)];
    chart.draw_series([Rectangle::new(range, BLUE_LINE.mix(0.25).filled())]).map_err(failed)?;
    let middle = [(x - 0.18, band.median), (x + 0.18, band.median)];
    chart.draw_series([PathElement::new(middle, BLUE_LINE.stroke_width(3))]).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BLUE_LINE, Curve, Mark, Panel, RED_LINE, curves, intervals};
    use crate::band::Band;

    fn flat(value: f64) -> Band {
        Band {
            low: value - 1.0,
            lower_quartile: value,
            median: value,
            upper_quartile: value,
            high: value + 1.0,
        }
    }

    #[test]
    fn curves_are_a_document_with_names_and_the_printed_value() {
        let bands = [flat(3.0), flat(4.0), flat(5.0)];
        let curve = Curve { name: "blocks", colour: BLUE_LINE, first_x: 0.0, bands: &bands };
        let mark = Mark { name: "printed: 30", colour: RED_LINE, value: 30.0, from_x: 1.0 };
        let panel =
            Panel { x_name: "x", y_name: "y", logarithmic: false, curves: vec![curve], marks: vec![mark] };
        let svg = curves(&[panel]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("blocks") && svg.contains("printed: 30"));
    }

    #[test]
    fn each_interval_has_its_name() {
        let svg =
            intervals("ns", &[("system", flat(3.0)), ("fit-first", flat(9.0)), ("fit-best", flat(5.0))])
                .unwrap();
        for name in ["system", "fit-first", "fit-best"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}
