//! Filter between s2n-quic's endpoint and a socket: shows the path's shim the datagrams that
//! s2n-quic sends, puts a number in front of those to repair, and leaves bundled ones to the shim.

use crate::path::{AssistedPath, Departure};
use crate::paths::Paths;
use packrat_wire::number::NUMBER_LENGTH;
use s2n_quic_core::inet::ExplicitCongestionNotification;
use s2n_quic_core::io::tx::{self, Error, Message, Outcome, PayloadBuffer};
use s2n_quic_core::path::{Handle, mtu};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the longest datagram that is written here.
const LONGEST_DATAGRAM_BYTES: usize = 1 << 16;

/// Queue of the datagrams that s2n-quic sends.
pub(crate) struct Numbering<'a, Q: tx::Queue> {
    pub(crate) queue: &'a mut Q,
    pub(crate) paths: &'a Paths,
    /// Memory for one datagram.
    pub(crate) buffer: &'a mut Vec<u8>,
    /// Paths whose first flight leaves, and the way there.
    pub(crate) flights: Vec<(Arc<AssistedPath>, Q::Handle)>,
}

impl<Q: tx::Queue> Numbering<'_, Q> {
    /// Sends the first questions for a gateway after s2n-quic's flight, by the same way.
    pub(crate) fn end_flights(&mut self) {
        for (path, handle) in core::mem::take(&mut self.flights) {
            path.end_first_flight(|question| {
                let written = Written {
                    handle,
                    ecn: ExplicitCongestionNotification::NotEct,
                    delay: Duration::ZERO,
                    flow_label: 0,
                    datagram: question,
                };
                self.queue.has_capacity() && self.queue.push(written).is_ok()
            });
        }
    }
}

impl<Q: tx::Queue> tx::Queue for Numbering<'_, Q> {
    type Handle = Q::Handle;

    const SUPPORTS_ECN: bool = Q::SUPPORTS_ECN;
    const SUPPORTS_PACING: bool = Q::SUPPORTS_PACING;
    const SUPPORTS_FLOW_LABELS: bool = Q::SUPPORTS_FLOW_LABELS;

    fn push<M: Message<Handle = Self::Handle>>(
        &mut self,
        mut message: M,
    ) -> Result<Outcome, Error> {
        let remote = SocketAddr::from(*message.path_handle().remote_address());
        let Some(path) = self.paths.get(remote) else { return self.queue.push(message) };
        // Datagrams must find room before they are written: s2n-quic assumes that they are sent.
        if !self.queue.has_capacity() {
            return Err(Error::AtCapacity);
        }
        self.buffer.resize(LONGEST_DATAGRAM_BYTES, 0);
        let (front, payload) = self.buffer.split_at_mut(NUMBER_LENGTH);
        let length = message.write_payload(PayloadBuffer::new(payload), 0)?;
        let payload = payload.get(..length).unwrap_or_default();
        let begin = match path.on_send(payload, message.ecn()) {
            Departure::WithOthers => return Ok(Outcome { len: length, index: 0 }),
            Departure::Now(Some(number)) => {
                front.copy_from_slice(&number);
                0
            }
            Departure::Now(None) => NUMBER_LENGTH,
        };
        let datagram = self.buffer.get(begin..NUMBER_LENGTH + length).unwrap_or_default();
        let written = Written {
            handle: *message.path_handle(),
            ecn: message.ecn(),
            delay: message.delay(),
            flow_label: message.ipv6_flow_label(),
            datagram,
        };
        let handle = written.handle;
        let outcome = self.queue.push(written)?;
        let is_known = self.flights.iter().any(|(known, _)| Arc::ptr_eq(known, &path));
        if !is_known && path.begins() {
            self.flights.push((path, handle));
        }
        Ok(Outcome { len: length, index: outcome.index })
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn capacity(&self) -> usize {
        self.queue.capacity()
    }
}

/// A datagram as it leaves.
struct Written<'a, H> {
    handle: H,
    ecn: ExplicitCongestionNotification,
    delay: Duration,
    flow_label: u32,
    datagram: &'a [u8],
}

impl<H: Handle> Message for Written<'_, H> {
    type Handle = H;

    fn path_handle(&self) -> &H {
        &self.handle
    }

    fn ecn(&mut self) -> ExplicitCongestionNotification {
        self.ecn
    }

    fn delay(&mut self) -> Duration {
        self.delay
    }

    fn ipv6_flow_label(&mut self) -> u32 {
        self.flow_label
    }

    fn can_gso(&self, segment_len: usize, _: usize) -> bool {
        segment_len >= self.datagram.len()
    }

    fn write_payload(&mut self, mut buffer: PayloadBuffer<'_>, _: usize) -> Result<usize, Error> {
        buffer.write(self.datagram)
    }
}

/// Leaves room for a number in front of the longest datagram that the link carries.
pub(crate) fn with_room(config: mtu::Config) -> mtu::Config {
    let longest = u16::from(config.max_mtu()).saturating_sub(NUMBER_LENGTH as u16);
    let of = |mtu: u16| mtu.min(longest);
    mtu::Config::builder()
        .with_base_mtu(of(config.base_mtu().into()))
        .and_then(|builder| builder.with_initial_mtu(of(config.initial_mtu().into())))
        .and_then(|builder| builder.with_max_mtu(longest))
        .and_then(mtu::Builder::build)
        .unwrap_or(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_datagrams_leave_room_for_a_number() {
        let of = |config: mtu::Config| -> [u16; 3] {
            [config.base_mtu().into(), config.initial_mtu().into(), config.max_mtu().into()]
        };
        let [base, initial, longest] = of(mtu::Config::default());
        assert_eq!(of(with_room(mtu::Config::default())), [base, initial, longest - 8]);
        let full = mtu::Config::builder().with_max_mtu(1400).unwrap();
        let full = full.with_initial_mtu(1400).unwrap().build().unwrap();
        assert_eq!(of(with_room(full)), [base, 1392, 1392]);
        assert_eq!(of(with_room(mtu::Config::MIN)), of(mtu::Config::MIN), "there is no room");
    }
}
