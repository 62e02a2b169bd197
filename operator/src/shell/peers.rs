//! Connections of a server, and the choice of those to close: no peer can exclude the others.
//!
//! [`Peers`] decides and is pure; [`Door`] applies it to a listener.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Most connections at once.
const MOST_CONNECTIONS: usize = 4096;
/// Connections of one address at once: the gateways of a node on the host network have one.
const PER_PEER: usize = 64;
/// Longest time between a connection's beginning and its first request, TLS included, and between
/// two requests.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(30);

/// Limits of a server.
#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    per_peer: usize,
}

/// A connection of a server.
#[derive(Debug)]
struct Connection<T> {
    peer: IpAddr,
    /// Requests that are being answered.
    requests: usize,
    /// Time since which no request is being answered.
    idle_since: T,
}

/// Connections of a server, by number.
#[derive(Debug)]
struct Peers<T> {
    limits: Limits,
    next: u64,
    connections: BTreeMap<u64, Connection<T>>,
}

/// The decision about a new connection.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    /// The connection is served, under this number; another one may have to be closed for it.
    Served { number: u64, instead_of: Option<u64> },
    /// The connection is closed.
    Refused,
}

impl<T: Copy + Ord> Peers<T> {
    const fn new(limits: Limits) -> Self {
        Self { limits, next: 0, connections: BTreeMap::new() }
    }

    fn admit(&mut self, peer: IpAddr, now: T) -> Admission {
        let of_peer = self.connections.values().filter(|one| one.peer == peer).count();
        let instead_of = if of_peer >= self.limits.per_peer {
            self.longest_idle(|one| one.peer == peer).map(Some)
        } else if self.connections.len() >= self.limits.connections {
            self.longest_idle(|_| true).map(Some)
        } else {
            Some(None)
        };
        let Some(instead_of) = instead_of else { return Admission::Refused };
        if let Some(number) = instead_of {
            self.connections.remove(&number);
        }
        let number = self.next;
        self.next += 1;
        self.connections.insert(number, Connection { peer, requests: 0, idle_since: now });
        Admission::Served { number, instead_of }
    }

    fn longest_idle(&self, of: impl Fn(&Connection<T>) -> bool) -> Option<u64> {
        let idle = self.connections.iter().filter(|(_, one)| one.requests == 0 && of(one));
        idle.min_by_key(|(_, one)| one.idle_since).map(|(number, _)| *number)
    }

    fn request_begins(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.requests += 1;
        }
    }

    fn request_ends(&mut self, number: u64, now: T) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.requests = connection.requests.saturating_sub(1);
            connection.idle_since = now;
        }
    }

    /// The time since which a connection is idle, if it is.
    fn idle_since(&self, number: u64) -> Option<T> {
        let connection = self.connections.get(&number)?;
        (connection.requests == 0).then_some(connection.idle_since)
    }

    fn ended(&mut self, number: u64) {
        self.connections.remove(&number);
    }
}

#[derive(Debug)]
struct Shared {
    peers: Mutex<Peers<Instant>>,
    evictions: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entrance of a server.
#[derive(Debug)]
pub(super) struct Door {
    shared: Arc<Shared>,
}

impl Door {
    pub(super) fn new() -> Self {
        let limits = Limits { connections: MOST_CONNECTIONS, per_peer: PER_PEER };
        let peers = Mutex::new(Peers::new(limits));
        Self { shared: Arc::new(Shared { peers, evictions: Mutex::default() }) }
    }

    /// The next connection that is admitted.
    pub(super) async fn accept(&self, listener: &TcpListener) -> (TcpStream, Visit) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No free descriptors: ended connections will free some.
                    tracing::warn!(event = "accept_failed", error = %error);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let admission =
                locked(&self.shared.peers).admit(peer.ip().to_canonical(), Instant::now());
            let Admission::Served { number, instead_of } = admission else {
                tracing::debug!(event = "connection_refused", peer = %peer.ip());
                continue;
            };
            let evicted = Arc::new(Notify::new());
            {
                let mut evictions = locked(&self.shared.evictions);
                if let Some(other) = instead_of.and_then(|other| evictions.remove(&other)) {
                    other.notify_one();
                }
                evictions.insert(number, Arc::clone(&evicted));
            }
            return (stream, Visit { shared: Arc::clone(&self.shared), number, evicted });
        }
    }
}

/// An admitted connection; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    shared: Arc<Shared>,
    number: u64,
    evicted: Arc<Notify>,
}

impl Visit {
    /// A request that is being answered, until it is dropped.
    pub(super) fn request(&self) -> Answering {
        locked(&self.shared.peers).request_begins(self.number);
        Answering { shared: Arc::clone(&self.shared), number: self.number }
    }

    /// Returns when the connection has to be closed: it was idle for too long, or another one needs
    /// its place.
    pub(super) async fn over(&self) {
        let idle = async {
            loop {
                let since = locked(&self.shared.peers).idle_since(self.number);
                match since.map(|since| IDLE_TIME.saturating_sub(since.elapsed())) {
                    Some(Duration::ZERO) => return,
                    Some(left) => tokio::time::sleep(left).await,
                    None => tokio::time::sleep(IDLE_TIME).await,
                }
            }
        };
        tokio::select! {
            () = idle => {}
            () = self.evicted.notified() => {}
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        locked(&self.shared.peers).ended(self.number);
        locked(&self.shared.evictions).remove(&self.number);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Answering {
    fn drop(&mut self) {
        locked(&self.shared.peers).request_ends(self.number, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 66));
    const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn number(admission: &Admission) -> u64 {
        match admission {
            Admission::Served { number, .. } => *number,
            Admission::Refused => panic!("it was refused"),
        }
    }

    #[test]
    fn one_peer_takes_its_share_and_the_others_theirs() {
        let mut peers = Peers::new(Limits { connections: 10, per_peer: 3 });
        let gateway = number(&peers.admit(GATEWAY, 0));
        peers.request_begins(gateway);
        let first = number(&peers.admit(ATTACKER, 1));
        for now in 2..4 {
            peers.admit(ATTACKER, now);
        }
        // The peer's own idle connection is closed, however many it opens.
        let next = peers.admit(ATTACKER, 4);
        assert!(
            matches!(next, Admission::Served { instead_of: Some(gone), .. } if gone == first),
            "{next:?}"
        );
        for now in 5..1000 {
            peers.admit(ATTACKER, now);
        }
        assert_eq!(peers.connections.len(), 4);
        assert!(peers.connections.contains_key(&gateway));
        assert!(matches!(
            peers.admit(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1000),
            Admission::Served { instead_of: None, .. }
        ));
    }

    #[test]
    fn a_full_server_drops_the_longest_idle_but_no_served_client() {
        let mut peers = Peers::new(Limits { connections: 3, per_peer: 3 });
        let served = number(&peers.admit(GATEWAY, 0));
        peers.request_begins(served);
        let [early, late] = [1, 2].map(|now| number(&peers.admit(ATTACKER, now)));
        // It was answered in between: the other one has been idle for longer.
        peers.request_begins(early);
        peers.request_ends(early, 3);
        let next = peers.admit(GATEWAY, 4);
        assert!(
            matches!(next, Admission::Served { instead_of: Some(gone), .. } if gone == late),
            "{next:?}"
        );
        peers.request_begins(early);
        peers.request_begins(number(&next));
        assert_eq!(peers.admit(GATEWAY, 5), Admission::Refused);
        peers.ended(early);
        assert!(matches!(peers.admit(GATEWAY, 6), Admission::Served { instead_of: None, .. }));
    }

    #[tokio::test]
    async fn a_connection_whose_place_is_needed_is_told_to_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (door, address) = (Door::new(), listener.local_addr().unwrap());
        let mut open = Vec::new();
        for _ in 0..=PER_PEER {
            let (client, (stream, visit)) =
                tokio::join!(TcpStream::connect(address), door.accept(&listener));
            // The first one is being answered, and stays.
            let answering = open.is_empty().then(|| visit.request());
            open.push((client, stream, visit, answering));
        }
        open[1].2.over().await;
        let left = locked(&door.shared.peers).connections.keys().copied().collect::<Vec<_>>();
        assert!(left.contains(&0) && !left.contains(&1) && left.len() == PER_PEER, "{left:?}");
    }
}
