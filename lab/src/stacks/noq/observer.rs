//! The congestion control of noq, and its observer.
//!
//! noq reports each packet that it sends and each that it declares lost to its control, so no other
//! source is needed. The packets of the handshake, whose numbers also begin at 0, are not
//! distinguished; packets without data are not reported, so skipped numbers are not counted.

use crate::congestion::{Bbr, Cubic};
use crate::observer::Observer;
use crate::stacks::runtime::VirtualRuntime;
use noq::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A control that the laboratory implements.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

impl Control {
    fn window(&self) -> u64 {
        match self {
            Self::Cubic(cubic) => cubic.window(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    /// True once slow start, or its equivalent, has ended.
    fn has_left_slow_start(&self) -> bool {
        match self {
            Self::Cubic(cubic) => cubic.threshold().is_some(),
            Self::Bbr(bbr) => bbr.has_filled_pipe(),
        }
    }
}

/// Makes controls that are listened to.
pub(crate) struct Factory {
    /// The control for datagrams of a given size.
    pub(crate) control: Box<dyn Fn(u16) -> Control + Send + Sync>,
    pub(crate) runtime: VirtualRuntime,
    pub(crate) observer: Observer,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _: Instant, datagram: u16) -> Box<dyn Controller> {
        let control = (self.control)(datagram);
        Box::new(Observed {
            initial_window: control.window(),
            control,
            runtime: self.runtime,
            observer: self.observer.clone(),
            round_trip: Duration::ZERO,
            in_slow_start: true,
        })
    }
}

/// A control that is listened to.
#[derive(Clone)]
struct Observed {
    control: Control,
    initial_window: u64,
    runtime: VirtualRuntime,
    observer: Observer,
    /// The newest sample of the round trip.
    round_trip: Duration,
    in_slow_start: bool,
}

impl fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.control.fmt(formatter)
    }
}

impl Observed {
    fn look_at_slow_start(&mut self, now: Instant, cause: &'static str) {
        if self.in_slow_start && self.control.has_left_slow_start() {
            self.in_slow_start = false;
            self.observer.slow_start_ended(self.runtime.seconds(now), cause);
        }
    }
}

impl Controller for Observed {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        self.observer.sent(self.runtime.seconds(now), number, usize::from(bytes));
        match &mut self.control {
            Control::Cubic(cubic) => cubic.on_sent(number),
            Control::Bbr(bbr) => bbr.on_sent(now, u64::from(bytes), number),
        }
    }

    fn on_cwnd_limited(&mut self) {
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.on_window_limits();
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        number: u64,
        limited: bool,
        round_trip: &noq_proto::RttEstimator,
    ) {
        self.round_trip = now.saturating_duration_since(sent);
        match &mut self.control {
            Control::Cubic(cubic) => {
                cubic.on_ack(now, sent, bytes, number, round_trip.get(), limited);
            }
            Control::Bbr(bbr) => bbr.on_ack(now, number),
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool, largest: Option<u64>) {
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.on_end_acks(now, in_flight, limited);
        }
        self.look_at_slow_start(now, "round_trip");
        let [window, in_flight] =
            [self.window(), in_flight].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let at = self.runtime.seconds(now);
        self.observer.window(at, window, in_flight, self.round_trip);
        if let Some(largest) = largest {
            self.observer.acknowledged(at, largest);
        }
    }

    fn on_packet_lost(&mut self, _: u16, number: u64, now: Instant) {
        self.observer.declared_lost(self.runtime.seconds(now), number);
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.on_lost(now, number);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        _: bool,
        _: u64,
        _: u64,
    ) {
        if let Control::Cubic(cubic) = &mut self.control {
            cubic.on_congestion(now, sent, persistent);
        }
        self.observer.congestion();
        self.look_at_slow_start(now, "loss");
    }

    fn on_spurious_congestion_event(&mut self) {
        if let Control::Cubic(cubic) = &mut self.control {
            cubic.on_spurious_congestion();
        }
    }

    fn on_mtu_update(&mut self, datagram: u16) {
        match &mut self.control {
            Control::Cubic(cubic) => cubic.set_datagram(datagram),
            Control::Bbr(bbr) => bbr.set_datagram(datagram),
        }
    }

    fn window(&self) -> u64 {
        self.control.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        match &self.control {
            Control::Cubic(cubic) => metrics.ssthresh = cubic.threshold(),
            Control::Bbr(bbr) => {
                metrics.pacing_rate = Some(bbr.pace());
                metrics.send_quantum = Some(bbr.quantum());
            }
        }
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
