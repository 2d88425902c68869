// SPDX-License-Identifier: Apache-2.0
//! The time of day.

/// Seconds since the epoch; 0 when the clock is set before it.
#[must_use]
pub fn now_unix_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
