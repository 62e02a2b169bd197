//! One allocation: a program's relayed address, its permissions and its channels.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_client::Timestamp;
use turn_types::stun::message::{IntegrityKey, TransactionId};

/// Lifetime of an allocation whose program asks for no longer one (RFC 8656, section 3.2).
pub(super) const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);
/// Longest lifetime of an allocation between two requests.
pub(super) const LONGEST_LIFETIME: Duration = Duration::from_secs(3600);
/// Lifetime of a permission (RFC 8656, section 9).
const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);
/// Lifetime of a channel (RFC 8656, section 12).
const CHANNEL_LIFETIME: Duration = Duration::from_secs(600);
/// Most permissions of an allocation, and most channels.
pub(super) const MOST_PEERS: usize = 128;

/// The program's request that has begun an allocation.
pub(crate) struct Opening {
    /// The number of the allocation; never used again.
    pub(crate) number: usize,
    pub(crate) program: SocketAddr,
    /// True for a relayed address of IPv6.
    pub(crate) is_ipv6: bool,
    pub(super) user: String,
    pub(super) key: IntegrityKey,
    pub(super) transaction: TransactionId,
    pub(super) lifetime: Duration,
}

pub(super) struct Allocation {
    pub(super) opening: Opening,
    pub(super) relayed: SocketAddr,
    pub(super) until: Timestamp,
    permissions: HashMap<IpAddr, Timestamp>,
    channels: HashMap<u16, (SocketAddr, Timestamp)>,
    by_peer: HashMap<SocketAddr, u16>,
}

/// A fault of a request about peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerFault {
    /// The allocation has as many as it may have.
    TooMany,
    /// The channel belongs to another peer, or the peer has another channel.
    Taken,
}

impl Allocation {
    pub(super) fn new(opening: Opening, relayed: SocketAddr, now: Timestamp) -> Self {
        let until = now + opening.lifetime;
        Self {
            opening,
            relayed,
            until,
            permissions: HashMap::new(),
            channels: HashMap::new(),
            by_peer: HashMap::new(),
        }
    }

    /// True if datagrams may go to this address, and come from it.
    pub(super) fn permits(&self, peer: IpAddr, now: Timestamp) -> bool {
        self.permissions.get(&peer).is_some_and(|until| now < *until)
    }

    /// The peer of a channel, if datagrams may go there.
    pub(super) fn peer(&self, channel: u16, now: Timestamp) -> Option<SocketAddr> {
        let (peer, until) = self.channels.get(&channel)?;
        (now < *until && self.permits(peer.ip(), now)).then_some(*peer)
    }

    /// The channel of a peer.
    pub(super) fn channel(&self, peer: SocketAddr) -> Option<u16> {
        self.by_peer.get(&peer).copied()
    }

    /// Permits these addresses, or none of them.
    pub(super) fn permit(&mut self, peers: &[IpAddr], now: Timestamp) -> Result<(), PeerFault> {
        self.expire(now);
        let fresh = peers.iter().filter(|peer| !self.permissions.contains_key(*peer)).count();
        if self.permissions.len() + fresh > MOST_PEERS {
            return Err(PeerFault::TooMany);
        }
        self.permissions.extend(peers.iter().map(|peer| (*peer, now + PERMISSION_LIFETIME)));
        Ok(())
    }

    /// Binds a channel to a peer, or prolongs the binding, and permits the peer's address.
    pub(super) fn bind(
        &mut self,
        channel: u16,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(), PeerFault> {
        self.expire(now);
        let bound = self.channels.get(&channel).map(|(peer, _)| *peer);
        if bound.is_some_and(|bound| bound != peer)
            || self.channel(peer).is_some_and(|own| own != channel)
        {
            return Err(PeerFault::Taken);
        }
        if bound.is_none() && self.channels.len() >= MOST_PEERS {
            return Err(PeerFault::TooMany);
        }
        self.permit(&[peer.ip()], now)?;
        self.channels.insert(channel, (peer, now + CHANNEL_LIFETIME));
        self.by_peer.insert(peer, channel);
        Ok(())
    }

    /// Permissions, or channels if they are more.
    #[cfg(any(test, fuzzing))]
    pub(super) fn peers(&self) -> usize {
        assert_eq!(self.channels.len(), self.by_peer.len());
        self.permissions.len().max(self.channels.len())
    }

    /// Forgets permissions and channels whose time has passed.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.permissions.retain(|_, until| now < *until);
        let Self { channels, by_peer, .. } = self;
        channels.retain(|_, (peer, until)| {
            let stays = now < *until;
            if !stays {
                by_peer.remove(peer);
            }
            stays
        });
    }
}
