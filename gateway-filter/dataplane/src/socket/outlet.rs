//! Takes the datagrams of a data plane without a network.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;

use super::send::GsoBatch;

/// A datagram that was sent.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) socket: RawFd,
    /// The receiver; `None` on a connected socket.
    pub(crate) to: Option<SocketAddr>,
    pub(crate) datagram: Vec<u8>,
}

/// Datagrams in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outlet(Arc<Mutex<Vec<Taken>>>);

impl Outlet {
    pub(super) fn take(
        &self,
        socket: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        batches: &[GsoBatch<'_>],
    ) {
        let mut taken = self.0.lock();
        for batch in batches {
            for (number, datagram) in batch.datagrams().enumerate() {
                let in_front = batch.numbers.get(number).map_or(&[][..], |number| number);
                let datagram = [in_front, datagram].concat();
                taken.push(Taken { socket: socket.as_raw_fd(), to, datagram });
            }
        }
    }

    /// Takes the datagrams sent since the last call.
    pub(crate) fn drain(&self) -> Vec<Taken> {
        std::mem::take(&mut *self.0.lock())
    }
}
