// SPDX-License-Identifier: Apache-2.0
//! Values that depend on the memory limit of the control group: `{memory_limit 90%}` is replaced by that share
//! of it in bytes, `{memory_limit_mib 75%}` by that in MiB.

const BEGIN: &str = "{memory_limit";
const MIB: u64 = 1 << 20;

/// Whether the text names the limit.
#[must_use]
pub fn is_named(text: &str) -> bool {
    text.contains(BEGIN)
}

/// Whether each place of the text that names the limit can be read.
#[must_use]
pub fn is_right(text: &str) -> bool {
    filled(text, u64::MAX).is_some()
}

/// The text with the limit in the places that name it; `None` where one of them cannot be read.
#[must_use]
pub fn filled(text: &str, limit_bytes: u64) -> Option<String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (inside, behind) = after.split_once('}')?;
        let (unit, share) = match inside.strip_prefix("_mib") {
            Some(share) => (MIB, share),
            None => (1, inside),
        };
        let percent = match share.trim() {
            "" => 100,
            share => share.strip_suffix('%')?.parse().ok().filter(|percent| (1..=100).contains(percent))?,
        };
        whole.push_str(before);
        whole.push_str(&(limit_bytes / 100 * percent / unit).to_string());
        rest = behind;
    }
    whole.push_str(rest);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_limit_takes_the_place_of_its_name() {
        let of = |text| filled(text, 1_000 * MIB);
        assert_eq!(of("{memory_limit}").unwrap(), (10 * MIB * 100).to_string());
        assert_eq!(of("--max={memory_limit_mib 75%},x").unwrap(), "--max=750,x");
        assert_eq!(of("plain").unwrap(), "plain");
        for bad in ["{memory_limit", "{memory_limit 0%}", "{memory_limit 101%}", "{memory_limitx}"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
