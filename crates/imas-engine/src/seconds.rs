// SPDX-License-Identifier: Apache-2.0
//! The range of a configured duration.

/// The longest duration that may be configured, in seconds: about thirty years. A point in time that lies
/// much further ahead cannot be computed.
pub const MOST_SECONDS: f64 = 1e9;

/// Checks a duration from a configuration file or the command line, in seconds.
///
/// # Errors
/// When it is not a number from 0 to [`MOST_SECONDS`]; the message names the key.
pub fn check(key: &str, seconds: f64) -> Result<f64, String> {
    if (0.0..=MOST_SECONDS).contains(&seconds) {
        return Ok(seconds);
    }
    Err(format!("{key} = {seconds}: not a number of seconds from 0 to {MOST_SECONDS:.0}"))
}

/// A duration on the command line, in seconds.
///
/// # Errors
/// When the text is not a number from 0 to [`MOST_SECONDS`].
pub fn parse(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let in_range = (0.0..=MOST_SECONDS).contains(&seconds);
    in_range.then_some(seconds).ok_or_else(|| format!("must be from 0 to {MOST_SECONDS:.0}"))
}

/// A duration on the command line that must be above 0, in seconds: a limit, for example.
///
/// # Errors
/// When the text is not a number above 0 and up to [`MOST_SECONDS`].
pub fn parse_above_0(text: &str) -> Result<f64, String> {
    parse(text)
        .and_then(|seconds| if seconds > 0.0 { Ok(seconds) } else { Err("must be above 0".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_seconds_within_thirty_years_pass() {
        for good in [0.0, 0.5, MOST_SECONDS] {
            assert_eq!(check("retest_s", good), Ok(good));
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(check("retest_s", bad).unwrap_err().starts_with("retest_s = "), "{bad}");
        }
        assert_eq!(parse("1.5"), Ok(1.5));
        assert_eq!(parse("2e9").unwrap_err(), "must be from 0 to 1000000000");
        assert_eq!(parse_above_0("0").unwrap_err(), "must be above 0");
        assert_eq!(parse_above_0("0.1"), Ok(0.1));
        assert_eq!(parse("soon").unwrap_err(), "not a number of seconds");
    }
}
