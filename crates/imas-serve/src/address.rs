// SPDX-License-Identifier: Apache-2.0
//! Where to listen.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address of the network, or a socket of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// Address and port.
    Tcp(SocketAddr),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("a path must follow unix:".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.replacen("localhost:", "127.0.0.1:", 1).parse().map(Self::Tcp).map_err(|_| {
                "neither ADDRESS:PORT, such as 127.0.0.1:4627 or [::1]:4627, nor unix:PATH".to_owned()
            }),
        }
    }
}

impl Address {
    /// Whether only processes of this machine can reach it.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_who_can_reach_it() {
        let is_of_this_machine =
            |text: &str| text.parse::<Address>().map(|address| address.is_of_this_machine());
        for near in ["127.0.0.1:1", "localhost:1", "[::1]:80", "127.9.9.9:1", "unix:/run/x"] {
            assert_eq!(is_of_this_machine(near), Ok(true), "{near}");
        }
        for far in ["0.0.0.0:1", "[::]:1", "192.168.1.1:1"] {
            assert_eq!(is_of_this_machine(far), Ok(false), "{far}");
        }
        for wrong in ["unix:", "4627", "example.org:1", ""] {
            assert!(is_of_this_machine(wrong).is_err(), "{wrong}");
        }
    }
}
