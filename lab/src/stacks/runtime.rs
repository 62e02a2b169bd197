//! The clock, the timers and the socket of quinn and noq in the simulation.

use crate::simulation::clock::VirtualClock;
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::{Socket, time};
use s2n_quic_core::inet::ExplicitCongestionNotification;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Virtual time for quinn, which counts in [`Instant`]s: `base` stands for the clock's origin,
/// whose real time is irrelevant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VirtualRuntime {
    clock: VirtualClock,
    base: Instant,
}

impl VirtualRuntime {
    /// Inside the simulation that the clock is of.
    pub(crate) fn new(clock: VirtualClock) -> Self {
        Self { clock, base: Instant::now() }
    }

    /// Virtual seconds since the clock's origin.
    pub(crate) fn seconds(&self, instant: Instant) -> f64 {
        instant.saturating_duration_since(self.base).as_secs_f64()
    }

    /// The beginning of virtual time.
    pub(crate) fn base(&self) -> Instant {
        self.base
    }

    /// Virtual time as an instant.
    pub(crate) fn instant(&self) -> Instant {
        self.base + Duration::from_micros(self.clock.now().as_micros())
    }

    fn timer(&self, at: Instant) -> time::Timer {
        // Rounded up: a timer that fires nanoseconds early would be set again endlessly at the same
        // virtual time.
        let nanos = at.saturating_duration_since(self.base).as_nanos();
        let micros = u64::try_from(nanos.div_ceil(1000)).unwrap_or(u64::MAX);
        self.clock.sleep_until(Timestamp::from_micros(micros))
    }
}

pub(crate) struct VirtualTimer {
    runtime: VirtualRuntime,
    timer: Pin<Box<time::Timer>>,
}

impl VirtualTimer {
    pub(crate) fn new(runtime: VirtualRuntime, at: Instant) -> Self {
        Self { runtime, timer: Box::pin(runtime.timer(at)) }
    }

    /// Sets another end.
    pub(crate) fn set_end(&mut self, at: Instant) {
        self.timer = Box::pin(self.runtime.timer(at));
    }

    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(context)
    }
}

impl fmt::Debug for VirtualTimer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("VirtualTimer").finish_non_exhaustive()
    }
}

/// A simulated socket. It always has room to send.
#[derive(Debug, Clone)]
pub(crate) struct VirtualSocket(pub(crate) Socket);

impl VirtualSocket {
    /// Sends a datagram with these bits of ECN.
    pub(crate) fn send(&self, to: SocketAddr, ecn: u8, datagram: &[u8]) -> io::Result<()> {
        let ecn = ExplicitCongestionNotification::new(ecn);
        self.0.send_to(to, ecn, datagram.to_vec())
    }

    /// Receives a datagram into `buffer`: its source, its bits of ECN, its length.
    pub(crate) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(SocketAddr, u8, usize)>> {
        // Not ConnectionReset at the end of the simulation: quinn would ignore that and ask again
        // without end.
        let (from, ecn, datagram) =
            ready!(self.0.poll_recv_from(context)).map_err(io::Error::other)?;
        let room = buffer
            .get_mut(..datagram.len())
            .ok_or_else(|| io::Error::other("a datagram is longer than the stack's buffer"))?;
        room.copy_from_slice(&datagram);
        Poll::Ready(Ok((from, ecn as u8, datagram.len())))
    }
}

/// Makes virtual time the runtime of a stack, quinn or noq, which keeps its sockets in `$pointer`.
macro_rules! virtual_runtime {
    ($stack:ident, $pointer:ident) => {
        impl $stack::Runtime for VirtualRuntime {
            fn new_timer(&self, at: Instant) -> Pin<Box<dyn $stack::AsyncTimer>> {
                Box::pin(VirtualTimer::new(*self, at))
            }

            fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
                s2n_quic::provider::io::testing::spawn(future);
            }

            fn wrap_udp_socket(
                &self,
                _: std::net::UdpSocket,
            ) -> io::Result<$pointer<dyn $stack::AsyncUdpSocket>> {
                Err(io::Error::other("there are no real sockets in virtual time"))
            }

            fn now(&self) -> Instant {
                self.instant()
            }
        }

        impl $stack::AsyncTimer for VirtualTimer {
            fn reset(mut self: Pin<&mut Self>, at: Instant) {
                self.set_end(at);
            }

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
                self.poll_end(context)
            }
        }
    };
}
pub(super) use virtual_runtime;
