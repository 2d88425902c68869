// SPDX-License-Identifier: Apache-2.0
//! Charts with a row for each allocator: quantiles side by side (a line between the outer two, a box between the inner
//! two, a dot at the middle one), and decisions in the order they were made.

use maud::{Markup, html};

use super::{Axis, Chart, Frame, Scale, WIDTH, fitted, offsets, text_width};
use crate::look::Look;

const ROW: f64 = 17.0;
const GROUP: f64 = 22.0;
const ABOVE: f64 = 4.0;
const BELOW: f64 = 38.0;
const LONGEST_NAME: f64 = 190.0;
const LABELS_APART: f64 = 46.0;

/// A row for each allocator.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    /// Title: the quantity that is drawn.
    pub title: String,
    /// How to read the chart: which quantiles it shows.
    pub caption: String,
    /// The axis of the values.
    pub axis: Axis,
    /// Rows from top to bottom; rows of one group follow each other.
    pub rows: Vec<DistributionRow>,
}

/// Quantiles of one allocator; those that are not known repeat the next one.
#[derive(Debug, Clone, Default)]
pub struct DistributionRow {
    /// Group of the row, such as the function that is called; empty when there is one group only.
    pub group: String,
    /// The allocator, which gives the colour.
    pub name: String,
    /// End of the line.
    pub low: f64,
    /// End of the box.
    pub lower: f64,
    /// The dot.
    pub middle: f64,
    /// End of the box.
    pub upper: f64,
    /// End of the line.
    pub high: f64,
    /// The middle as text, with its unit.
    pub text: String,
}

impl Distribution {
    /// The chart; None without rows.
    #[must_use]
    pub fn draw(&self) -> Option<Chart> {
        let ends = self.rows.iter().flat_map(|row| [row.low, row.lower, row.middle, row.upper, row.high]);
        let range = self.axis.range(ends, 0.03)?;
        let longest = self.rows.iter().map(|row| text_width(&row.name)).fold(40.0, f64::max);
        let figures = self.rows.iter().map(|row| text_width(&row.text)).fold(0.0, f64::max);
        let height: f64 = (0..self.rows.len()).map(|row| ROW + self.head(row)).sum();
        let frame = Frame {
            left: longest.min(LONGEST_NAME) + 10.0,
            right: WIDTH - figures - 14.0,
            top: ABOVE,
            bottom: ABOVE + height,
        };
        let scale = Scale::spaced(self.axis.spacing, range, (frame.left + 4.0, frame.right));
        let heads: Vec<f64> = (0..self.rows.len()).map(|row| self.head(row)).collect();
        let tops = offsets(ABOVE, heads.iter().map(|head| head + ROW));
        let body = html! {
            (frame.columns(&scale, LABELS_APART, &self.axis.name))
            @for (row, (top, head)) in self.rows.iter().zip(tops.iter().zip(&heads)) {
                @if *head > 0.0 { text.group x="2" y=(top + head - 5.0) { (row.group) } }
                (row.draw(top + head, &scale, &frame))
            }
        };
        Some(Chart::new(&self.title, &self.caption, (WIDTH, frame.bottom + BELOW), body))
    }

    /// Room above a row for the name of its group.
    fn head(&self, row: usize) -> f64 {
        let before = row.checked_sub(1).and_then(|before| self.rows.get(before));
        let is_new = before.is_none_or(|before| before.group != self.rows[row].group);
        if is_new && !self.rows[row].group.is_empty() { GROUP } else { 0.0 }
    }
}

impl DistributionRow {
    fn draw(&self, top: f64, scale: &Scale, frame: &Frame) -> Markup {
        let look = Look::of(&self.name);
        let y = top + ROW / 2.0;
        let [low, lower, middle, upper, high] =
            [self.low, self.lower, self.middle, self.upper, self.high].map(|value| scale.place(value));
        html! {
            g class=(look.class()) data-candidate=(self.name) {
                title { (self.name) ": " (self.text) }
                text x=(frame.left - 4.0) y=(y + 4.0) text-anchor="end" { (fitted(&self.name, LONGEST_NAME)) }
                line.range x1=(low) x2=(high) y1=(y) y2=(y) {}
                rect.box x=(lower) y=(y - 4.0) width=((upper - lower).max(0.0)) height="8" {}
                g.median { path transform=(format!("translate({middle},{y}) scale(.8)")) d=(look.dot()) {} }
                text.figure x=(WIDTH - 4.0) y=(y + 4.0) text-anchor="end" { (self.text) }
            }
        }
    }
}

const DECISION_ROW: f64 = 22.0;
const DECISION_STEP: f64 = 11.0;
const LONGEST_DECIDED: f64 = 170.0;

/// Marks from left to right, evenly; the lines are in the order of their first mark.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Title: the subject that is drawn.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// Decisions in order of time.
    pub marks: Vec<TimelineMark>,
}

/// One decision.
#[derive(Debug, Clone, Default)]
pub struct TimelineMark {
    /// The allocator.
    pub name: String,
    /// Drawn hollow.
    pub hollow: bool,
    /// Text that is shown when the pointer is over it.
    pub text: String,
}

impl Timeline {
    /// The chart; None without marks.
    #[must_use]
    pub fn draw(&self) -> Option<Chart> {
        let mut names: Vec<&str> = vec![];
        for mark in &self.marks {
            if !names.contains(&mark.name.as_str()) {
                names.push(&mark.name);
            }
        }
        let longest = names.iter().map(|name| text_width(name)).fold(0.0, f64::max).min(LONGEST_DECIDED);
        let left = longest + 20.0;
        let width = (left + DECISION_STEP * self.marks.len() as f64 + 10.0).max(super::WIDTH);
        let line =
            |name: &str| names.iter().position(|one| *one == name).unwrap_or(0) as f64 * DECISION_ROW + 15.0;
        let body = html! {
            @for name in &names {
                g class=(Look::of(name).class()) {
                    line.range x1="2" x2="10" y1=(line(name)) y2=(line(name)) {}
                    text x="14" y=(line(name) + 4.0) { (fitted(name, LONGEST_DECIDED)) }
                    line.grid x1=(left) x2=(width) y1=(line(name)) y2=(line(name)) {}
                }
            }
            @for (place, mark) in self.marks.iter().enumerate() {
                circle class=(if mark.hollow { "trial" } else { "use" })
                    cx=(left + 6.0 + DECISION_STEP * place as f64) cy=(line(&mark.name)) r="4" { title { (mark.text) } }
            }
        };
        let height = names.len() as f64 * DECISION_ROW + 8.0;
        (!names.is_empty()).then(|| Chart::new(&self.title, &self.caption, (width, height), body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_name_and_each_group_its_head() {
        let row = |group: &str, name: &str, middle: f64| DistributionRow {
            group: group.into(),
            name: name.into(),
            low: middle / 2.0,
            lower: middle,
            middle,
            upper: middle,
            high: middle * 9.0,
            text: format!("{middle} ns"),
        };
        let rows =
            vec![row("malloc", "system", 20.0), row("malloc", "hoard", 30.0), row("free", "system", 9.0)];
        let axis = Axis::new("ns").spaced(super::super::Spacing::Logarithmic);
        let drawn = Distribution { title: "t".into(), axis, rows, ..Distribution::default() };
        assert_eq!([0, 1, 2].map(|row| drawn.head(row)), [GROUP, 0.0, GROUP]);
        let svg = drawn.draw().unwrap().document();
        assert!(svg.contains(">hoard<") && svg.contains(">30 ns<") && svg.contains(">free<"), "{svg}");
        assert!(Distribution::default().draw().is_none());
    }

    #[test]
    fn a_mark_stands_on_the_line_of_its_allocator() {
        let mark = |name: &str, hollow| TimelineMark { name: name.into(), hollow, text: format!("<{name}>") };
        let marks = vec![mark("system", true), mark("jemalloc", true), mark("system", false)];
        let svg = Timeline { marks, ..Timeline::default() }.draw().unwrap().document();
        assert_eq!(svg.matches("class=\"trial\"").count(), 2);
        assert_eq!(svg.matches("cy=\"15\"").count(), 2);
        assert!(svg.contains("&lt;jemalloc&gt;"));
        assert!(Timeline::default().draw().is_none());
    }
}
