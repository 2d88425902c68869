// SPDX-License-Identifier: Apache-2.0
//! A netlink socket through which the kernel reports what happens on the machine.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with,
};

/// Room for what comes faster than it is read: some ten thousand process events, or five thousand records.
const BUFFER_BYTES: usize = 8 << 20;
/// Largest message: an event has 76 bytes, two records of a thread have 1,200, and later kernels may have longer ones.
const MESSAGE_BYTES: usize = 4096;

/// The socket.
#[derive(Debug)]
pub(crate) struct KernelSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl KernelSocket {
    /// Opens a socket of that protocol, which is a member of these groups.
    pub(crate) fn open(protocol: u32, groups: u32) -> std::io::Result<Self> {
        // Elsewhere the kernel refuses without an answer; but we would receive its answers to others, and ids
        // that mean nothing here.
        if !imas_linux::process::is_in_first_pid_namespace() {
            return Err(std::io::Error::other("not in the first pid namespace"));
        }
        let protocol = std::num::NonZeroU32::new(protocol).map(Protocol::from_raw);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        // Beyond the machine's limit where that is allowed.
        let forced = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        if forced.is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        Ok(Self { socket, buffer: vec![0; MESSAGE_BYTES] })
    }

    /// Sends a message to the kernel.
    pub(crate) fn send(&self, message: &[u8]) -> std::io::Result<()> {
        send(&self.socket, message, SendFlags::empty())?;
        Ok(())
    }

    /// The next message of the kernel; empty for one of another process, which may write to our socket.
    pub(crate) fn receive(&mut self) -> rustix::io::Result<&[u8]> {
        let (received, _, from) = recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
        // Only the kernel has number 0.
        let kernel = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        let bytes = if kernel.is_some_and(|from| from.pid() == 0) { received } else { 0 };
        Ok(&self.buffer[..bytes])
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
