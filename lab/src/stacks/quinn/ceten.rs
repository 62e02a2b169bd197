//! CETEN below quinn, through quinn's own interface.

use crate::congestion::{Answer, Ceten};
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// The beginning of each connection.
pub(crate) struct CetenConfig {
    pub(crate) answer: Answer,
    /// The share of packets that the path corrupts, 0 to 1.
    pub(crate) corrupted: f64,
    pub(crate) seed: [u8; 32],
}

impl ControllerFactory for CetenConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let random = ChaCha8Rng::from_seed(self.seed);
        let ceten = Ceten::new(self.answer, self.corrupted, random, now, current_mtu);
        Box::new(QuinnCeten { initial_window: ceten.window(), ceten })
    }
}

#[derive(Clone)]
struct QuinnCeten {
    ceten: Ceten,
    initial_window: u64,
}

impl Controller for QuinnCeten {
    fn on_sent(&mut self, _: Instant, bytes: u64, _: u64) {
        self.ceten.on_sent(bytes);
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, limited: bool, _: &RttEstimator) {
        self.ceten.on_ack(sent, bytes, limited);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        lost_bytes: u64,
    ) {
        self.ceten.on_loss(now, sent, persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.ceten.set_datagram(new_mtu);
    }

    fn window(&self) -> u64 {
        self.ceten.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.ceten.window();
        metrics.ssthresh = Some(self.ceten.threshold());
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
