//! The networks of the demo.

use std::time::Duration;

use packrat_emulation::path::{LinkConfig, LossModel, QueueDiscipline, bandwidth_delay_product};
use packrat_emulation::scenario::Links;

use super::options::{DemoOptions, LossDirection, ProfileName, QueueKind};

/// Rate of the far segment, bits per second.
const FAR_RATE: u64 = 20_000_000;
/// Rate of the far segment to a server beside the gateway, bits per second.
const NEAR_RATE: u64 = 500_000_000;
/// Rate of the last mile, bits per second.
const LAST_MILE_RATE: u64 = 50_000_000;

/// The two path segments between server and client; both directions of each differ in loss only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    links: Links,
    round_trip: Duration,
}

impl Network {
    /// The network of this profile, with the changes by the options.
    pub(crate) fn new(profile: ProfileName, options: &DemoOptions) -> Self {
        let (far_delay, far_rate, last_mile_delay, loss) = match profile {
            ProfileName::Wifi => (30, FAR_RATE, 2, 0.04),
            ProfileName::Cellular => (30, FAR_RATE, 10, 0.10),
            ProfileName::Satellite => (50, FAR_RATE, 30, 0.10),
            ProfileName::Ingress => (1, NEAR_RATE, 15, 0.01),
        };
        let round_trip = Duration::from_millis(2 * (far_delay + last_mile_delay));
        let link = |delay, rate, seed| {
            let limit = bandwidth_delay_product(rate, round_trip);
            let queue = match options.network.queue {
                QueueKind::DropTail => QueueDiscipline::DropTail { limit },
                QueueKind::Red => QueueDiscipline::AdaptiveRed { limit },
            };
            LinkConfig::new(Duration::from_millis(delay), rate)
                .with_queue(queue)
                .with_seed(options.seed ^ seed)
        };
        let loss = LossModel::new(options.network.loss.unwrap_or(loss), options.network.burst);
        let upward = link(last_mile_delay, LAST_MILE_RATE, 0x7570);
        let links = Links {
            far_down: link(far_delay, far_rate, 0),
            far_up: link(far_delay, far_rate, 0),
            last_mile_down: link(last_mile_delay, LAST_MILE_RATE, 0x646f_776e).with_loss(loss),
            last_mile_up: match options.network.loss_direction {
                LossDirection::Both => upward.with_loss(loss),
                LossDirection::Down => upward,
            },
        };
        Self { links, round_trip }
    }

    /// The network of one of the laboratory's scenarios.
    #[cfg(feature = "lab")]
    pub(crate) fn of(scenario: &packrat_emulation::scenario::Scenario, seed: u64) -> Self {
        Self { links: scenario.constant_links(seed), round_trip: scenario.round_trip() }
    }

    /// Removes all loss.
    pub(crate) fn without_loss(mut self) -> Self {
        let Links { far_down, far_up, last_mile_down, last_mile_up } = &mut self.links;
        for link in [far_down, far_up, last_mile_down, last_mile_up] {
            link.loss = LossModel::None;
        }
        self
    }

    /// Share of datagrams that the last mile loses.
    pub(crate) fn loss(&self) -> f64 {
        self.links.last_mile_down.loss.rate()
    }

    /// Round trip of the whole path without any queue.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// The links in both directions.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }
}
