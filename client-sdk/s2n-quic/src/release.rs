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
        let withheld = Withheld { paths, keys, by_remote: HashMap::new() };
        provider.start(ReleasingEndpoint { endpoint, withheld })
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

/// The datagrams of one connection that are kept back, by packet number.
struct Queue<H> {
    datagrams: BTreeMap<u64, Datagram<H>>,
    bytes: usize,
}

impl<H> Queue<H> {
    fn insert(&mut self, number: u64, header: Header<H>, payload: &[u8]) {
        self.datagrams.entry(number).or_insert_with(|| {
            self.bytes += payload.len();
            Datagram { header, bytes: payload.to_vec() }
        });
    }

    /// The next one that may pass.
    fn take(&mut self, deliverable: u64) -> Option<(u64, Datagram<H>)> {
        let (&number, _) = self.datagrams.first_key_value()?;
        if number > deliverable && self.bytes <= MAXIMUM_BYTES {
            return None;
        }
        let (number, datagram) = self.datagrams.pop_first()?;
        self.bytes -= datagram.bytes.len();
        Some((number, datagram))
    }

    fn first(&self) -> Option<u64> {
        self.datagrams.first_key_value().map(|(number, _)| *number)
    }
}

/// All that is kept back.
struct Withheld<H> {
    paths: Arc<Paths>,
    keys: NewKeys,
    by_remote: HashMap<SocketAddr, Queue<H>>,
}

impl<H: Handle> Withheld<H> {
    /// A datagram has arrived: passes on what s2n-quic may see now.
    fn arrive(
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
        while let Some((number, mut datagram)) =
            queue.take(path.map_or(u64::MAX, AssistedPath::deliverable))
        {
            if let Some(path) = path {
                path.hand_over(number);
            }
            pass(datagram.header, &mut datagram.bytes);
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
    fn release_all(&mut self, pass: &mut impl FnMut(Header<H>, &mut [u8])) {
        let mut remotes: Vec<SocketAddr> = self.by_remote.keys().copied().collect();
        // In an order that does not change from process to process.
        remotes.sort_unstable();
        for remote in remotes {
            let path = self.paths.get(remote);
            self.release(remote, path.as_deref(), pass);
        }
    }

    /// True if a datagram that was kept back may pass now.
    fn is_ready(&self) -> bool {
        self.by_remote.iter().any(|(remote, queue)| {
            let deliverable = self.paths.get(*remote).map_or(u64::MAX, |path| path.deliverable());
            queue.first().is_some_and(|first| first <= deliverable)
        })
    }

    /// s2n-quic makes the keys of a connection while it processes one of its datagrams.
    fn assign_keys(&self, path: &AssistedPath) {
        if path.wants_opener()
            && let Some(opener) = self.keys.take().pop()
        {
            path.set_opener(opener);
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
mod tests {
    use super::*;
    use crate::guard::Core;
    use crate::header_protection::SharedKey;
    use crate::header_protection::tests::{Plain, long_header, short_header};
    use crate::host::{Host, OperatingSystem};
    use packrat_client::{AssistStats, PacketNumber, TimeoutActions};
    use s2n_quic_core::inet::ExplicitCongestionNotification;
    use s2n_quic_core::path::{RemoteAddress, Tuple};
    use std::net::{Ipv4Addr, UdpSocket};
    use std::sync::Mutex;

    const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    /// Waits for the lowest number that has not come, until told otherwise.
    #[derive(Clone, Default)]
    struct Waiting(Arc<Mutex<(Vec<u64>, bool)>>);

    impl Waiting {
        fn missing(&self) -> u64 {
            let numbers = &self.0.lock().unwrap().0;
            (0..).find(|number| !numbers.contains(number)).unwrap()
        }
    }

    impl Core for Waiting {
        fn on_datagram(
            &mut self,
            datagram: &[u8],
            _: packrat_wire::estimate::Timestamp,
        ) -> packrat_client::Datagram {
            let control = packrat_wire::is_control(datagram);
            if control { packrat_client::Datagram::Control } else { packrat_client::Datagram::Base }
        }
        fn on_expected_packet_number(
            &mut self,
            number: PacketNumber,
            _: packrat_wire::estimate::Timestamp,
        ) {
            self.0.lock().unwrap().0.push(number.get());
        }
        fn on_packet_number(&mut self, _: PacketNumber, _: packrat_wire::estimate::Timestamp) {}
        fn packet_number_reference(&self) -> Option<PacketNumber> {
            self.missing().checked_sub(1).map(PacketNumber::new)
        }
        fn deliverable(&self, window: u64) -> PacketNumber {
            let told = self.0.lock().unwrap().1;
            if told { PacketNumber::MAX } else { PacketNumber::new(self.missing() + window) }
        }
        fn rewrite_frames(
            &mut self,
            _: &[u8],
            _: usize,
            _: bool,
            _: packrat_wire::estimate::Timestamp,
        ) -> Option<Vec<u8>> {
            None
        }
        fn poll_transmit(&mut self, _: packrat_wire::estimate::Timestamp) -> Option<Vec<u8>> {
            None
        }
        fn next_timeout(&self) -> Option<packrat_wire::estimate::Timestamp> {
            None
        }
        fn handle_timeout(&mut self, _: packrat_wire::estimate::Timestamp) -> TimeoutActions {
            TimeoutActions::default()
        }
        fn close(&mut self, _: packrat_wire::estimate::Timestamp) {}
        fn stats(&self) -> AssistStats {
            AssistStats::default()
        }
    }

    struct World {
        core: Waiting,
        path: Arc<AssistedPath>,
        withheld: Withheld<Tuple>,
    }

    impl World {
        fn new() -> Self {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let host: Arc<dyn Host> = Arc::new(OperatingSystem::new(socket));
            let (core, paths) = (Waiting::default(), Arc::new(Paths::default()));
            let path =
                AssistedPath::new(SERVER, host, Some(Box::new(core.clone())), paths.waker.clone());
            let path = Arc::new(path);
            assert!(paths.insert(&path));
            let keys = NewKeys::default();
            Self { core, path, withheld: Withheld { paths, keys, by_remote: HashMap::new() } }
        }

        /// With header protection key and connection identifier known.
        fn connected() -> Self {
            let mut world = Self::new();
            world.path.set_opener(SharedKey::new(Plain).opener());
            assert_eq!(world.arrive(long_header(), SERVER).len(), 1);
            world
        }

        /// Datagrams that s2n-quic sees when one arrives.
        fn arrive(&mut self, mut datagram: Vec<u8>, from: SocketAddr) -> Vec<Vec<u8>> {
            let remote = RemoteAddress::from(s2n_quic_core::inet::SocketAddress::from(from));
            let path = Tuple::from_remote_address(remote);
            let header = Header { path, ecn: ExplicitCongestionNotification::Ect0 };
            let mut seen = Vec::new();
            self.withheld.arrive(header, &mut datagram, &mut |header, bytes| {
                assert_eq!(header.ecn, ExplicitCongestionNotification::Ect0);
                seen.push(bytes.to_vec());
            });
            seen
        }

        fn number(&mut self, number: u64) -> Vec<Vec<u8>> {
            self.arrive(packet(number), SERVER)
        }
    }

    fn packet(number: u64) -> Vec<u8> {
        short_header(&[9; 8], number, number as u8)
    }

    #[test]
    fn control_datagrams_are_hidden_and_everything_else_is_passed_on_unchanged() {
        let mut world = World::new();
        let mut control = vec![packrat_wire::control::FIRST_BYTE];
        control.extend_from_slice(&packrat_wire::control::MAGIC);
        control.extend_from_slice(&[1; 60]);
        assert!(world.arrive(control.clone(), SERVER).is_empty());
        let short_header = vec![0x41; 1200];
        assert_eq!(world.arrive(short_header.clone(), SERVER), [short_header]);
        // From another address nothing is taken out; s2n-quic drops it by itself.
        let other = SocketAddr::new(SERVER.ip(), 10);
        assert_eq!(world.arrive(control.clone(), other), [control]);
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
    fn what_is_kept_back_is_released_when_nobody_waits_any_more() {
        let mut world = World::connected();
        assert!(world.number(200).is_empty() && world.number(199).is_empty());
        assert!(!world.withheld.is_ready());
        world.core.0.lock().unwrap().1 = true;
        assert!(world.withheld.is_ready());
        let mut seen = Vec::new();
        world.withheld.release_all(&mut |_, bytes| seen.push(bytes.to_vec()));
        assert_eq!(seen, [199, 200].map(packet));
    }

    #[test]
    fn what_is_kept_back_outlives_the_assistance() {
        let mut world = World::connected();
        assert!(world.number(200).is_empty());
        world.path.close();
        world.withheld.paths.end(&world.path);
        let mut seen = Vec::new();
        world.withheld.release_all(&mut |_, bytes| seen.push(bytes.to_vec()));
        assert_eq!(seen, [packet(200)]);
    }

    #[test]
    fn what_is_kept_back_has_a_limit() {
        let mut world = World::connected();
        let large = |number: u64| [packet(number), vec![0; 60_000]].concat();
        let mut seen = 0;
        for number in 200..600 {
            seen += world.arrive(large(number), SERVER).len();
        }
        assert_eq!(seen, 400 - MAXIMUM_BYTES / large(200).len());
    }
}
