// SPDX-License-Identifier: Apache-2.0
//! Decisions in the order they were made, a line for each allocator.

use maud::html;

use super::{Chart, fitted, text_width};
use crate::look::Look;

const ROW: f64 = 22.0;
const STEP: f64 = 11.0;
const LONGEST_NAME: f64 = 170.0;

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
        let longest = names.iter().map(|name| text_width(name)).fold(0.0, f64::max).min(LONGEST_NAME);
        let left = longest + 20.0;
        let width = (left + STEP * self.marks.len() as f64 + 10.0).max(super::WIDTH);
        let line = |name: &str| names.iter().position(|one| *one == name).unwrap_or(0) as f64 * ROW + 15.0;
        let body = html! {
            @for name in &names {
                g class=(Look::of(name).class()) {
                    line.range x1="2" x2="10" y1=(line(name)) y2=(line(name)) {}
                    text x="14" y=(line(name) + 4.0) { (fitted(name, LONGEST_NAME)) }
                    line.grid x1=(left) x2=(width) y1=(line(name)) y2=(line(name)) {}
                }
            }
            @for (place, mark) in self.marks.iter().enumerate() {
                circle class=(if mark.hollow { "trial" } else { "use" })
                    cx=(left + 6.0 + STEP * place as f64) cy=(line(&mark.name)) r="4" { title { (mark.text) } }
            }
        };
        let height = names.len() as f64 * ROW + 8.0;
        (!names.is_empty()).then(|| Chart::new(&self.title, &self.caption, (width, height), body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
