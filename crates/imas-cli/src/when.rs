// SPDX-License-Identifier: Apache-2.0
//! Times in words.

/// A time in the local time zone.
#[must_use]
pub fn when(at_s: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are meant")]
    let stamp = jiff::Timestamp::from_second(at_s as i64);
    stamp.map_or_else(
        |_| "-".to_owned(),
        |stamp| stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A time in one unit: `24 h`.
#[must_use]
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 3.0 * 86400.0 => format!("{:.0} d", s / 86400.0),
        s if s >= 2.0 * 3600.0 => format!("{:.0} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.0} s"),
    }
}
