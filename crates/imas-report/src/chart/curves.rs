// SPDX-License-Identifier: Apache-2.0
//! Lines over a common axis: figures by run, memory over time, medians within a band, gains in order.

use maud::{Markup, html};

use super::{Axis, Chart, Frame, Scale, WIDTH, fitted, text_width};
use crate::look::Look;

const HEIGHT: f64 = 230.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 10.0;
const BELOW: f64 = 38.0;
/// Room between the frame and the first and last value.
const INSIDE: f64 = 6.0;
const COLUMNS_APART: f64 = 44.0;
const ROWS_APART: f64 = 18.0;
/// Height of a name at the end of its line.
const NAME: f64 = 13.0;
const LONGEST_NAME: f64 = 176.0;
/// Points from which on their marks would hide the line.
const MANY: usize = 40;
/// Part of the range of values that is drawn beyond the highest.
const AIR: f64 = 0.05;

/// Lines over a common axis, each with its name at its end.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// Title: the quantity that is drawn.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Values below this are drawn at the lower edge.
    pub least: Option<f64>,
    /// A line for each allocator; those with fewer than two points are drawn as points.
    pub lines: Vec<CurveLine>,
    /// Values to compare with.
    pub references: Vec<ReferenceLine>,
    /// A dashed line that belongs to no allocator, such as the bytes in live blocks.
    pub floor: Option<CurveLine>,
}

/// Curve of one allocator.
#[derive(Debug, Clone, Default)]
pub struct CurveLine {
    /// Name of the allocator, which gives colour and dashes.
    pub name: String,
    /// Values of x and y, by x.
    pub points: Vec<(f64, f64)>,
    /// For each point the ends of its interval, or nothing at all.
    pub band: Vec<(f64, f64)>,
    /// Whether each point is marked, where there are few.
    pub dots: bool,
}

/// A dashed horizontal line.
#[derive(Debug, Clone, Default)]
pub struct ReferenceLine {
    /// Quantity that the line shows.
    pub name: String,
    /// The line or the allocator whose colour it has; the colour of text when there is none of that name.
    pub of: String,
    /// Height of the line, a value of y.
    pub value: f64,
    /// Value of x at which the line begins.
    pub from_x: f64,
}

impl CurveLine {
    /// A line without an interval.
    #[must_use]
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, ..Self::default() }
    }

    /// This line with a mark at each point.
    #[must_use]
    pub fn dotted(self) -> Self {
        Self { dots: true, ..self }
    }
}

/// The frame of the chart, with both scales.
struct Places {
    frame: Frame,
    x: Scale,
    y: Scale,
    height: f64,
}

/// A name at the right, joined with the end of its line.
struct Name<'a> {
    text: &'a str,
    look: Option<Look>,
    end: (f64, f64),
    at: f64,
}

impl Curves {
    /// The chart; None when there is no value to draw.
    #[must_use]
    pub fn draw(&self) -> Option<Chart> {
        let looks = Look::of_all(self.lines.iter().map(|line| line.name.as_str()));
        let places = self.places()?;
        let names = self.names(&places, &looks);
        let body = html! {
            (places.frame.columns(&places.x, COLUMNS_APART, &self.x.name))
            (places.frame.rows(&places.y, ROWS_APART))
            (places.frame.beside(&self.y.name))
            @for (line, look) in self.lines.iter().zip(&looks) { (places.line(line, *look, self.least)) }
            @if let Some(floor) = &self.floor {
                polyline.live points=(places.points(&floor.points, None)) { title { (floor.name) } }
            }
            @for reference in &self.references { (places.reference(reference, self.look(&reference.of, &looks))) }
            @for name in &names { (name.draw(places.frame.right)) }
        };
        Some(Chart::new(&self.title, &self.caption, (WIDTH, places.height), body))
    }

    fn look(&self, name: &str, looks: &[Look]) -> Option<Look> {
        let line = self.lines.iter().position(|line| line.name == name).map(|at| looks[at]);
        line.or_else(|| Some(Look::of(name)).filter(|look| look.is_known()))
    }

    fn labels(&self) -> impl Iterator<Item = &str> {
        let floor = self.floor.iter().map(|line| line.name.as_str());
        let references = self.references.iter().map(|line| line.name.as_str());
        self.lines.iter().map(|line| line.name.as_str()).chain(floor).chain(references)
    }

    fn places(&self) -> Option<Places> {
        let drawn = || self.lines.iter().chain(&self.floor);
        let xs = drawn().flat_map(|line| line.points.iter().map(|point| point.0));
        let ends = || drawn().flat_map(|line| line.band.iter().flat_map(|(low, high)| [*low, *high]));
        let marks = self.references.iter().map(|reference| reference.value);
        let ys = drawn().flat_map(|line| line.points.iter().map(|point| point.1)).chain(ends()).chain(marks);
        let x = self.x.range(xs, 0.0)?;
        let y = self.y.range(ys.map(|value| value.max(self.least.unwrap_or(value))), AIR)?;
        let longest = self.labels().map(text_width).fold(0.0, f64::max).min(LONGEST_NAME);
        let height = HEIGHT.max(self.labels().count() as f64 * NAME + TOP + BELOW);
        let frame = Frame { left: LEFT, right: WIDTH - longest - 14.0, top: TOP, bottom: height - BELOW };
        Some(Places {
            x: Scale::spaced(self.x.spacing, x, (frame.left + INSIDE, frame.right - INSIDE)),
            y: Scale::spaced(self.y.spacing, y, (frame.bottom, frame.top)),
            frame,
            height,
        })
    }

    /// The names at the right, none on another, each as near to its line's end as can be.
    fn names<'a>(&'a self, places: &Places, looks: &[Look]) -> Vec<Name<'a>> {
        let of_line = |line: &'a CurveLine, look| {
            let (x, y) = *line.points.last()?;
            let end = (places.x.place(x), places.y.place(self.least.map_or(y, |least| y.max(least))));
            Some(Name { text: &line.name, look, end, at: end.1 })
        };
        let lines = self.lines.iter().zip(looks).filter_map(|(line, look)| of_line(line, Some(*look)));
        let floor = self.floor.iter().filter_map(|line| of_line(line, None));
        let references = self.references.iter().map(|reference| {
            let end = (places.frame.right - INSIDE, places.y.place(reference.value));
            Name { text: &reference.name, look: self.look(&reference.of, looks), end, at: end.1 }
        });
        let mut names: Vec<Name<'_>> = lines.chain(floor).chain(references).collect();
        spread(&mut names, (places.frame.top + 4.0, places.frame.bottom));
        names
    }
}

/// Moves names apart, downwards from the top and then upwards from the bottom.
fn spread(names: &mut [Name<'_>], (top, bottom): (f64, f64)) {
    names.sort_by(|a, b| a.end.1.total_cmp(&b.end.1));
    let mut least = top;
    for name in names.iter_mut() {
        name.at = name.end.1.max(least);
        least = name.at + NAME;
    }
    let mut most = bottom;
    for name in names.iter_mut().rev() {
        name.at = name.at.min(most);
        most = name.at - NAME;
    }
}

impl Name<'_> {
    fn draw(&self, right: f64) -> Markup {
        let class = self.look.map_or_else(|| "c-ink".to_owned(), Look::class);
        let candidate = self.look.map(|_| self.text);
        html! {
            g class={"name " (class)} data-candidate=[candidate] {
                line.lead x1=(self.end.0) y1=(self.end.1) x2=(right + 3.0) y2=(self.at) {}
                line.curve x1=(right + 3.0) y1=(self.at) x2=(right + 9.0) y2=(self.at) {}
                text.halo x=(right + 12.0) y=(self.at + 4.0) { (fitted(self.text, LONGEST_NAME)) }
            }
        }
    }
}

impl Places {
    fn at(&self, (x, y): (f64, f64), least: Option<f64>) -> String {
        format!("{},{}", self.x.place(x), self.y.place(least.map_or(y, |least| y.max(least))))
    }

    /// The corners of a line, as SVG has them.
    fn points(&self, values: &[(f64, f64)], least: Option<f64>) -> String {
        values.iter().map(|point| self.at(*point, least)).collect::<Vec<_>>().join(" ")
    }

    fn line(&self, line: &CurveLine, look: Look, least: Option<f64>) -> Markup {
        let with_band = || line.points.iter().zip(&line.band);
        let upper = with_band().map(|((x, _), (_, high))| self.at((*x, *high), least));
        let lower = with_band().map(|((x, _), (low, _))| self.at((*x, *low), least));
        let outline: Vec<String> = upper.chain(lower.rev()).collect();
        html! {
            g class=(look.class()) {
                @if !outline.is_empty() { polygon.band points=(outline.join(" ")) {} }
                polyline.curve data-candidate=(line.name) stroke-dasharray=(look.dashes())
                    points=(self.points(&line.points, least)) { title { (line.name) } }
                @if line.points.len() == 1 || line.dots && line.points.len() < MANY { (self.dots(line, look, least)) }
            }
        }
    }

    fn dots(&self, line: &CurveLine, look: Look, least: Option<f64>) -> Markup {
        html! {
            g.point {
                @for point in &line.points {
                    path transform=(format!("translate({}) scale(.55)", self.at(*point, least))) d=(look.dot()) {}
                }
            }
        }
    }

    fn reference(&self, line: &ReferenceLine, look: Option<Look>) -> Markup {
        let y = self.y.place(line.value);
        html! {
            line class={"reference " (look.map_or_else(|| "c-ink".to_owned(), Look::class))}
                x1=(self.x.place(line.from_x)) x2=(self.frame.right - INSIDE) y1=(y) y2=(y) {
                title { (line.name) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(names: &[&str]) -> Curves {
        let line = |(name, top): (&&str, u32)| {
            CurveLine::new(name, vec![(1.0, 0.0), (2.0, 100.0 + f64::from(top) / 100.0)])
        };
        Curves {
            title: "t".into(),
            x: Axis::new("run").spaced(super::super::Spacing::Whole),
            y: Axis::new("MiB").from_zero(),
            lines: names.iter().zip(0..).map(line).collect(),
            ..Curves::default()
        }
    }

    #[test]
    fn names_stand_beside_their_lines_and_not_on_each_other() {
        let curves = curves(&["system", "jemalloc", "jemalloc:small", "mimalloc", "hoard"]);
        let places = curves.places().unwrap();
        let names = curves.names(&places, &Look::of_all(curves.lines.iter().map(|line| line.name.as_str())));
        assert_eq!(names.len(), 5);
        for pair in names.windows(2) {
            assert!(pair[1].at - pair[0].at >= NAME - 1e-6, "{} and {}", pair[0].text, pair[1].text);
        }
        assert!(names.iter().all(|name| (TOP..=places.frame.bottom).contains(&name.at)));
    }

    #[test]
    fn two_lines_of_a_family_differ_in_their_dashes() {
        let svg = curves(&["24-byte headers", "8-byte headers"]).draw().unwrap().document();
        assert!(
            svg.contains("stroke-dasharray=\"none\"") && svg.contains("stroke-dasharray=\"7 3\""),
            "{svg}"
        );
    }

    #[test]
    fn a_band_a_printed_value_and_a_floor_are_drawn() {
        let mut curves = curves(&["a"]);
        curves.lines[0].band = vec![(0.0, 1.0), (90.0, 110.0)];
        curves.references =
            vec![ReferenceLine { name: "printed: 30".into(), value: 30.0, ..Default::default() }];
        curves.floor = Some(CurveLine::new("live blocks", vec![(1.0, 1.0), (2.0, 2.0)]));
        let svg = curves.draw().unwrap().document();
        for part in ["class=\"band\"", "printed: 30", "class=\"live\"", "live blocks"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(Curves::default().draw().is_none());
    }
}
