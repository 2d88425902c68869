// SPDX-License-Identifier: Apache-2.0
//! Places for the connections of a server, shared among those who connect: each has some, and who says nothing gives
//! way to who comes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most connections at a time.
#[derive(Debug, Clone, Copy)]
pub struct MostConnections {
    /// Most of all peers together.
    pub all: usize,
    /// Most of all peers together that are not trusted: the others are kept for those that are.
    pub of_others: usize,
    /// Most of one peer.
    pub of_one: usize,
}

/// Who is at the other end of a connection.
pub trait ConnectionPeer: Copy + Ord {
    /// Whether places are kept for it.
    fn is_trusted(&self) -> bool;
}

/// An address ([`peer_of_address`]), which anybody may have.
impl ConnectionPeer for std::net::IpAddr {
    fn is_trusted(&self) -> bool {
        false
    }
}

/// Returns the peer that an address stands for: hosts have a network of 64 bits of IPv6 each, or one address of IPv4.
#[must_use]
pub fn peer_of_address(address: std::net::IpAddr) -> std::net::IpAddr {
    match address.to_canonical() {
        std::net::IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ std::net::IpAddr::V4(_) => address,
    }
}

/// The connections of a server.
#[derive(Debug)]
pub struct ConnectionPlaces<P> {
    most: MostConnections,
    held: Mutex<Held<P>>,
}

#[derive(Debug)]
struct Held<P> {
    next: u64,
    /// The connections by their age, the oldest first.
    connections: BTreeMap<u64, HeldConnection<P>>,
}

struct HeldConnection<P> {
    peer: P,
    /// Nothing was asked yet.
    is_silent: Arc<AtomicBool>,
    /// Ends the connection.
    leave: Box<dyn Fn() + Send>,
}

impl<P: fmt::Debug> fmt::Debug for HeldConnection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldConnection")
            .field("peer", &self.peer)
            .field("is_silent", &self.is_silent)
            .finish_non_exhaustive()
    }
}

/// Number of a connection in the order of arrival at its server.
#[derive(Debug)]
pub struct ConnectionArrival(u64);

/// The place of one connection, until this is dropped.
#[derive(Debug)]
pub struct ConnectionPlace<P> {
    places: Arc<ConnectionPlaces<P>>,
    number: u64,
    is_silent: Arc<AtomicBool>,
}

impl<P: ConnectionPeer> ConnectionPlaces<P> {
    /// Returns as many places for connections as `most` says.
    #[must_use]
    pub fn new(most: MostConnections) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::new(Held { next: 0, connections: BTreeMap::new() }) })
    }

    /// Returns the number of a connection that has just been accepted. Places may be asked for in another order, by the
    /// threads that find out the peers.
    #[must_use]
    pub fn arrival(&self) -> ConnectionArrival {
        let mut held = self.held();
        held.next += 1;
        ConnectionArrival(held.next)
    }

    /// Returns a place for one more connection of this peer. Where there is none, the oldest silent connection leaves: one of
    /// the peer itself if that has all it may have, else one of the peer that has most. None where that is the new one.
    /// `leave` ends the connection.
    pub fn place(
        self: &Arc<Self>,
        ConnectionArrival(number): ConnectionArrival,
        peer: P,
        leave: impl Fn() + Send + 'static,
    ) -> Option<ConnectionPlace<P>> {
        let mut held = self.held();
        let crowd = held.crowd(peer, &self.most);
        let is_silent = Arc::new(AtomicBool::new(true));
        let connection = HeldConnection { peer, is_silent: Arc::clone(&is_silent), leave: Box::new(leave) };
        held.connections.insert(number, connection);
        if let Some(crowd) = crowd {
            let oldest = held.oldest_silent(&crowd)?;
            let leaving = held.connections.remove(&oldest)?;
            if oldest == number {
                return None;
            }
            (leaving.leave)();
        }
        Some(ConnectionPlace { places: Arc::clone(self), number, is_silent })
    }

    fn held(&self) -> MutexGuard<'_, Held<P>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections that compete for places: one has to leave.
enum Crowd<P> {
    One(P),
    Others,
    All,
}

impl<P: ConnectionPeer> Held<P> {
    /// Who has taken all places that one more connection of the peer may have.
    fn crowd(&self, peer: P, most: &MostConnections) -> Option<Crowd<P>> {
        let count =
            |is_one: &dyn Fn(P) -> bool| self.connections.values().filter(|one| is_one(one.peer)).count();
        if count(&|one| one == peer) >= most.of_one {
            return Some(Crowd::One(peer));
        }
        if !peer.is_trusted() && count(&|one| !one.is_trusted()) >= most.of_others {
            return Some(Crowd::Others);
        }
        (self.connections.len() >= most.all).then_some(Crowd::All)
    }

    /// The oldest silent connection of the crowd's peer that has most of them.
    fn oldest_silent(&self, crowd: &Crowd<P>) -> Option<u64> {
        let is_in = |peer: P| match crowd {
            Crowd::One(one) => peer == *one,
            Crowd::Others => !peer.is_trusted(),
            Crowd::All => true,
        };
        let mut silent = BTreeMap::<P, Vec<u64>>::new();
        for (number, one) in &self.connections {
            if is_in(one.peer) && one.is_silent.load(Ordering::Relaxed) {
                silent.entry(one.peer).or_default().push(*number);
            }
        }
        let most = silent
            .into_values()
            .max_by_key(|numbers| (numbers.len(), std::cmp::Reverse(numbers.first().copied())));
        most?.first().copied()
    }
}

impl<P> ConnectionPlace<P> {
    /// Notes that something was asked: the connection does not leave for another one.
    pub fn speaks(&self) {
        self.speaker()();
    }

    /// Returns what notes the same, for who answers.
    pub fn speaker(&self) -> impl Fn() + Clone + Send + Sync + 'static {
        let is_silent = Arc::clone(&self.is_silent);
        move || is_silent.store(false, Ordering::Relaxed)
    }
}

impl<P> Drop for ConnectionPlace<P> {
    fn drop(&mut self) {
        self.places.held.lock().unwrap_or_else(PoisonError::into_inner).connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const MOST: MostConnections = MostConnections { all: 12, of_others: 8, of_one: 5 };

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Someone {
        Us,
        Other(u8),
    }

    impl ConnectionPeer for Someone {
        fn is_trusted(&self) -> bool {
            *self == Self::Us
        }
    }

    type Places = Arc<ConnectionPlaces<Someone>>;

    /// Opens `count` connections of one peer. Returns those that got a place, and the number of connections that had to
    /// leave.
    fn taken(
        places: &Places,
        peer: Someone,
        count: usize,
        left: &Arc<AtomicUsize>,
    ) -> Vec<ConnectionPlace<Someone>> {
        let leave = |left: &Arc<AtomicUsize>| {
            let left = Arc::clone(left);
            move || {
                left.fetch_add(1, Ordering::Relaxed);
            }
        };
        (0..count).filter_map(|_| places.place(places.arrival(), peer, leave(left))).collect()
    }

    fn speaking(places: &Places, peer: Someone, count: usize) -> Vec<ConnectionPlace<Someone>> {
        let taken = taken(places, peer, count, &Arc::default());
        taken.iter().for_each(ConnectionPlace::speaks);
        taken
    }

    #[test]
    fn a_peer_has_so_many_connections_and_others_keep_theirs() {
        let places = ConnectionPlaces::new(MOST);
        let mut own: Vec<_> = (0..9).flat_map(|_| speaking(&places, Someone::Other(7), 1)).collect();
        assert_eq!(own.len(), MOST.of_one);
        assert_eq!(speaking(&places, Someone::Other(8), 1).len(), 1);
        own.pop();
        assert_eq!(speaking(&places, Someone::Other(7), 1).len(), 1);
        drop(own);
        assert!(places.held().connections.is_empty());
    }

    #[test]
    fn others_together_leave_places_for_those_that_are_trusted() {
        let places = ConnectionPlaces::new(MOST);
        let others: Vec<_> = (1..9)
            .flat_map(|one| {
                (0..9).flat_map(|_| speaking(&places, Someone::Other(one), 1)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(others.len(), MOST.of_others);
        let own: Vec<_> = (0..9).flat_map(|_| speaking(&places, Someone::Us, 1)).collect();
        assert_eq!(own.len(), MOST.all - MOST.of_others);
    }

    #[test]
    fn the_oldest_silent_connection_leaves_for_one_that_comes() {
        let (places, left) = (ConnectionPlaces::new(MOST), Arc::new(AtomicUsize::new(0)));
        let of_a_few = speaking(&places, Someone::Other(1), 2);
        let silent = taken(&places, Someone::Other(2), MOST.of_one, &left);
        let oldest = silent[0].number;
        let one = taken(&places, Someone::Other(3), 1, &Arc::default());
        assert_eq!((one.len(), left.load(Ordering::Relaxed)), (1, 0), "there was a place");
        let more = taken(&places, Someone::Other(4), 1, &Arc::default());
        assert_eq!((more.len(), left.load(Ordering::Relaxed)), (1, 1), "one of those that have most left");
        assert!(!places.held().connections.contains_key(&oldest));
        // A peer that has all it may have: its own leaves.
        let again = taken(&places, Someone::Other(2), 2, &Arc::default());
        assert_eq!((again.len(), left.load(Ordering::Relaxed)), (2, 3));
        assert!(of_a_few.iter().all(|place| places.held().connections.contains_key(&place.number)));
    }

    #[test]
    fn the_order_of_arrival_decides_in_whatever_order_places_are_asked_for() {
        let (places, left) = (ConnectionPlaces::new(MOST), Arc::new(AtomicUsize::new(0)));
        let mut arrivals: Vec<_> = (0..MOST.of_one + 1).map(|_| places.arrival()).collect();
        let newest = arrivals.pop().unwrap();
        let newest = places.place(newest, Someone::Other(1), || panic!("the newest leaves")).unwrap();
        let leave = || {
            let left = Arc::clone(&left);
            move || {
                left.fetch_add(1, Ordering::Relaxed);
            }
        };
        let taken: Vec<_> = arrivals
            .into_iter()
            .rev()
            .filter_map(|arrival| places.place(arrival, Someone::Other(1), leave()))
            .collect();
        assert_eq!(
            (taken.len(), left.load(Ordering::Relaxed)),
            (MOST.of_one - 1, 0),
            "the oldest got no place"
        );
        assert!(places.held().connections.contains_key(&newest.number));
    }

    #[test]
    fn a_host_is_one_peer() {
        let of = |text: &str| peer_of_address(text.parse().unwrap());
        assert_eq!(of("fd00:1:2:3:4::5"), of("fd00:1:2:3:ffff::6"));
        assert_ne!(of("fd00:1:2:3::1"), of("fd00:1:2:4::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("10.0.0.7"), of("10.0.0.8"));
    }
}
