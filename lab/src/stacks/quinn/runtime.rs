//! quinn in the simulation.

use crate::stacks::runtime::{VirtualRuntime, VirtualSocket, VirtualTimer, virtual_runtime};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

virtual_runtime!(quinn, Arc);

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for VirtualSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let ecn = transmit.ecn.map_or(0, |codepoint| codepoint as u8);
        self.send(transmit.destination, ecn, transmit.contents)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        let (addr, ecn, len) = ready!(self.poll_receive(context, buffer))?;
        let ecn = EcnCodepoint::from_bits(ecn);
        *meta = RecvMeta { addr, len, stride: len, ecn, dst_ip: None };
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
