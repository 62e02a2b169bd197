//! Decides which of the arriving datagrams s2n-quic sees, and in which order.
//!
//! s2n-quic drops a packet that is 129 or more packet numbers behind the newest one (and may not
//! understand the number of one that is 127 behind), so that a repair that comes later is of no
//! use. Between the socket and s2n-quic, this endpoint keeps datagrams back that would move that
//! window past a hole which is still waited for, and passes them on, in the order of their numbers,
//! once the hole is filled or given up. Where the last mile's delay is short for its rate nothing
//! is ever kept back: datagrams within the window pass at once, in the order in which they come.
//!
//! Control datagrams end here.

use crate::interceptor::Paths;
use crate::path::{Arrival, AssistedPath};
use crate::tls::NewKeys;
use s2n_quic::provider::io;
use s2n_quic_core::endpoint::{CloseError, Endpoint, Type};
use s2n_quic_core::inet::SocketAddress;
use s2n_quic_core::inet::datagram::Header;
use s2n_quic_core::io::{rx, tx};
use s2n_quic_core::path::{Handle, mtu};
use s2n_quic_core::time::{Clock, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes kept back of one connection; what is beyond is passed on, the lowest number first: 250 ms
/// at 500 Mbit/s.
const MAXIMUM_BYTES: usize = 16 << 20;

/// An I/O provider whose endpoint gets datagrams in the order that [`ReleasingEndpoint`] decides
/// on.
#[derive(Debug)]
pub(crate) struct ReleasingProvider<P> {
    pub(crate) provider: P,
    pub(crate) paths: Arc<Paths>,
    pub(crate) keys: NewKeys,
}

impl<P: io::Provider> io::Provider for ReleasingProvider<P> {
    type PathHandle = P::PathHandle;
    type Error = P::Error;

    fn start<E: Endpoint<PathHandle = Self::PathHandle>>(
        self,
        endpoint: E,
    ) -> Result<SocketAddress, Self::Error> {
        let Self { provider, paths, keys } = self;
        provider.start(ReleasingEndpoint { endpoint, withheld: Withheld::new(paths, keys) })
    }
}

/// Stands between a socket and s2n-quic's endpoint.
struct ReleasingEndpoint<E: Endpoint> {
    endpoint: E,
    withheld: Withheld<E::PathHandle>,
}

/// A datagram that is kept back.
struct Datagram<H> {
    header: Header<H>,
    bytes: Vec<u8>,
}

/// The datagrams of one connection that are kept back, by packet number. All of them are authentic;
/// should there be several of one number, the transport decides between them.
struct Queue<H> {
    datagrams: BTreeMap<u64, Vec<Datagram<H>>>,
    bytes: usize,
}

impl<H> Queue<H> {
    fn insert(&mut self, number: u64, header: Header<H>, payload: &[u8]) {
        let datagrams = self.datagrams.entry(number).or_default();
        // A second copy is of no use.
        if datagrams.iter().all(|known| known.bytes != payload) {
            self.bytes += payload.len();
            datagrams.push(Datagram { header, bytes: payload.to_vec() });
        }
    }

    /// The next ones that may pass, which have the same number.
    fn take(&mut self, deliverable: u64) -> Option<(u64, Vec<Datagram<H>>)> {
        let (&number, _) = self.datagrams.first_key_value()?;
        if number > deliverable && self.bytes <= MAXIMUM_BYTES {
            return None;
        }
        let (number, datagrams) = self.datagrams.pop_first()?;
        self.bytes -= datagrams.iter().map(|datagram| datagram.bytes.len()).sum::<usize>();
        Some((number, datagrams))
    }

    fn first(&self) -> Option<u64> {
        self.datagrams.first_key_value().map(|(number, _)| *number)
    }
}

/// All that is kept back.
pub(crate) struct Withheld<H> {
    paths: Arc<Paths>,
    keys: NewKeys,
    by_remote: HashMap<SocketAddr, Queue<H>>,
}

impl<H: Handle> Withheld<H> {
    pub(crate) fn new(paths: Arc<Paths>, keys: NewKeys) -> Self {
        Self { paths, keys, by_remote: HashMap::new() }
    }

    /// A datagram has arrived: passes on what s2n-quic may see now.
    pub(crate) fn arrive(
        &mut self,
        header: Header<H>,
        payload: &mut [u8],
        pass: &mut impl FnMut(Header<H>, &mut [u8]),
    ) {
        let remote = SocketAddr::from(*header.path.remote_address());
        let Some(path) = self.paths.get(remote) else { return pass(header, payload) };
        match path.arrive(payload) {
            Arrival::Control => {}
            Arrival::Pass => {
                pass(header, payload);
                self.assign_keys(&path);
            }
            Arrival::Withhold(number) => {
                let empty = || Queue { datagrams: BTreeMap::new(), bytes: 0 };
                self.by_remote.entry(remote).or_insert_with(empty).insert(number, header, payload);
            }
        }
        self.release(remote, Some(&path), pass);
    }

    /// Passes on what was kept back of one connection and may pass now.
    fn release(
        &mut self,
        remote: SocketAddr,
        path: Option<&AssistedPath>,
        pass: &mut impl FnMut(Header<H>, &mut [u8]),
    ) {
        let Some(queue) = self.by_remote.get_mut(&remote) else { return };
        while let Some((number, datagrams)) =
            queue.take(path.map_or(u64::MAX, AssistedPath::deliverable))
        {
            for mut datagram in datagrams {
                if let Some(path) = path {
                    path.hand_over(number);
                }
                pass(datagram.header, &mut datagram.bytes);
            }
        }
        let first = queue.first();
        if first.is_none() {
            self.by_remote.remove(&remote);
        }
        if let Some(path) = path {
            path.set_withheld(first);
        }
    }

    /// Passes on everything that may pass now.
    pub(crate) fn release_all(&mut self, pass: &mut impl FnMut(Header<H>, &mut [u8])) {
        let mut remotes: Vec<SocketAddr> = self.by_remote.keys().copied().collect();
        // In an order that does not change from process to process.
        remotes.sort_unstable();
        for remote in remotes {
            let path = self.paths.get(remote);
            self.release(remote, path.as_deref(), pass);
        }
    }

    /// True if a datagram that was kept back may pass now.
    pub(crate) fn is_ready(&self) -> bool {
        self.by_remote.iter().any(|(remote, queue)| {
            let deliverable = self.paths.get(*remote).map_or(u64::MAX, |path| path.deliverable());
            queue.first().is_some_and(|first| first <= deliverable)
        })
    }

    /// s2n-quic makes the keys of a connection while it processes one of its datagrams.
    fn assign_keys(&self, path: &AssistedPath) {
        if path.wants_keys()
            && let Some(keys) = self.keys.take().pop()
        {
            path.set_keys(keys);
        }
    }
}

/// Queue of the datagrams that arrive at a socket, as s2n-quic sees them.
struct Arriving<'a, Q: rx::Queue> {
    queue: &'a mut Q,
    withheld: &'a mut Withheld<Q::Handle>,
}

impl<Q: rx::Queue> rx::Queue for Arriving<'_, Q> {
    type Handle = Q::Handle;

    fn for_each<F: FnMut(Header<Self::Handle>, &mut [u8])>(&mut self, mut on_packet: F) {
        self.queue
            .for_each(|header, payload| self.withheld.arrive(header, payload, &mut on_packet));
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Queue of the datagrams that were kept back and may pass now.
struct Released<'a, H>(&'a mut Withheld<H>);

impl<H: Handle> rx::Queue for Released<'_, H> {
    type Handle = H;

    fn for_each<F: FnMut(Header<H>, &mut [u8])>(&mut self, mut on_packet: F) {
        self.0.release_all(&mut on_packet);
    }

    fn is_empty(&self) -> bool {
        !self.0.is_ready()
    }
}

impl<E: Endpoint> Endpoint for ReleasingEndpoint<E> {
    type PathHandle = E::PathHandle;
    type Subscriber = E::Subscriber;

    const ENDPOINT_TYPE: Type = E::ENDPOINT_TYPE;

    fn receive<Q, C>(&mut self, queue: &mut Q, clock: &C)
    where
        Q: rx::Queue<Handle = Self::PathHandle>,
        C: Clock,
    {
        self.endpoint.receive(&mut Arriving { queue, withheld: &mut self.withheld }, clock);
    }

    fn transmit<Q, C>(&mut self, queue: &mut Q, clock: &C)
    where
        Q: tx::Queue<Handle = Self::PathHandle>,
        C: Clock,
    {
        if self.withheld.is_ready() {
            self.endpoint.receive(&mut Released(&mut self.withheld), clock);
        }
        self.endpoint.transmit(queue, clock);
    }

    fn poll_wakeups<C: Clock>(
        &mut self,
        context: &mut Context<'_>,
        clock: &C,
    ) -> Poll<Result<usize, CloseError>> {
        self.withheld.paths.waker.set(context.waker());
        match self.endpoint.poll_wakeups(context, clock) {
            // `transmit` comes next, and releases.
            Poll::Pending if self.withheld.is_ready() => Poll::Ready(Ok(1)),
            polled => polled,
        }
    }

    fn timeout(&self) -> Option<Timestamp> {
        self.endpoint.timeout()
    }

    fn set_mtu_config(&mut self, mtu_config: mtu::Config) {
        self.endpoint.set_mtu_config(mtu_config);
    }

    fn subscriber(&mut self) -> &mut Self::Subscriber {
        self.endpoint.subscriber()
    }
}

#[cfg(test)]
#[path = "forged_header_tests.rs"]
mod forged_headers;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_protection::SharedKey;
    use crate::packet_protection::ProvingKey;
    use crate::test_gateway::{SERVER, TestGateway, TestHost};
    use crate::test_keys::{Numbered, Plain, long_header, short_header};
    use crate::tls::ConnectionKeys;
    use s2n_quic_core::inet::ExplicitCongestionNotification;
    use s2n_quic_core::path::{RemoteAddress, Tuple};
    use std::time::Duration;

    struct World {
        host: Arc<TestHost>,
        path: Arc<AssistedPath>,
        withheld: Withheld<Tuple>,
    }

    fn server() -> SocketAddr {
        SERVER.parse().unwrap()
    }

    impl World {
        fn new() -> Self {
            let paths = Arc::new(Paths::default());
            let (path, host) = crate::test_gateway::path(true, paths.waker.clone());
            assert!(paths.insert(&path));
            Self { host, path, withheld: Withheld::new(paths, NewKeys::default()) }
        }

        /// With a session, the keys of the connection and its identifier.
        fn connected() -> Self {
            let mut world = Self::new();
            TestGateway::meet(&world.path, &world.host);
            let opener = SharedKey::new(Plain).opener();
            let proofs = ProvingKey::new(Numbered(1)).proofs();
            world.path.set_keys(ConnectionKeys { opener, proofs });
            assert_eq!(world.arrive(long_header(), server()).len(), 1);
            world.path.on_handshake_packet();
            world
        }

        /// Datagrams that s2n-quic sees when one arrives; it decrypts those that are authentic.
        fn arrive(&mut self, mut datagram: Vec<u8>, from: SocketAddr) -> Vec<Vec<u8>> {
            let remote = RemoteAddress::from(s2n_quic_core::inet::SocketAddress::from(from));
            let path = Tuple::from_remote_address(remote);
            let header = Header { path, ecn: ExplicitCongestionNotification::Ect0 };
            let mut seen = Vec::new();
            let path = &self.path;
            self.withheld.arrive(header, &mut datagram, &mut |header, bytes| {
                assert_eq!(header.ecn, ExplicitCongestionNotification::Ect0);
                if bytes[0] & 0x80 == 0 && bytes.last() == Some(&1) {
                    let number =
                        u16::from_be_bytes([bytes[9], bytes[10]].map(|byte| byte ^ bytes[13]));
                    path.on_packet_number(number.into());
                }
                seen.push(bytes.to_vec());
            });
            seen
        }

        fn number(&mut self, number: u64) -> Vec<Vec<u8>> {
            self.arrive(packet(number), server())
        }

        fn released(&mut self) -> Vec<Vec<u8>> {
            let mut seen = Vec::new();
            self.withheld.release_all(&mut |_, bytes| seen.push(bytes.to_vec()));
            seen
        }

        /// Nothing is waited for any more.
        fn give_up(&mut self) {
            // A hold that ends late is extended once.
            for _ in 0..2 {
                self.host.pass(Duration::from_secs(2));
                self.path.step();
            }
        }
    }

    fn packet(number: u64) -> Vec<u8> {
        short_header(&[9; 8], number, number as u8)
    }

    /// The same header, and a tag that does not fit.
    fn forged(number: u64) -> Vec<u8> {
        let mut forged = packet(number);
        *forged.last_mut().unwrap() = 0xee;
        forged
    }

    #[test]
    fn control_datagrams_are_hidden_and_everything_else_is_passed_on_unchanged() {
        let mut world = World::new();
        let mut control = vec![packrat_wire::control::FIRST_BYTE];
        control.extend_from_slice(&packrat_wire::control::MAGIC);
        control.extend_from_slice(&[1; 60]);
        assert!(world.arrive(control.clone(), server()).is_empty());
        let short_header = vec![0x41; 1200];
        assert_eq!(world.arrive(short_header.clone(), server()), [short_header]);
        // From another address nothing is taken out; s2n-quic drops it by itself.
        let another = SocketAddr::new(server().ip(), 10);
        assert_eq!(world.arrive(control.clone(), another), [control]);
    }

    #[test]
    fn what_would_push_a_hole_out_of_the_window_waits_for_it() {
        let mut world = World::connected();
        // 3 and 140 are missing.
        for number in (0..=129).filter(|number| *number != 3) {
            assert_eq!(world.number(number), [packet(number)]);
        }
        for number in [130, 131, 133, 132, 137, 133] {
            assert!(world.number(number).is_empty(), "{number} was passed on");
        }
        let released = world.number(3);
        assert_eq!(
            released,
            [3, 130, 131, 132, 133, 137].map(packet),
            "not in order, or not at once"
        );
        assert!(world.withheld.by_remote.is_empty());
    }

    #[test]
    fn forged_headers_keep_nothing_back_and_replace_nothing() {
        let mut world = World::connected();
        for number in (0..=129).filter(|number| *number != 3) {
            world.number(number);
        }
        // s2n-quic gets to see, and drops, what nothing vouches for.
        for number in [130, 131, 1130, 9000] {
            assert_eq!(world.arrive(forged(number), server()), [forged(number)]);
        }
        assert!(world.number(130).is_empty() && world.number(131).is_empty());
        assert_eq!(world.arrive(forged(131), server()), [forged(131)]);
        assert_eq!(world.number(3), [3, 130, 131].map(packet));
        assert_eq!(world.number(132), [packet(132)], "a hole of no packet was opened");
        assert_eq!(world.path.stats().0.holes, 1);
    }

    #[test]
    fn what_is_kept_back_is_released_when_nothing_is_waited_for() {
        let mut world = World::connected();
        assert!(world.number(200).is_empty() && world.number(199).is_empty());
        assert!(!world.withheld.is_ready());
        world.give_up();
        assert!(world.withheld.is_ready());
        assert_eq!(world.released(), [199, 200].map(packet));
    }

    #[test]
    fn what_is_kept_back_outlives_the_assistance() {
        let mut world = World::connected();
        assert!(world.number(200).is_empty());
        world.path.close();
        world.withheld.paths.end(&world.path);
        assert_eq!(world.released(), [packet(200)]);
    }

    #[test]
    fn what_is_kept_back_has_a_limit() {
        let mut world = World::connected();
        let large = |number: u64| [packet(number), vec![1; 60_000]].concat();
        let mut seen = 0;
        for number in 200..600 {
            seen += world.arrive(large(number), server()).len();
        }
        assert_eq!(seen, 400 - MAXIMUM_BYTES / large(200).len());
    }
}
