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
    let receive = |until: Instant, sent_at: &[Instant], probed: &mut Probed| -> io::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            socket.set_read_timeout(Some(left))?;
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let (nonce, refused) = match buffer.get(..length).map(Control::decode) {
                Some(Ok(Control::Offer { nonce, .. })) => (nonce, false),
                Some(Ok(Control::Refusal { nonce, .. })) => (nonce, true),
                _ => continue,
            };
            let index = usize::try_from(nonce.wrapping_sub(seed)).unwrap_or(usize::MAX);
            let Some(sent) = sent_at.get(index) else { continue };
            if refused {
                probed.refusals += 1;
            } else {
                probed.offers += 1;
            }
            let round_trip = sent.elapsed();
            probed.round_trip =
                Some(probed.round_trip.map_or(round_trip, |least| least.min(round_trip)));
            if probed.offers + probed.refusals == PROBE_DISCOVERS {
                return Ok(());
            }
        }
    };
    for number in 0..PROBE_DISCOVERS {
        let mut datagram = Vec::new();
        Control::Discover { nonce: seed + number, versions: &[PROTOCOL_VERSION], noise: &[] }
            .encode(&mut datagram);
        sent_at.push(Instant::now());
        socket.send(&datagram)?;
        probed.sent += 1;
        receive(Instant::now() + DISCOVER_SPACING, &sent_at, &mut probed)?;
    }
    if probed.offers + probed.refusals < PROBE_DISCOVERS {
        receive(Instant::now() + ANSWER_PATIENCE, &sent_at, &mut probed)?;
    }
    Ok(probed)
}
