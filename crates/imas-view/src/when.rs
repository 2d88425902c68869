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
