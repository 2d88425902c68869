// SPDX-License-Identifier: Apache-2.0
//! Axes and grid.

use maud::{Markup, html};

use super::scale::{Scale, Spacing};

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

/// Where the grid is, in pixels.
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
