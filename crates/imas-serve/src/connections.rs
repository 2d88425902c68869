// SPDX-License-Identifier: Apache-2.0
//! Connections: how many, and for how long a client may be silent or not read.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::extract::Request;
use axum::middleware::map_request;
use axum::{Extension, Router};
use governor::{Quota, RateLimiter};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use imas_cli::connection_places::{
    ConnectionPeer, ConnectionPlace, ConnectionPlaces, MostConnections, peer_of_address,
};
use imas_cli::message::Hinted;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{
    AF_INET, AF_INET6, IPPROTO_TCP, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT1,
};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_io_timeout::TimeoutStream;

/// Most connections. Places that others cannot have are kept for our own user and root, who need no token.
const MOST: MostConnections = MostConnections { all: 128, of_others: 80, of_one: 48 };
/// Connections that are taken in a second, of whomever. More wait in the kernel.
const ACCEPTS: NonZeroU32 = NonZeroU32::new(2000).unwrap();
/// Connections taken at once.
const ACCEPTS_AT_ONCE: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// Time to wait while more connections are wanted than may be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(2);
/// A request must have come within this time, and the next one of the same connection.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// A client must take a part of the answer within this time.
const WRITE_TIME: Duration = Duration::from_secs(20);
/// No connection lives longer; a page that listens for changes connects again.
const LIFE: Duration = Duration::from_secs(3600);
/// Bytes of a request that are held.
const BUFFER: usize = 16 * 1024;
/// Header lines of a request.
const HEADERS: usize = 64;

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A socket of the network.
    Tcp(TcpListener),
    /// A UNIX socket of this machine. Its file is removed at the end.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen.
    pub(crate) async fn open(address: &Address) -> anyhow::Result<Self> {
        let opened = match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp).map_err(Into::into),
            Address::Unix(path) => unix(path),
        };
        opened.map_err(|error| {
            Hinted::error(
                format!("cannot listen: {error:#}"),
                "name another place: --listen 127.0.0.1:PORT or unix:PATH",
            )
        })
    }

    /// Address of the socket, with the port that the system chose; None for a UNIX socket.
    pub(crate) fn address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The place where the socket listens, as a person opens it.
    pub(crate) fn place(&self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => format!("http://{}/", listener.local_addr()?),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        })
    }

    async fn accept(&self) -> std::io::Result<(Stream, Ends)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, remote) = listener.accept().await?;
                let ends = Ends::Tcp { local: stream.local_addr()?, remote };
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), ends))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::User(stream.peer_cred()?.uid());
                Ok((Box::new(stream), Ends::Unix(peer)))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path); // the next start does it otherwise
        }
    }
}

/// A socket that nobody listens at any more is replaced. Everybody may connect; the user of the connection
/// decides what is answered.
fn unix(path: &Path) -> anyhow::Result<Listener> {
    if let Ok(about) = std::fs::symlink_metadata(path) {
        if !about.file_type().is_socket() {
            bail!("{} is there and no socket", path.display());
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => bail!("another process listens at {}", path.display()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            // It is of another kind, or not for us to connect to; somebody may use it.
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(Listener::Unix(listener, path.to_owned()))
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
type Stream = Box<dyn Duplex>;

/// Answers connections until `end`.
///
/// # Errors
/// When the thread that asks for owners of sockets cannot be started.
pub(crate) async fn serve(
    listener: Listener,
    router: Router,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (places, peers) = (ConnectionPlaces::new(MOST), PeerLookup::start()?);
    let pace = RateLimiter::direct(Quota::per_second(ACCEPTS).allow_burst(ACCEPTS_AT_ONCE));
    let mut end = pin!(end);
    loop {
        let next = async {
            while pace.check().is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            let (stream, ends) = listener.accept().await?;
            Ok::<_, std::io::Error>((stream, peers.ask(ends).await))
        };
        let accepted = tokio::select! {
            () = &mut end => return Ok(()),
            accepted = next => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (router, places, arrival) = (router.clone(), Arc::clone(&places), places.arrival());
                tokio::spawn(async move {
                    let peer = peer.await;
                    let leaves = Arc::new(Notify::new());
                    let left = Arc::clone(&leaves);
                    // Without a place it is closed at once.
                    if let Some(place) = places.place(arrival, peer, move || left.notify_one()) {
                        tokio::select! {
                            () = connection(stream, peer, router, &place) => {}
                            () = leaves.notified() => {}
                        }
                    }
                });
            }
            // Out of file descriptors, or the client is gone.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(stream: Stream, peer: Peer, router: Router, place: &ConnectionPlace<Peer>) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME));
    let stream: Pin<Box<TimeoutStream<Stream>>> = Box::pin(stream);
    let speaks = place.speaker();
    let noted = map_request(move |request: Request| {
        speaks();
        std::future::ready(request)
    });
    let service = TowerToHyperService::new(router.layer(Extension(peer)).layer(noted));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(LIFE, served).await; // what the client did wrong is its own business
}

// Where to listen.

/// An address of the network, or a socket of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
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
    pub(super) fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

// Who is at the other end of a connection.

/// The process, or the machine, that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Peer {
    /// A process of this user on this machine.
    User(u32),
    /// Another machine, or a process of this one whose user cannot be found out.
    Unknown(IpAddr),
}

impl Peer {
    /// The user of a connection from `remote` to `local`. For a loopback connection the kernel names
    /// the user of the other end.
    fn of_connection(local: SocketAddr, remote: SocketAddr) -> Self {
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

// Finds out who is at the other end of connections, in a thread of its own: nobody who is answered waits for
// it.

/// Connections whose peers are asked for; further ones wait in the kernel.
const AT_ONCE: usize = 64;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// A connection of the network: its addresses.
    Tcp { local: SocketAddr, remote: SocketAddr },
    /// A connection of a UNIX socket: the kernel has named the peer.
    Unix(Peer),
}

type Question = (SocketAddr, SocketAddr, oneshot::Sender<Peer>);

/// The thread.
#[derive(Debug)]
pub(super) struct PeerLookup(mpsc::Sender<Question>);

impl PeerLookup {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start() -> anyhow::Result<Self> {
        let (ask, mut asked) = mpsc::channel::<Question>(AT_ONCE);
        std::thread::Builder::new().name("peers".to_owned()).spawn(move || {
            while let Some((local, remote, answer)) = asked.blocking_recv() {
                let _ = answer.send(Peer::of_connection(local, remote)); // nobody may wait any more
            }
        })?;
        Ok(Self(ask))
    }

    /// Asks for the peer; returns as soon as the question has a place, with what gives the answer.
    async fn ask(&self, ends: Ends) -> impl Future<Output = Peer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        if let Ends::Tcp { local, remote } = ends {
            let _ = self.0.send((local, remote, answer)).await; // a thread that is gone gives no answer
        }
        async move {
            match ends {
                Ends::Unix(peer) => peer,
                Ends::Tcp { remote, .. } => {
                    answered.await.unwrap_or_else(|_| Peer::Unknown(peer_of_address(remote.ip())))
                }
            }
        }
    }
}

// Owner of the other end of a loopback connection. The kernel looks up this one socket (`sock_diag`,
// as `ss` does); to read its table of all sockets takes as long as other users make the table.

/// The kernel answers within the call that asks; this is for one that does not.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer: a header, the socket and a few attributes.
const ANSWER: usize = 4096;

/// The user of the socket at `remote` that is connected with `local`. Both are plain: no IPv4 address is
/// written as IPv6. None if there is no such socket.
fn uid_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_that_somebody_may_use_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(unix(&path).is_err() && path.exists());
    }

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
