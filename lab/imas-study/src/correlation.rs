// SPDX-License-Identifier: Apache-2.0
//! Correlation of predicted and live figures.

use imas_core::stats::Moments;

/// Correlation of x and y, from -1 to 1; None with fewer than three points, or where one of them does not
/// vary.
pub(crate) fn correlation(all: &Moments) -> Option<f64> {
    let spread = (all.xx * all.yy).sqrt();
    (all.count > 2 && spread > 0.0).then(|| (all.xy / spread).clamp(-1.0, 1.0))
}
