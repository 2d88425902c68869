// SPDX-License-Identifier: Apache-2.0
//! Figures as people read them.

use imas_core::stats::Interval;

pub use imas_core::printable::{counted, counted_verb};

/// Bytes as MiB with one decimal, two below 10 MiB.
#[must_use]
pub fn mib(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    if mib < 10.0 { format!("{mib:.2}") } else { format!("{mib:.1}") }
}

/// Bytes as a sentence or a cell with its own unit has them: `9.5 MiB`, `812 MiB`, `1.2 GiB` from 1,024 MiB on.
#[must_use]
pub fn size(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    match mib.abs() {
        small if small < 9.95 => format!("{mib:.1} MiB"),
        middle if middle < 1023.5 => format!("{mib:.0} MiB"),
        _ => format!("{:.1} GiB", mib / 1024.0),
    }
}

/// A change of bytes with its sign, as [`size`] writes it: `-812 MiB`.
#[must_use]
pub fn size_change(bytes: f64) -> String {
    if bytes > 0.0 { format!("+{}", size(bytes)) } else { size(bytes) }
}

/// Seconds with three significant digits and a unit that fits.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.2} s"),
        s => format!("{s:.0} s"),
    }
}

/// Ratio from which on a change is given in times: `766 times` reads easier than `+76500 %`.
const MANY_TIMES: f64 = 10.0;

/// A ratio as the change it means, with its interval: `-12.3 % [-14.0, -10.1]`, `766 times [12, 900]`.
#[must_use]
pub fn change(ratio: &Interval) -> String {
    let percent = |x: f64| (x - 1.0) * 100.0;
    match ratio.mid >= MANY_TIMES {
        true => times(ratio),
        false => {
            format!("{:+.1} % [{:+.1}, {:+.1}]", percent(ratio.mid), percent(ratio.lo), percent(ratio.hi))
        }
    }
}

/// A change as [`change`] writes it, in less room: `-12 % [-14, -10]`.
#[must_use]
pub fn short_change(ratio: &Interval) -> String {
    if ratio.mid >= MANY_TIMES {
        return times(ratio);
    }
    // The sign of an end that rounds to 0 stays: it says whether the interval excludes it.
    let whole = |x: f64| (x - 1.0) * 100.0;
    let mid = (ratio.mid - 1.0) * 100.0;
    let mid = if mid.abs() < 9.95 { format!("{mid:+.1}") } else { format!("{mid:+.0}") };
    format!("{mid} % [{:+.0}, {:+.0}]", whole(ratio.lo), whole(ratio.hi))
}

fn times(ratio: &Interval) -> String {
    let number = |x: f64| if x < MANY_TIMES { format!("{x:.1}") } else { format!("{x:.0}") };
    format!("{:.0} times [{}, {}]", ratio.mid, number(ratio.lo), number(ratio.hi))
}

/// A ratio as the change it means: `-12 %`, `766 times`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    match ratio >= MANY_TIMES {
        true => format!("{ratio:.0} times"),
        // Adding 0 makes plus zero of minus zero.
        false => format!("{:+.0} %", ((ratio - 1.0) * 100.0).round() + 0.0),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_size() {
        assert_eq!(mib(1048576.0), "1.00");
        assert_eq!(mib(104857600.0), "100.0");
        let sizes = [1.0, 9.96, 1023.0, 1024.0, 20480.0].map(|mib| size(mib * 1_048_576.0));
        assert_eq!(sizes, ["1.0 MiB", "10 MiB", "1023 MiB", "1.0 GiB", "20.0 GiB"]);
        assert_eq!([2e9, -2e9].map(size_change), ["+1.9 GiB", "-1.9 GiB"]);
        assert_eq!(seconds(0.00025), "250 us");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(2.5), "2.50 s");
    }

    #[test]
    fn a_change_has_one_sign() {
        assert_eq!([0.88, 1.1, 0.999, 3.37].map(percent), ["-12 %", "+10 %", "+0 %", "+237 %"]);
        assert_eq!(percent(766.0), "766 times");
    }

    #[test]
    fn a_ratio_reads_as_a_change() {
        let ratio = Interval { lo: 0.9, mid: 0.95, hi: 1.01 };
        assert_eq!(change(&ratio), "-5.0 % [-10.0, +1.0]");
        assert_eq!(short_change(&ratio), "-5.0 % [-10, +1]");
        let ratio = Interval { lo: 1.1, mid: 766.0, hi: 901.4 };
        assert_eq!([change(&ratio), short_change(&ratio)], ["766 times [1.1, 901]", "766 times [1.1, 901]"]);
        assert_eq!(short_change(&Interval { lo: 0.86, mid: 0.879, hi: 0.999 }), "-12 % [-14, -0]");
    }
}
