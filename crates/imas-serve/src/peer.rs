// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use imas_cli::connection_places::{ConnectionPeer, peer_of_address};

use crate::socket_owner::uid_of;

/// The process, or the machine, that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peer {
    /// A process of this user on this machine.
    User(u32),
    /// Another machine, or a process of this one whose user cannot be found out.
    Unknown(IpAddr),
}

impl Peer {
    /// The user of a connection from `remote` to `local`. For a loopback connection the kernel names
    /// the user of the other end.
    pub(crate) fn of_connection(local: SocketAddr, remote: SocketAddr) -> Self {
        let (local, remote) = (plain(local), plain(remote));
        let uid = remote.ip().is_loopback().then(|| uid_of(local, remote)).flatten();
        uid.map_or_else(|| Self::Unknown(peer_of_address(remote.ip())), Self::User)
    }
}

impl ConnectionPeer for Peer {
    /// Whether the peer may see everything without a token: our own user, and root.
    fn is_trusted(&self) -> bool {
        matches!(self, Self::User(uid) if *uid == 0 || *uid == nix::unistd::geteuid().as_raw())
    }
}

/// IPv4 addresses that are written as IPv6, as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_other_end_of_a_loopback_connection_is_a_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, remote) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(Peer::of_connection(local, remote), Peer::User(own));
        drop(client);
        drop(server);
        assert_eq!(Peer::of_connection(local, remote), Peer::Unknown(remote.ip()), "it is closed");
    }

    #[test]
    fn a_client_of_a_listener_of_ipv6_is_found_and_a_socket_that_listens_is_nobodys() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return imas_testing::skipped("there is no IPv6");
        };
        let address = ("127.0.0.1", listener.local_addr().unwrap().port());
        let _client = TcpStream::connect(address).unwrap();
        let (server, remote) = listener.accept().unwrap();
        let own = Peer::User(nix::unistd::geteuid().as_raw());
        assert_eq!(Peer::of_connection(server.local_addr().unwrap(), remote), own);
        let unconnected = SocketAddr::new(remote.ip(), listener.local_addr().unwrap().port());
        let nobody = Peer::of_connection(server.local_addr().unwrap(), unconnected);
        assert_eq!(nobody, Peer::Unknown(remote.ip().to_canonical()), "a socket that listens");
    }

    #[test]
    fn only_ourselves_and_root_are_trusted() {
        let own = nix::unistd::geteuid().as_raw();
        assert!(Peer::User(own).is_trusted() && Peer::User(0).is_trusted());
        assert!(!Peer::User(own + 7).is_trusted());
        assert!(!Peer::Unknown("127.0.0.1".parse().unwrap()).is_trusted());
    }
}
