//! Is a gateway's UDP port reachable from here, and how is the way there? Asked with Discovers,
//! which cost the gateway no state.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packrat_wire::control::{Control, PROTOCOL_VERSION};

/// Discovers in a probe; well below the number that a gateway accepts per second from one source.
const PROBE_DISCOVERS: u64 = 20;
/// Time between two Discovers.
const DISCOVER_SPACING: Duration = Duration::from_millis(25);
/// Wait for answers after the last Discover.
const ANSWER_PATIENCE: Duration = Duration::from_millis(800);

/// Result of a probe.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Probed {
    /// Discovers sent.
    pub(crate) sent: u64,
    /// Offers that came back.
    pub(crate) offers: u64,
    /// Refusals that came back.
    pub(crate) refusals: u64,
    /// Smallest round trip.
    pub(crate) round_trip: Option<Duration>,
}

impl Probed {
    /// Share of the Discovers that were not answered: losses of both directions together.
    pub(crate) fn loss(&self) -> f64 {
        1.0 - (self.offers + self.refusals) as f64 / self.sent as f64
    }

    /// Counts answers until an instant, or until there is one to each Discover. `seed`: the first
    /// nonce; `sent_at`: when each was sent.
    fn receive(
        &mut self,
        socket: &UdpSocket,
        until: Instant,
        seed: u64,
        sent_at: &[Instant],
    ) -> io::Result<()> {
        let mut buffer = [0; 2048];
        while self.offers + self.refusals < PROBE_DISCOVERS {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            let length = match socket.recv(&mut buffer) {
                Err(error)
                    if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut]
                        .contains(&error.kind()) =>
                {
                    break;
                }
                length => length?,
            };
            let (nonce, answers) = match buffer.get(..length).map(Control::decode) {
                Some(Ok(Control::Offer { nonce, .. })) => (nonce, &mut self.offers),
                Some(Ok(Control::Refusal { nonce, .. })) => (nonce, &mut self.refusals),
                _ => continue,
            };
            let index = usize::try_from(nonce.wrapping_sub(seed)).unwrap_or(usize::MAX);
            let Some(sent) = sent_at.get(index) else { continue };
            *answers += 1;
            let round_trip = sent.elapsed();
            self.round_trip =
                Some(self.round_trip.map_or(round_trip, |least| least.min(round_trip)));
        }
        Ok(())
    }
}

/// Sends Discovers to `address` and waits for the answers, about a second in all.
pub(crate) fn probe(address: SocketAddr) -> io::Result<Probed> {
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local)?;
    socket.connect(address)?;
    // Not to be guessed by who cannot see the path; the standard library has no other generator.
    let seed = RandomState::new().hash_one(address) << 8;
    let mut sent_at = Vec::new();
    let mut probed = Probed { sent: 0, offers: 0, refusals: 0, round_trip: None };
    for number in 0..PROBE_DISCOVERS {
        let mut datagram = Vec::new();
        Control::Discover { nonce: seed + number, versions: &[PROTOCOL_VERSION], noise: &[] }
            .encode(&mut datagram);
        sent_at.push(Instant::now());
        socket.send(&datagram)?;
        probed.sent += 1;
        probed.receive(&socket, Instant::now() + DISCOVER_SPACING, seed, &sent_at)?;
    }
    if probed.offers + probed.refusals < PROBE_DISCOVERS {
        probed.receive(&socket, Instant::now() + ANSWER_PATIENCE, seed, &sent_at)?;
    }
    Ok(probed)
}
