//! noq in the simulation.

use crate::stacks::runtime::{VirtualRuntime, VirtualSocket, VirtualTimer, virtual_runtime};
use noq::udp::{EcnCodepoint, RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

virtual_runtime!(noq, Box);

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
