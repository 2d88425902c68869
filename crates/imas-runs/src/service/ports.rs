// SPDX-License-Identifier: Apache-2.0
//! Ports for servers that cannot choose one.

use std::io::Result;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use rand::RngExt;

/// First of the ports that the kernel gives to whoever asks for none, connections too; its default is 32768.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// There is room below a first port that is no lower.
const ROOM: u16 = 4096;

/// A port of this machine's own address that is not in use, for TCP and for UDP.
///
/// The server takes it later. So it is none that the kernel could give to somebody else meanwhile, as long as its range
/// leaves room for that.
///
/// # Errors
/// Where no socket can be made.
pub fn free_port() -> Result<u16> {
    Ok(held_port(first_of_kernel())?.0)
}

/// Different ports, each as [`free_port`] finds one.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let first = first_of_kernel();
    let held = (0..count).map(|_| held_port(first)).collect::<Result<Vec<_>>>()?;
    Ok(held.iter().map(|(port, ..)| *port).collect())
}

/// A port that nobody else gets as long as its sockets live.
fn held_port(first_of_kernel: u16) -> Result<(u16, TcpListener, UdpSocket)> {
    for _ in 0..1000 {
        let port = rand::rng().random_range(first_of_kernel / 2..first_of_kernel);
        if let Some(held) = held(if first_of_kernel < ROOM { 0 } else { port })? {
            return Ok(held);
        }
    }
    Err(std::io::Error::other("no port of this machine is free"))
}

/// The port with its sockets; 0 is one that the kernel chooses. None if it is in use.
fn held(port: u16) -> Result<Option<(u16, TcpListener, UdpSocket)>> {
    let Ok(tcp) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) else { return Ok(None) };
    let port = tcp.local_addr()?.port();
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|udp| (port, tcp, udp)))
}

fn first_of_kernel() -> u16 {
    let range = std::fs::read_to_string(RANGE).unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32768).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_none_that_the_kernel_gives_where_there_is_room() {
        let first = first_of_kernel();
        assert!(first < ROOM || free_ports(8).unwrap().iter().all(|port| (first / 2..first).contains(port)));
        assert!(held_port(1).is_ok(), "there is no room: one of the kernel's");
        let taken = held_port(first).unwrap();
        assert!(held(taken.0).unwrap().is_none());
    }
}
