//! noq in the simulation: quinn's clock, timers and socket there.

use crate::quinn_runtime::{VirtualRuntime, VirtualSocket, VirtualTimer};
use noq::udp::{EcnCodepoint, RecvMeta, Transmit};
use noq::{AsyncTimer, AsyncUdpSocket, Runtime, UdpSender};
use s2n_quic::provider::io::testing::spawn;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

impl Runtime for VirtualRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(VirtualTimer::new(*self, at))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        spawn(future);
    }

    fn wrap_udp_socket(&self, _: std::net::UdpSocket) -> io::Result<Box<dyn AsyncUdpSocket>> {
        Err(io::Error::other("there are no real sockets in virtual time"))
    }

    fn now(&self) -> Instant {
        self.instant()
    }
}

impl AsyncTimer for VirtualTimer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.set_end(at);
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_end(context)
    }
}

impl UdpSender for VirtualSocket {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let ecn = transmit.ecn.map_or(0, |codepoint| codepoint as u8);
        Poll::Ready(self.send(transmit.destination, ecn, transmit.contents))
    }
}

impl AsyncUdpSocket for VirtualSocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(self.clone())
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        let (from, ecn, length) = ready!(self.poll_receive(context, buffer))?;
        let mut of = RecvMeta::default();
        of.addr = from;
        (of.len, of.stride) = (length, length);
        of.ecn = EcnCodepoint::from_bits(ecn);
        *meta = of;
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
