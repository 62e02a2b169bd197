//! Filter between a socket and s2n-quic's endpoint: decides which arriving datagrams s2n-quic sees,
//! when, and in which order. Outgoing datagrams pass [`crate::upload`].
//!
//! Control datagrams end here, numbers in front of datagrams are removed, and held datagrams are
//! passed on when the path's shim releases them.

use crate::path::Metadata;
use crate::paths::Paths;
use crate::upload::{Numbering, with_room};
use packrat_client::Released;
use s2n_quic::provider::io;
use s2n_quic_core::endpoint::{CloseError, Endpoint, Type};
use s2n_quic_core::inet::SocketAddress;
use s2n_quic_core::inet::datagram::Header;
use s2n_quic_core::io::{rx, tx};
use s2n_quic_core::path::{Handle, Tuple, mtu};
use s2n_quic_core::time::{Clock, Timestamp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An I/O provider whose endpoint gets datagrams in the order that the shims decide on.
#[derive(Debug)]
pub(crate) struct ReleasingProvider<P> {
    pub(crate) provider: P,
    pub(crate) paths: Arc<Paths>,
}

impl<P: io::Provider> io::Provider for ReleasingProvider<P> {
    type PathHandle = P::PathHandle;
    type Error = P::Error;

    fn start<E: Endpoint<PathHandle = Self::PathHandle>>(
        self,
        endpoint: E,
    ) -> Result<SocketAddress, Self::Error> {
        self.provider.start(ReleasingEndpoint { endpoint, paths: self.paths, sent: Vec::new() })
    }
}

/// Stands between a socket and s2n-quic's endpoint.
struct ReleasingEndpoint<E: Endpoint> {
    endpoint: E,
    paths: Arc<Paths>,
    /// Memory for a datagram that is sent.
    sent: Vec<u8>,
}

/// The shims take the addresses of a datagram out of the provider's handle...
fn metadata<H: Handle>(header: &Header<H>) -> Metadata {
    let path = Tuple {
        remote_address: header.path.remote_address(),
        local_address: header.path.local_address(),
    };
    Header { path, ecn: header.ecn }
}

/// Combines the fields into one header again.
fn header<H: Handle>(metadata: &Metadata) -> Header<H> {
    let mut path = H::from_remote_address(metadata.path.remote_address);
    path.set_local_address(metadata.path.local_address);
    Header { path, ecn: metadata.ecn }
}

/// A datagram has arrived: passes on the datagrams that s2n-quic may see now.
pub(crate) fn arrive<H: Handle>(
    paths: &Paths,
    header: Header<H>,
    datagram: &mut [u8],
    pass: &mut impl FnMut(Header<H>, &mut [u8]),
) {
    // Datagrams released before come first.
    release(paths, pass);
    let remote = SocketAddr::from(*header.path.remote_address());
    let Some(path) = paths.get(remote) else { return pass(header, datagram) };
    if let Some(front) = path.arrive(datagram, metadata(&header))
        && let Some(base) = datagram.get_mut(front..)
    {
        pass_on(paths, header, base, pass);
    }
    release(paths, pass);
}

/// Passes a datagram to s2n-quic, and another one if that has taken it back to old keys.
fn pass_on<H: Handle>(
    paths: &Paths,
    header: Header<H>,
    datagram: &mut [u8],
    pass: &mut impl FnMut(Header<H>, &mut [u8]),
) {
    paths.keys.on_pass(datagram);
    pass(header, datagram);
    if let Some(mut newest) = paths.keys.after_pass() {
        paths.keys.on_pass(&newest);
        pass(header, &mut newest);
        paths.keys.after_pass();
    }
}

/// Passes on the datagrams that the shims have released.
pub(crate) fn release<H: Handle>(paths: &Paths, pass: &mut impl FnMut(Header<H>, &mut [u8])) {
    while let Some(Released { mut datagram, metadata }) = paths.released.pop() {
        pass_on(paths, header(&metadata), &mut datagram, pass);
    }
}

/// Queue of the datagrams that arrive at a socket, as s2n-quic sees them.
struct Arriving<'a, Q> {
    queue: &'a mut Q,
    paths: &'a Paths,
}

impl<Q: rx::Queue> rx::Queue for Arriving<'_, Q> {
    type Handle = Q::Handle;

    fn for_each<F: FnMut(Header<Self::Handle>, &mut [u8])>(&mut self, mut on_packet: F) {
        let Self { queue, paths } = self;
        // One datagram at a time: datagrams that the kernel has coalesced are separate again.
        queue.for_each(|header, datagram| arrive(paths, header, datagram, &mut on_packet));
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Queue of the datagrams that were kept back and may pass now.
struct ReleasedQueue<'a, H> {
    paths: &'a Paths,
    handle: std::marker::PhantomData<H>,
}

impl<H: Handle> rx::Queue for ReleasedQueue<'_, H> {
    type Handle = H;

    fn for_each<F: FnMut(Header<H>, &mut [u8])>(&mut self, mut on_packet: F) {
        release(self.paths, &mut on_packet);
    }

    fn is_empty(&self) -> bool {
        self.paths.released.is_empty()
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
        self.endpoint.receive(&mut Arriving { queue, paths: &self.paths }, clock);
    }

    fn transmit<Q, C>(&mut self, queue: &mut Q, clock: &C)
    where
        Q: tx::Queue<Handle = Self::PathHandle>,
        C: Clock,
    {
        if !self.paths.released.is_empty() {
            let handle = std::marker::PhantomData;
            let mut released = ReleasedQueue { paths: &self.paths, handle };
            self.endpoint.receive(&mut released, clock);
        }
        let Self { endpoint, paths, sent } = self;
        let mut numbering = Numbering { queue, paths, buffer: sent, flights: Vec::new() };
        endpoint.transmit(&mut numbering, clock);
        numbering.end_flights();
    }

    fn poll_wakeups<C: Clock>(
        &mut self,
        context: &mut Context<'_>,
        clock: &C,
    ) -> Poll<Result<usize, CloseError>> {
        self.paths.released.set_waker(context.waker());
        match self.endpoint.poll_wakeups(context, clock) {
            // `transmit` comes next, and releases.
            Poll::Pending if !self.paths.released.is_empty() => Poll::Ready(Ok(1)),
            polled => polled,
        }
    }

    fn timeout(&self) -> Option<Timestamp> {
        self.endpoint.timeout()
    }

    fn set_mtu_config(&mut self, mtu_config: mtu::Config) {
        let leaves_room = self.paths.repairs_uploads();
        self.endpoint.set_mtu_config(if leaves_room { with_room(mtu_config) } else { mtu_config });
    }

    fn subscriber(&mut self) -> &mut Self::Subscriber {
        self.endpoint.subscriber()
    }
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
