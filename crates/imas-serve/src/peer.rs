// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use procfs::net::{TcpNetEntry, TcpState};

/// The process, or the machine, that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process of this user on this machine.
    User(u32),
    /// Another machine, or a process of this one whose user cannot be found out.
    Unknown(IpAddr),
}

impl Peer {
    /// The user of a connection from `remote` to `local`. For a loopback connection the kernel's table of
    /// sockets names the user of the other end.
    pub(crate) fn of_connection(local: SocketAddr, remote: SocketAddr) -> Self {
        let (local, remote) = (plain(local), plain(remote));
        let uid = remote.ip().is_loopback().then(|| uid_of(local, remote)).flatten();
        uid.map_or_else(|| Self::Unknown(remote.ip()), Self::User)
    }

    /// Whether it may see everything without a token: our own user, and root.
    pub(crate) fn is_trusted(self) -> bool {
        matches!(self, Self::User(uid) if uid == 0 || uid == nix::unistd::geteuid().as_raw())
    }
}

fn uid_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    // A client of IPv6 may reach a listener of IPv4: its socket is then in the other table.
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let mut entries = tables.into_iter().flatten().flatten();
    entries.find(|entry| is_other_end(entry, local, remote)).map(|entry| entry.uid)
}

/// Whether this is the client's socket. One that was closed belongs to nobody any more and shows as root's.
fn is_other_end(entry: &TcpNetEntry, local: SocketAddr, remote: SocketAddr) -> bool {
    let is_open = matches!(entry.state, TcpState::Established | TcpState::CloseWait | TcpState::FinWait1);
    is_open
        && entry.inode != 0
        && plain(entry.local_address) == remote
        && plain(entry.remote_address) == local
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
    fn only_ourselves_and_root_are_trusted() {
        let own = nix::unistd::geteuid().as_raw();
        assert!(Peer::User(own).is_trusted() && Peer::User(0).is_trusted());
        assert!(!Peer::User(own + 7).is_trusted());
        assert!(!Peer::Unknown("127.0.0.1".parse().unwrap()).is_trusted());
    }
}
