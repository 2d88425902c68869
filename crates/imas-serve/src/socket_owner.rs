// SPDX-License-Identifier: Apache-2.0
//! Owner of the other end of a loopback connection. The kernel looks up this one socket (`sock_diag`,
//! as `ss` does); to read its table of all sockets takes as long as other users make the table.

use std::net::SocketAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::constants::{TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT1};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The kernel answers within the call that asks; this is for one that does not.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer: a header, the socket and a few attributes.
const ANSWER: usize = 4096;

/// The user of the socket at `remote` that is connected with `local`. Both are plain: no IPv4 address is
/// written as IPv6. None if there is no such socket.
pub(crate) fn uid_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let kind = (AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, Some(netlink::SOCK_DIAG)).ok()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).ok()?;
    rustix::net::send(&socket, &question(local, remote), SendFlags::empty()).ok()?;
    let mut answer = [0; ANSWER];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).ok()?;
    read(answer.get(..length)?, local, remote)
}

fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let request = InetRequest {
        family: if remote.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: remote.port(),
            destination_port: local.port(),
            source_address: remote.ip(),
            destination_address: local.ip(),
            interface_id: 0,
            cookie: [0xFF; 8], // any
        },
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Without a connected socket the kernel may answer with one that listens. A socket that was closed belongs to
/// nobody any more and shows as root's.
fn read(answer: &[u8], local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let message = NetlinkMessage::<SockDiagMessage>::deserialize(answer).ok()?;
    let NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) = message.payload else {
        return None;
    };
    let (found, id) = (&response.header, &response.header.socket_id);
    let is_open = matches!(found.state, TCP_ESTABLISHED | TCP_CLOSE_WAIT | TCP_FIN_WAIT1) && found.inode != 0;
    let ends = [(id.source_address, id.source_port), (id.destination_address, id.destination_port)];
    let ends = ends.map(|(address, port)| SocketAddr::new(address.to_canonical(), port));
    (is_open && ends == [remote, local]).then_some(found.uid)
}
