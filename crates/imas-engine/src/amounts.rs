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

/// A reference to an image as Kubernetes takes it: `[HOST[:PORT]/]NAME[/NAME...][:TAG][@DIGEST]`, names in small letters.
///
/// # Errors
/// The fault of the reference.
pub fn image_reference(text: &str) -> Result<String, String> {
    let wrong = || {
        "not an image's reference, such as registry.example:5000/team/imas:1; names are in small letters"
            .to_owned()
    };
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    // A colon before the last slash belongs to a port.
    let tag_at = rest.rfind(':').filter(|at| !rest[*at..].contains('/'));
    let (path, tag) = tag_at.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 1..])));
    let (host, names) = match path.split_once('/') {
        Some((host, names)) if host.contains(['.', ':']) || host == "localhost" => (Some(host), names),
        _ => (None, path),
    };
    let is_right = names.split('/').all(is_component)
        && host.is_none_or(is_host)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
        && text.len() <= 1024;
    if is_right { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// Small letters and digits; between them `.`, `_`, `__` or dashes.
fn is_component(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_edge = |b: Option<&u8>| b.is_some_and(|b| is_plain(*b));
    let bytes = name.as_bytes();
    let mut separators = name.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    is_edge(bytes.first()) && is_edge(bytes.last()) && separators.all(is_separator)
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let good = |label: &str| {
        let is_edge = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !is_edge && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    name.split('.').all(good) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_tag(tag: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=128).contains(&tag.len()) && tag.bytes().all(good) && !tag.starts_with(['.', '-'])
}

fn is_digest(digest: &str) -> bool {
    let is_hex = |hex: &str| hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    digest.split_once(':').is_some_and(|(kind, hex)| is_component(&kind.replace('+', "-")) && is_hex(hex))
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

    #[test]
    fn a_reference_to_an_image_is_one_that_kubernetes_takes() {
        let digest = format!("imas@sha256:{}", "a1".repeat(32));
        for right in
            ["imas", "imas:1", "localhost/imas:1", "registry.example:5000/team/i-m_a.s:V1", digest.as_str()]
        {
            assert_eq!(image_reference(right).as_deref(), Ok(right));
        }
        for wrong in [
            "",
            "IMAS",
            "imas:",
            "imas:-1",
            "a//b",
            "/imas",
            "imas/",
            "-imas",
            "i..mas",
            "reg.example/Team/imas",
            "reg.example:port/imas",
            "imas@sha256:12",
            "imas 1",
            "reg-.example/imas",
        ] {
            assert!(image_reference(wrong).is_err(), "{wrong}");
        }
    }
}
