// SPDX-License-Identifier: Apache-2.0
//! What the drawings of lines have in common: the frame, its axes, a line a candidate in the candidate's colour.

use serde::Serialize;

use super::scale::{Scale, Tick};

const WIDTH: f64 = 560.0;
/// Room for the labels of the axes.
const LEFT: f64 = 58.0;
const BELOW: f64 = 30.0;
/// Room between the frame and what is drawn.
const AT_THE_LEFT: f64 = 8.0;
const AT_THE_RIGHT: f64 = 16.0;
const ABOVE: f64 = 10.0;
/// What is drawn of the values beyond the highest.
const AIR: f64 = 1.05;
/// Pixels between two labels of the vertical axis.
const ROWS_APART: f64 = 18.0;

/// A drawing, in pixels.
#[derive(Serialize)]
pub(super) struct Lines {
    width: f64,
    height: f64,
    left: f64,
    bottom: f64,
    pub(super) lines: Vec<Line>,
    pub(super) x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

/// What one candidate did.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) name: String,
    /// Its place among the candidates, which chooses the colour.
    pub(super) colour: usize,
    points: String,
}

/// A frame to draw in.
pub(super) struct Frame {
    height: f64,
    pub(super) x: Scale,
    y: Scale,
}

impl Frame {
    /// `height` pixels high, for values of x within `range` and of y from 0 to `top`.
    pub(super) fn new(height: f64, range: (f64, f64), top: f64) -> Self {
        let x = Scale::new(range, (LEFT + AT_THE_LEFT, WIDTH - AT_THE_RIGHT));
        Self { height, x, y: Scale::new((0.0, top * AIR), (height - BELOW, ABOVE)) }
    }

    /// The corners of a line, as SVG has them.
    pub(super) fn points(&self, values: impl Iterator<Item = (f64, f64)>) -> String {
        let point = |(x, y)| format!("{},{}", self.x.place(x), self.y.place(y));
        values.map(point).collect::<Vec<_>>().join(" ")
    }

    /// The line of a candidate; `names` gives each its colour.
    pub(super) fn line(&self, name: &str, names: &[&str], values: impl Iterator<Item = (f64, f64)>) -> Line {
        let colour = names.iter().position(|one| *one == name).unwrap_or(0);
        Line { name: name.to_owned(), colour, points: self.points(values) }
    }

    /// The drawing.
    pub(super) fn with(self, lines: Vec<Line>, x_ticks: Vec<Tick>) -> Lines {
        Lines {
            width: WIDTH,
            height: self.height,
            left: LEFT,
            bottom: self.height - BELOW,
            lines,
            x_ticks,
            y_ticks: self.y.round_ticks(ROWS_APART),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_within_the_frame_and_colours_are_places() {
        let frame = Frame::new(190.0, (0.0, 10.0), 100.0);
        let line = frame.line("b", &["a", "b"], [(0.0, 0.0), (10.0, 105.0)].into_iter());
        assert_eq!((line.points.as_str(), line.colour), ("66,160 544,10", 1));
        assert_eq!(frame.with(vec![line], vec![]).bottom, 160.0);
    }
}
