// SPDX-License-Identifier: Apache-2.0
//! The charts of all pages, drawn as SVG from plain series.
//!
//! | what is to be shown | give |
//! |---|---|
//! | one figure of each allocator, with its interval | [`Bars`] |
//! | CPU time and memory of each allocator, against `system` | [`Plane`] |
//! | figures by run, memory over time, gains in order | [`Curves`] |
//! | percentiles of latencies, medians with quartiles | [`Distribution`] |
//! | which allocator a program was started on, and when | [`Timeline`] |
//!
//! Each has public fields and a `draw`, which returns a [`Chart`]: None when there is nothing to draw. A
//! chart goes into a page ([`crate::page`]) or, with [`Chart::document`], into a file of its own. Names
//! choose the look: an allocator has the same colour, dot and dashes on every chart, see `look.rs`. Every
//! text is escaped.
//!
//! The memory of a service under two candidates, over time:
//!
//! ```
//! use imas_report::chart::{Axis, CurveLine, Curves};
//!
//! let curves = Curves {
//!     title: "Resident memory over time".to_owned(),
//!     caption: "One session of each candidate".to_owned(),
//!     x: Axis::new("seconds since the start"),
//!     y: Axis::new("MiB").from_zero(),
//!     lines: vec![
//!         CurveLine::new("system", vec![(0.0, 40.0), (60.0, 310.0)]),
//!         CurveLine::new("jemalloc", vec![(0.0, 42.0), (60.0, 205.5)]),
//!     ],
//!     ..Curves::default()
//! };
//! let chart = curves.draw().expect("two lines");
//! assert!(chart.document().starts_with("<svg"));
//! ```
//!
//! Last, axes and grid, and the way from values to places in a drawing.

mod bars;
mod curves;
mod distribution;
mod plane;

use maud::{Markup, PreEscaped, html};

pub use bars::{BarRow, Bars};
pub use curves::{CurveLine, Curves, ReferenceLine};
pub use distribution::{Distribution, DistributionRow, Timeline, TimelineMark};
pub use plane::{Plane, PlanePoint};

/// The colours of all pages and charts, light and dark.
pub(crate) const COLOURS: &str = include_str!("colours.css");
/// Style of the parts of a chart.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// Pixels across, of charts whose width does not depend on what is drawn.
const WIDTH: f64 = 560.0;

/// A finished drawing.
#[derive(Debug, Clone)]
pub struct Chart {
    title: String,
    caption: String,
    width: f64,
    height: f64,
    body: String,
}

impl Chart {
    fn new(title: &str, caption: &str, (width, height): (f64, f64), body: Markup) -> Self {
        Self { title: title.to_owned(), caption: caption.to_owned(), width, height, body: body.into_string() }
    }

    /// Title: the quantity that is drawn, with its unit.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// How to read the chart.
    #[must_use]
    pub fn caption(&self) -> &str {
        &self.caption
    }

    /// Several drawings below each other as one, each under its own title.
    #[must_use]
    pub fn stacked(title: &str, caption: &str, charts: &[Self]) -> Option<Self> {
        const HEAD: f64 = 24.0;
        let tops = offsets(0.0, charts.iter().map(|chart| chart.height + HEAD));
        let height = charts.iter().map(|chart| chart.height + HEAD).sum();
        let width = charts.iter().map(|chart| chart.width).fold(0.0, f64::max);
        let body = html! {
            @for (at, chart) in tops.iter().zip(charts) {
                g transform=(format!("translate(0 {at})")) {
                    text.group x="2" y="15" { (chart.title) }
                    g transform=(format!("translate(0 {HEAD})")) { (PreEscaped(&chart.body)) }
                }
            }
        };
        (!charts.is_empty()).then(|| Self::new(title, caption, (width, height), body))
    }

    /// A complete SVG document with its colours; it follows the reader's choice of light or dark.
    #[must_use]
    pub fn document(&self) -> String {
        let style = format!("{COLOURS}{STYLE}");
        let markup = html! {
            svg.chart xmlns="http://www.w3.org/2000/svg" width=(self.width) height=(self.height)
                viewBox=(self.view()) role="img" aria-label=(self.title) {
                title { (self.title) }
                style { (PreEscaped(style)) }
                rect width="100%" height="100%" fill="var(--paper)" {}
                (PreEscaped(&self.body))
            }
        };
        markup.into_string()
    }

    /// The chart as a figure of a page. The page has the colours.
    pub(crate) fn figure(&self) -> Markup {
        html! {
            figure {
                h4 { (self.title) }
                div.scroll {
                    svg.chart viewBox=(self.view()) width=(self.width * 1.35)
                        role=(self.role()) aria-label=(self.title) { (PreEscaped(&self.body)) }
                }
                @if !self.caption.is_empty() { figcaption { (self.caption) } }
            }
        }
    }

    /// An image has no parts that can be reached; a chart whose dots are buttons is a group of them.
    fn role(&self) -> &'static str {
        if self.body.contains("role=\"button\"") { "group" } else { "img" }
    }

    fn view(&self) -> String {
        format!("0 0 {} {}", self.width, self.height)
    }
}

/// Where things of these sizes begin that follow each other from `first` on.
fn offsets(first: f64, sizes: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut next = first;
    let place = |size| {
        let at = next;
        next += size;
        at
    };
    sizes.map(place).collect()
}

/// How wide a text of 12 pixels is drawn, at most.
fn text_width(text: &str) -> f64 {
    const CHARACTER: f64 = 7.1;
    text.chars().fold(0.0, |width, _| width + CHARACTER)
}

/// The text, shortened where it has no room.
fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    for sign in text.chars() {
        if text_width(&shown) + text_width("..") > width {
            break;
        }
        shown.push(sign);
    }
    shown + "\u{2026}"
}

/// Name and spacing of an axis.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// Name of the quantity along the axis, with its unit.
    pub name: String,
    /// How the values lie along the axis.
    pub spacing: Spacing,
    /// Whether the axis begins at 0 rather than at the least value.
    pub from_zero: bool,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// This axis, beginning at 0.
    #[must_use]
    pub fn from_zero(self) -> Self {
        Self { from_zero: true, ..self }
    }

    /// This axis in another spacing.
    #[must_use]
    pub fn spaced(self, spacing: Spacing) -> Self {
        Self { spacing, ..self }
    }

    /// The ends of the values, with `air` (a share of them) beyond the highest; None when there are none.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>, air: f64) -> Option<(f64, f64)> {
        let is_logarithmic = self.spacing.is_logarithmic();
        let mut values = values.filter(|value| value.is_finite() && (!is_logarithmic || *value > 0.0));
        let first = values.next()?;
        let (low, high) = values.fold((first, first), |(low, high), value| (low.min(value), high.max(value)));
        let low = if self.from_zero && !is_logarithmic { low.min(0.0) } else { low };
        let room = if is_logarithmic { high * ((high / low).powf(air) - 1.0) } else { (high - low) * air };
        Some((low, high + room))
    }
}

/// Place of the grid, in pixels.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Vertical lines with labels below, and the axis' name.
    pub(super) fn columns(&self, scale: &Scale, apart: f64, name: &str) -> Markup {
        html! {
            @for tick in scale.round_ticks(apart) { (self.column(tick.at, &tick.text)) }
            (self.below(name))
        }
    }

    pub(super) fn column(&self, at: f64, text: &str) -> Markup {
        html! {
            line.grid x1=(at) x2=(at) y1=(self.top) y2=(self.bottom) {}
            text.axis x=(at) y=(self.bottom + 15.0) text-anchor="middle" { (text) }
        }
    }

    /// The name of the horizontal axis.
    pub(super) fn below(&self, name: &str) -> Markup {
        html! {
            text.axis x=(f64::midpoint(self.left, self.right)) y=(self.bottom + 31.0) text-anchor="middle" { (name) }
        }
    }

    /// Horizontal lines with labels to the left.
    pub(super) fn rows(&self, scale: &Scale, apart: f64) -> Markup {
        html! { @for tick in scale.round_ticks(apart) { (self.row(tick.at, &tick.text)) } }
    }

    pub(super) fn row(&self, at: f64, text: &str) -> Markup {
        html! {
            line.grid x1=(self.left) x2=(self.right) y1=(at) y2=(at) {}
            text.axis x=(self.left - 6.0) y=(at + 4.0) text-anchor="end" { (text) }
        }
    }

    /// The name of the vertical axis, upwards along it.
    pub(super) fn beside(&self, name: &str) -> Markup {
        let middle = f64::midpoint(self.top, self.bottom);
        html! {
            text.axis transform=(format!("translate(11 {middle}) rotate(-90)")) text-anchor="middle" { (name) }
        }
    }
}

/// A line of the grid: place and label.
#[derive(Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// How values lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spacing {
    /// Evenly.
    #[default]
    Linear,
    /// Evenly, and only whole numbers are labelled: runs, places in an order.
    Whole,
    /// Evenly by the logarithm of the values; all values are above 0.
    Logarithmic,
    /// Evenly by the logarithm of nanoseconds, labelled with the unit that fits. All values are above 0.
    Nanoseconds,
}

impl Spacing {
    fn is_logarithmic(self) -> bool {
        matches!(self, Self::Logarithmic | Self::Nanoseconds)
    }
}

/// A map of values onto places, cut off at its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    spacing: Spacing,
    from: f64,
    to: f64,
    first: f64,
    last: f64,
}

impl Scale {
    /// Values `from..to` to places `first..last`, evenly.
    pub(super) fn new(range: (f64, f64), places: (f64, f64)) -> Self {
        Self::spaced(Spacing::Linear, range, places)
    }

    /// Values `from..to` to places `first..last`.
    pub(super) fn spaced(spacing: Spacing, (from, to): (f64, f64), (first, last): (f64, f64)) -> Self {
        let (from, to) = (spaced(spacing, from), spaced(spacing, to));
        Self { spacing, from, to: if to > from { to } else { from + 1.0 }, first, last }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let value = spaced(self.spacing, value);
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        round(self.first + share * (self.last - self.first))
    }

    fn contains(&self, value: f64) -> bool {
        (self.from - 1e-9..=self.to + 1e-9).contains(&spaced(self.spacing, value))
    }

    /// Ticks of those `values` that lie within the scale, at least `apart` places from each other. A value
    /// named earlier goes before one named later.
    pub(super) fn ticks(&self, values: &[(f64, String)], apart: f64) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = vec![];
        for (value, text) in values.iter().filter(|(value, _)| self.contains(*value)) {
            let at = self.place(*value);
            if ticks.iter().all(|tick| (tick.at - at).abs() >= apart) {
                ticks.push(Tick { at, text: text.clone() });
            }
        }
        ticks
    }

    /// Round values in the spacing of the scale.
    fn round_ticks(&self, apart: f64) -> Vec<Tick> {
        match self.spacing {
            Spacing::Logarithmic => self.ticks(&decades(), apart),
            Spacing::Nanoseconds => self.ticks(&durations(), apart),
            Spacing::Linear => self.even_ticks(apart, 0.0),
            Spacing::Whole => self.even_ticks(apart, 1.0),
        }
    }

    /// Four to eight values, `least` or more from each other.
    fn even_ticks(&self, apart: f64, least: f64) -> Vec<Tick> {
        let rough = ((self.to - self.from) / 5.0).max(least);
        let magnitude = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.from / step).ceil();
        let values = (0..12u32).map(|i| (first + f64::from(i)) * step);
        let decimals =
            (0..12).find(|places| step * 10f64.powi(*places) >= 0.999).unwrap_or(12).unsigned_abs() as usize;
        self.ticks(&values.map(|value| (value, number(value, decimals))).collect::<Vec<_>>(), apart)
    }
}

fn spaced(spacing: Spacing, value: f64) -> f64 {
    match spacing {
        Spacing::Logarithmic | Spacing::Nanoseconds => value.max(f64::MIN_POSITIVE).log10(),
        Spacing::Linear | Spacing::Whole => value,
    }
}

/// 1, 10, 100 and so on, then those between them, which are shown where there is room.
fn decades() -> Vec<(f64, String)> {
    let of = |factor: f64| (-9..13).map(move |power| factor * 10f64.powi(power));
    let all = [1.0, 3.0, 2.0, 5.0].into_iter().flat_map(of);
    all.map(|value| (value, number(value, if value < 1.0 { 9 } else { 0 }))).collect()
}

/// 1 ns, 10 ns and so on to 1000 s, then those between them.
fn durations() -> Vec<(f64, String)> {
    const UNITS: [(&str, i32); 4] = [("ns", 0), ("\u{b5}s", 3), ("ms", 6), ("s", 9)];
    let of = |factor: f64| {
        (0..13).map(move |power| {
            let (unit, least) = UNITS[usize::try_from(power / 3).unwrap_or(3).min(3)];
            (factor * 10f64.powi(power), format!("{} {unit}", number(factor * 10f64.powi(power - least), 0)))
        })
    };
    [1.0, 3.0, 2.0, 5.0].into_iter().flat_map(of).collect()
}

/// Text of a number, without a minus before a zero and without decimals that are zero.
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value + 0.0);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A tenth of a pixel is enough.
pub(super) fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale) -> Vec<String> {
        scale.round_ticks(1.0).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_round_and_within() {
        let places = (0.0, 100.0);
        assert_eq!(texts(Scale::new((0.13, 0.61), places)), ["0.2", "0.3", "0.4", "0.5", "0.6"]);
        assert_eq!(texts(Scale::new((0.0, 0.002), places)), ["0", "0.0005", "0.001", "0.0015", "0.002"]);
        assert_eq!(texts(Scale::new((-20.0, 100.0), places)), ["0", "50", "100"]);
    }

    #[test]
    fn runs_are_whole_numbers() {
        assert_eq!(texts(Scale::spaced(Spacing::Whole, (1.0, 3.0), (0.0, 100.0))), ["1", "2", "3"]);
    }

    #[test]
    fn a_logarithmic_scale_shows_its_decades() {
        let scale = Scale::spaced(Spacing::Logarithmic, (10.0, 1000.0), (0.0, 100.0));
        assert_eq!((scale.place(10.0), scale.place(100.0), scale.place(1000.0)), (0.0, 50.0, 100.0));
        let mut ticks = scale.round_ticks(40.0);
        ticks.sort_by(|a, b| a.at.total_cmp(&b.at));
        assert_eq!(ticks.iter().map(|tick| tick.text.as_str()).collect::<Vec<_>>(), ["10", "100", "1000"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let mut ticks = Scale::spaced(Spacing::Nanoseconds, (0.8, 2e7), (0.0, 400.0)).round_ticks(46.0);
        ticks.sort_by(|a, b| a.at.total_cmp(&b.at));
        let texts: Vec<&str> = ticks.iter().map(|tick| tick.text.as_str()).collect();
        assert_eq!(
            texts,
            ["1 ns", "10 ns", "100 ns", "1 \u{b5}s", "10 \u{b5}s", "100 \u{b5}s", "1 ms", "10 ms"]
        );
    }

    #[test]
    fn a_value_outside_the_scale_is_drawn_at_its_edge() {
        let scale = Scale::new((0.0, 1.0), (10.0, 20.0));
        assert_eq!((scale.place(-5.0), scale.place(0.5), scale.place(9.0)), (10.0, 15.0, 20.0));
    }
}
