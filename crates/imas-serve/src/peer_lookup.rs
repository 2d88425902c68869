// SPDX-License-Identifier: Apache-2.0
//! Finds out who is at the other end of connections, in a thread of its own: nobody who is answered waits for
//! it.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::sync::{mpsc, oneshot};

use imas_cli::connection_places::peer_of_address;

use crate::peer::Peer;

/// Connections whose peers are asked for; further ones wait in the kernel.
const AT_ONCE: usize = 64;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    /// A connection of the network: its addresses.
    Tcp { local: SocketAddr, remote: SocketAddr },
    /// A connection of a UNIX socket: the kernel has named the peer.
    Unix(Peer),
}

type Question = (SocketAddr, SocketAddr, oneshot::Sender<Peer>);

/// The thread.
#[derive(Debug)]
pub(crate) struct PeerLookup(mpsc::Sender<Question>);

impl PeerLookup {
    /// Starts the thread, which ends when this is dropped.
    pub(crate) fn start() -> Result<Self> {
        let (ask, mut asked) = mpsc::channel::<Question>(AT_ONCE);
        std::thread::Builder::new().name("peers".to_owned()).spawn(move || {
            while let Some((local, remote, answer)) = asked.blocking_recv() {
                let _ = answer.send(Peer::of_connection(local, remote)); // nobody may wait any more
            }
        })?;
        Ok(Self(ask))
    }

    /// Asks for the peer; returns as soon as the question has a place, with what gives the answer.
    pub(crate) async fn ask(&self, ends: Ends) -> impl Future<Output = Peer> + Send + use<> {
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
