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

mod bars;
mod curves;
mod distribution;
mod frame;
mod plane;

use maud::{Markup, PreEscaped, html};

pub use bars::{BarRow, Bars};
pub use curves::{CurveLine, Curves, ReferenceLine};
pub use distribution::{Distribution, DistributionRow, Timeline, TimelineMark};
pub use frame::{Axis, Spacing};
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
