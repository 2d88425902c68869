// SPDX-License-Identifier: Apache-2.0
//! Which versions of the server may be used.

use std::fmt;

/// Major, minor and patch number of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServerVersion(u32, u32, u32);

/// Verdict on a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionVerdict {
    /// The server's project supports the version.
    Supported,
    /// The version works, and gets no more fixes.
    Old(String),
    /// The version must not be used.
    Refused(String),
}

/// Below it, replicated compare-and-set loses updates that were acknowledged: 400 left 153 (2.9.10).
const OLDEST: ServerVersion = ServerVersion(2, 10, 0);
/// Current and previous minor version, when this was written.
const SUPPORTED: ServerVersion = ServerVersion(2, 14, 0);

impl ServerVersion {
    /// Reads `2.15.2`, `v2.10.0-beta.1` or the like.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim_start_matches('v').split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let version = Self(numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The verdict on what a server calls its version.
pub fn verdict(text: &str) -> VersionVerdict {
    match ServerVersion::parse(text) {
        None => VersionVerdict::Refused(format!("the server's version is not readable: {text:?}")),
        Some(version) if version < OLDEST => VersionVerdict::Refused(format!(
            "the server is nats-server {version}, and below {OLDEST} it loses acknowledged statistics"
        )),
        Some(version) if version < SUPPORTED => VersionVerdict::Old(format!(
            "the server is nats-server {version}; versions below {SUPPORTED} get no more fixes"
        )),
        Some(_) => VersionVerdict::Supported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused_and_ageing_ones_named() {
        for text in ["2.9.10", "2.9.25", "1.4.1", "0.0.0", "", "x", "2.10", "2.15.2.1", "2.-1.0"] {
            assert!(matches!(verdict(text), VersionVerdict::Refused(_)), "{text}");
        }
        for text in ["2.10.0", "2.10.27", "2.13.99", "2.10.0-RC.3"] {
            assert!(matches!(verdict(text), VersionVerdict::Old(_)), "{text}");
        }
        for text in ["2.14.0", "2.15.2", "v2.15.2", "3.0.0", "2.100.0-dev+abc"] {
            assert_eq!(verdict(text), VersionVerdict::Supported, "{text}");
        }
    }
}
