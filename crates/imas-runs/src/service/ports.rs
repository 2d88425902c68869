// SPDX-License-Identifier: Apache-2.0
//! Ports for servers that cannot choose one.

use std::io::Result;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use rand::RngExt;

/// File with the first and the last ephemeral port: the kernel gives these to connections, and to sockets that name no
/// port.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Least first ephemeral port below which ports are chosen.
const ROOM: u16 = 4096;
/// First ephemeral port of a kernel that nobody has configured.
const USUAL: u16 = 32768;

/// A port of this machine's own address that is not in use, for TCP and for UDP.
///
/// The server binds it later. So it is no ephemeral port, which a connection could get meanwhile, unless these begin
/// below 4096.
///
/// # Errors
/// I/O errors: the sockets' own, or that no port is free.
pub fn free_port() -> Result<u16> {
    Ok(held_port(first_ephemeral())?.0)
}

/// Different ports, each as [`free_port`] finds one.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let first = first_ephemeral();
    let held = (0..count).map(|_| held_port(first)).collect::<Result<Vec<_>>>()?;
    Ok(held.iter().map(|(port, ..)| *port).collect())
}

/// A port that nobody else gets as long as its sockets live.
fn held_port(first_ephemeral: u16) -> Result<(u16, TcpListener, UdpSocket)> {
    for _ in 0..1000 {
        let port = rand::rng().random_range(first_ephemeral / 2..first_ephemeral);
        if let Some(held) = held(if first_ephemeral < ROOM { 0 } else { port })? {
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

/// Tables of the connections of this machine.
const CONNECTIONS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// State of a connection whose end this side has closed first: the kernel keeps its port for a minute.
const TIME_WAIT: &str = "06";

/// Whether connections that have ended still keep the port: a server without `SO_REUSEADDR` cannot listen on it.
pub(crate) fn is_kept_by_ended_connections(port: u16) -> bool {
    let tables = CONNECTIONS.iter().filter_map(|table| std::fs::read_to_string(table).ok());
    tables.into_iter().any(|table| table.lines().any(|line| is_ended_at(line, port)))
}

/// number, own address and port, the other one's, state, ... (proc_net_tcp(5)).
fn is_ended_at(line: &str, port: u16) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, own, _, TIME_WAIT] = words[..] else { return false };
    own.rsplit_once(':').is_some_and(|(_, own)| u16::from_str_radix(own, 16) == Ok(port))
}

fn first_ephemeral() -> u16 {
    let range = std::fs::read_to_string(RANGE).unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(USUAL).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_not_ephemeral_where_there_is_room() {
        let first = first_ephemeral();
        assert!(first < ROOM || free_ports(8).unwrap().iter().all(|port| (first / 2..first).contains(port)));
        assert!(held_port(1).is_ok(), "no room below: an ephemeral one");
        let taken = held_port(first).unwrap();
        assert!(held(taken.0).unwrap().is_none());
    }

    #[test]
    fn an_ended_connection_keeps_its_port() {
        let line =
            |own: &str, state: &str| format!("   3: {own} 0100007F:C350 {state} 00000000:00000000 03:0000");
        assert!(is_ended_at(&line("0100007F:1F90", "06"), 8080));
        assert!(is_ended_at(&line("00000000000000000000000001000000:1F90", "06"), 8080));
        assert!(!is_ended_at(&line("0100007F:1F90", "0A"), 8080), "a server that listens");
        assert!(!is_ended_at(&line("0100007F:1F91", "06"), 8080) && !is_ended_at("", 8080));
    }
}
