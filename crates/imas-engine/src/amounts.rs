// SPDX-License-Identifier: Apache-2.0
//! Sizes and times as people write them, on the command line and in a configuration.

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
}
