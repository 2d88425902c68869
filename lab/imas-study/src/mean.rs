// SPDX-License-Identifier: Apache-2.0
//! The arithmetic mean of an iterator, without storing its values.

/// 0 for no values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
