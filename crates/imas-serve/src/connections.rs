// SPDX-License-Identifier: Apache-2.0
//! Connections: how many, and for how long a client may be silent or not read.

use std::future::Future;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::extract::Request;
use axum::middleware::map_request;
use axum::{Extension, Router};
use governor::{Quota, RateLimiter};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use imas_cli::connection_places::{ConnectionPlace, ConnectionPlaces, MostConnections};
use imas_cli::message::Hinted;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio_io_timeout::TimeoutStream;

use crate::address::Address;
use crate::peer::Peer;
use crate::peer_lookup::{Ends, PeerLookup};

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
    pub(crate) async fn open(address: &Address) -> Result<Self> {
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
    pub(crate) fn place(&self) -> Result<String> {
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
fn unix(path: &Path) -> Result<Listener> {
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
pub(crate) async fn serve(listener: Listener, router: Router, end: impl Future<Output = ()>) -> Result<()> {
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
                let (router, places) = (router.clone(), Arc::clone(&places));
                tokio::spawn(async move {
                    let peer = peer.await;
                    let leaves = Arc::new(Notify::new());
                    let left = Arc::clone(&leaves);
                    // Without a place it is closed at once.
                    if let Some(place) = places.place(peer, move || left.notify_one()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_somebody_may_use_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(unix(&path).is_err() && path.exists());
    }
}
