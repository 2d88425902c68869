// SPDX-License-Identifier: Apache-2.0
//! Bars to the right and left of zero, with intervals and the figure beside each.

use imas_core::stats::Interval;
use maud::{Markup, html};

use super::{Chart, Frame, Scale, Spacing, WIDTH, fitted, offsets, text_width};
use crate::look::Look;

const BAR: f64 = 14.0;
const GAP: f64 = 7.0;
const ABOVE: f64 = 4.0;
const KEY: f64 = 22.0;
const BELOW: f64 = 38.0;
const LONGEST_NAME: f64 = 190.0;
/// Room for the figure at the right.
const FIGURE: f64 = 74.0;
/// Pixels between two labels of the axis.
const LABELS_APART: f64 = 44.0;

/// For each row as many bars as there are series. The row has the colour of its allocator, the series its
/// filling.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// Title: the quantity that is drawn.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The unit, as it is printed beside each figure: ` %`, ` MiB`.
    pub unit: String,
    /// Decimals of the figures.
    pub decimals: usize,
    /// Whether the figures are changes, which have a sign.
    pub signed: bool,
    /// Values below this are cut off; the figure beside is not. One huge loss would make every other bar
    /// invisible.
    pub least: Option<f64>,
    /// Names of the series, three at most.
    pub series: Vec<String>,
    /// Rows from top to bottom.
    pub rows: Vec<BarRow>,
}

/// An allocator, and its bar in each series.
#[derive(Debug, Clone, Default)]
pub struct BarRow {
    /// Name of the allocator, which gives the colour.
    pub name: String,
    /// A bar of each series; one without an interval has equal ends.
    pub bars: Vec<Interval>,
}

/// Where everything is, in pixels.
struct Layout {
    frame: Frame,
    scale: Scale,
    height: f64,
}

impl Bars {
    /// The chart; None without rows.
    #[must_use]
    pub fn draw(&self) -> Option<Chart> {
        if self.rows.is_empty() {
            return None;
        }
        let layout = self.layout();
        let Layout { frame, scale, height } = &layout;
        let zero = scale.place(0.0);
        let tops = offsets(frame.top, self.rows.iter().map(row_height));
        let body = html! {
            (self.key())
            (frame.columns(scale, LABELS_APART, self.unit.trim()))
            @for (row, top) in self.rows.iter().zip(tops) { (self.row(row, top, &layout)) }
            line.zero x1=(zero) x2=(zero) y1=(frame.top) y2=(frame.bottom) {}
        };
        Some(Chart::new(&self.title, &self.caption, (WIDTH, *height), body))
    }

    fn layout(&self) -> Layout {
        let longest = self.rows.iter().map(|row| text_width(&row.name)).fold(60.0, f64::max);
        let top = ABOVE + if self.series.len() > 1 { KEY } else { 0.0 };
        let bottom = top + self.rows.iter().map(row_height).sum::<f64>();
        let frame = Frame { left: longest.min(LONGEST_NAME) + 8.0, right: WIDTH - FIGURE, top, bottom };
        // A figure without decimals and without a sign is a count.
        let spacing = if self.decimals == 0 && !self.signed { Spacing::Whole } else { Spacing::Linear };
        let scale = Scale::spaced(spacing, self.range(), (frame.left, frame.right));
        Layout { frame, scale, height: bottom + BELOW }
    }

    fn drawn(&self, value: f64) -> f64 {
        value.max(self.least.unwrap_or(f64::NEG_INFINITY))
    }

    fn range(&self) -> (f64, f64) {
        let all = || self.rows.iter().flat_map(|row| &row.bars);
        let low = all().map(|bar| self.drawn(bar.lo)).fold(0.0, f64::min);
        let high = all().map(|bar| bar.hi).fold(0.0, f64::max);
        let air = (high - low) * 0.03;
        (if low < 0.0 { low - air } else { 0.0 }, high + air)
    }

    fn key(&self) -> Markup {
        let names = if self.series.len() > 1 { &self.series[..] } else { &[] };
        let places = offsets(4.0, names.iter().map(|name| text_width(name) + 34.0));
        html! {
            @for (series, (at, name)) in places.iter().zip(names).enumerate() {
                rect class=(format!("bar s{series} c-ink")) x=(at) y="5" width="14" height="10" {}
                text x=(at + 19.0) y="14" { (name) }
            }
        }
    }

    fn row(&self, row: &BarRow, top: f64, layout: &Layout) -> Markup {
        let middle = top + row_height(row) / 2.0;
        html! {
            g class=(Look::of(&row.name).class()) data-candidate=(row.name) {
                text x=(layout.frame.left - 6.0) y=(middle + 4.0) text-anchor="end" {
                    (fitted(&row.name, LONGEST_NAME))
                }
                @for (series, bar) in row.bars.iter().enumerate() {
                    (self.bar(bar, series, top + GAP / 2.0 + BAR * series as f64, &layout.scale))
                }
            }
        }
    }

    fn bar(&self, bar: &Interval, series: usize, top: f64, scale: &Scale) -> Markup {
        let (zero, end) = (scale.place(0.0), scale.place(self.drawn(bar.mid)));
        let (lo, hi, middle) =
            (scale.place(self.drawn(bar.lo)), scale.place(self.drawn(bar.hi)), top + BAR / 2.0);
        html! {
            rect class=(format!("bar s{series}")) x=(zero.min(end)) y=(top + 1.0) width=((end - zero).abs())
                height=(BAR - 3.0) { title { (self.words(bar)) } }
            @if bar.hi > bar.lo {
                line.halo-line x1=(lo) x2=(hi) y1=(middle) y2=(middle) {}
                line.whisker x1=(lo) x2=(hi) y1=(middle) y2=(middle) {}
            }
            text.figure x=(WIDTH - 4.0) y=(middle + 4.0) text-anchor="end" { (self.figure(bar.mid)) }
        }
    }

    /// The figure with its unit.
    fn figure(&self, value: f64) -> String {
        format!("{}{}", self.number(value), self.unit)
    }

    fn number(&self, value: f64) -> String {
        let places = self.decimals;
        let scale = 10f64.powi(i32::try_from(places).unwrap_or(0));
        // Without a minus before a zero.
        let shown = (value * scale).round() / scale + 0.0;
        if self.signed { format!("{shown:+.places$}") } else { format!("{shown:.places$}") }
    }

    fn words(&self, bar: &Interval) -> String {
        match bar.hi > bar.lo {
            true => format!("{} [{}, {}]", self.figure(bar.mid), self.number(bar.lo), self.number(bar.hi)),
            false => self.figure(bar.mid),
        }
    }
}

fn row_height(row: &BarRow) -> f64 {
    BAR * row.bars.len() as f64 + GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(name: &str, value: f64) -> Bars {
        let bar = Interval { lo: value * 1.1, mid: value, hi: value * 0.9 };
        Bars {
            title: "t".into(),
            unit: " %".into(),
            decimals: 1,
            signed: true,
            least: Some(-150.0),
            series: vec!["gain".into()],
            rows: vec![BarRow { name: name.into(), bars: vec![bar] }],
            ..Bars::default()
        }
    }

    #[test]
    fn a_huge_loss_is_a_number_and_not_a_scale() {
        let bars = bars("mimalloc", -8000.0);
        assert!(bars.range().0 > -200.0);
        let svg = bars.draw().unwrap().document();
        assert!(svg.contains("-8000.0 %") && svg.contains("mimalloc"));
    }

    #[test]
    fn a_share_of_nothing_has_no_minus() {
        let svg = Bars { signed: false, ..bars("x", -0.0) }.draw().unwrap().document();
        assert!(!svg.contains("-0.0"), "{svg}");
    }

    #[test]
    fn names_are_text_and_nothing_is_no_chart() {
        let svg = bars("<script>\"'&", 1.0).draw().unwrap().document();
        assert!(!svg.contains("<script>") && !svg.contains("\"'&"), "{svg}");
        assert!(Bars::default().draw().is_none());
    }
}
