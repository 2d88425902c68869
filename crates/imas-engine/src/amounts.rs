// SPDX-License-Identifier: Apache-2.0
//! Sizes and times as people write them, on the command line and in a configuration, and the range of the latter.

use std::time::Duration;

/// Splits a text into its number and its unit.
fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number =
        text[..digits].parse().map_err(|_| format!("'{text}' does not begin with a whole number"))?;
    Ok((number, &text[digits..]))
}

/// A size in bytes: 300000, 64K, 256M, 2G.
///
/// # Errors
/// When the text is none, or 0.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("'{unit}' is no unit of size: K, M or G")),
    };
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(|| "out of range".to_owned())
}

/// A time: 90, 90s, 10m, 2h.
///
/// # Errors
/// When the text is none, or the time is not from one second to a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("'{unit}' is no unit of time: s, m or h")),
    };
    let most = 365 * 24 * 3600;
    let number = number.checked_mul(seconds).filter(|number| (1..=most).contains(number));
    number.map(Duration::from_secs).ok_or_else(|| "out of range: from one second to a year".to_owned())
}

// The range of a configured duration.

/// The longest duration that may be configured, in seconds: about thirty years. A point in time that lies
/// much further ahead cannot be computed.
pub const MOST_SECONDS: f64 = 1e9;

/// Checks a duration from a configuration file or the command line, in seconds.
///
/// # Errors
/// When it is not a number from 0 to [`MOST_SECONDS`]; the message names the key.
pub fn check_seconds(key: &str, seconds: f64) -> Result<f64, String> {
    if (0.0..=MOST_SECONDS).contains(&seconds) {
        return Ok(seconds);
    }
    Err(format!("{key} = {seconds}: not a number of seconds from 0 to {MOST_SECONDS:.0}"))
}

/// A duration on the command line, in seconds.
///
/// # Errors
/// When the text is not a number from 0 to [`MOST_SECONDS`].
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let in_range = (0.0..=MOST_SECONDS).contains(&seconds);
    in_range.then_some(seconds).ok_or_else(|| format!("must be from 0 to {MOST_SECONDS:.0}"))
}

/// A duration on the command line that must be above 0, in seconds: a limit, for example.
///
/// # Errors
/// When the text is not a number above 0 and up to [`MOST_SECONDS`].
pub fn seconds_above_0(text: &str) -> Result<f64, String> {
    seconds(text)
        .and_then(|seconds| if seconds > 0.0 { Ok(seconds) } else { Err("must be above 0".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("300000"), Ok(300_000));
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        for wrong in ["", "M", "0", "1T", "-1", "99999999999999999999", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "s", "0", "1d", "9999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_numbers_of_seconds_within_thirty_years_pass() {
        for good in [0.0, 0.5, MOST_SECONDS] {
            assert_eq!(check_seconds("retest_s", good), Ok(good));
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(check_seconds("retest_s", bad).unwrap_err().starts_with("retest_s = "), "{bad}");
        }
        assert_eq!(seconds("1.5"), Ok(1.5));
        assert_eq!(seconds("2e9").unwrap_err(), "must be from 0 to 1000000000");
        assert_eq!(seconds_above_0("0").unwrap_err(), "must be above 0");
        assert_eq!(seconds_above_0("0.1"), Ok(0.1));
        assert_eq!(seconds("soon").unwrap_err(), "not a number of seconds");
    }
}
