//! The networks of the demo.

use std::time::Duration;

use packrat_lab::path::{LinkConfig, LossModel, QueueDiscipline, bandwidth_delay_product};

use super::options::{LossDirection, Options, ProfileName, QueueKind};

/// Rate of the far segment, bits per second.
const FAR_RATE: u64 = 20_000_000;
/// Rate of the last mile, bits per second.
const LAST_MILE_RATE: u64 = 50_000_000;

/// The two path segments between server and client; each is the same in both directions but for the loss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    far_delay: Duration,
    last_mile_delay: Duration,
    queue: QueueKind,
    loss: LossModel,
    loss_direction: LossDirection,
    seed: u64,
}

impl Network {
    /// The network that the options describe.
    pub(crate) fn new(options: &Options) -> Self {
        let (far, last_mile, loss) = match options.profile {
            ProfileName::Wifi => (30, 2, 0.04),
            ProfileName::Cellular => (30, 10, 0.10),
            ProfileName::Satellite => (50, 30, 0.10),
        };
        Self {
            far_delay: Duration::from_millis(far),
            last_mile_delay: Duration::from_millis(last_mile),
            queue: options.queue,
            loss: LossModel::new(options.loss.unwrap_or(loss), options.burst),
            loss_direction: options.loss_direction,
            seed: options.seed,
        }
    }

    /// The same network without loss.
    pub(crate) fn without_loss(self) -> Self {
        Self { loss: LossModel::None, ..self }
    }

    /// Share of datagrams that the last mile loses.
    pub(crate) fn loss(&self) -> f64 {
        self.loss.rate()
    }

    /// Round trip of the whole path without any queue.
    pub(crate) fn round_trip(&self) -> Duration {
        2 * (self.far_delay + self.last_mile_delay)
    }

    /// The far segment, either direction.
    pub(crate) fn far(&self) -> LinkConfig {
        self.link(self.far_delay, FAR_RATE).with_seed(self.seed)
    }

    /// The last mile towards the server.
    pub(crate) fn last_mile_upward(&self) -> LinkConfig {
        let link = self.link(self.last_mile_delay, LAST_MILE_RATE).with_seed(self.seed ^ 0x7570);
        match self.loss_direction {
            LossDirection::Both => link.with_loss(self.loss),
            LossDirection::Down => link,
        }
    }

    /// The last mile towards the client.
    pub(crate) fn last_mile_downward(&self) -> LinkConfig {
        self.link(self.last_mile_delay, LAST_MILE_RATE)
            .with_loss(self.loss)
            .with_seed(self.seed ^ 0x646f_776e)
    }

    fn link(&self, delay: Duration, rate: u64) -> LinkConfig {
        let limit = bandwidth_delay_product(rate, self.round_trip());
        let queue = match self.queue {
            QueueKind::DropTail => QueueDiscipline::DropTail { limit },
            QueueKind::Red => QueueDiscipline::AdaptiveRed { limit },
        };
        LinkConfig::new(delay, rate).with_queue(queue)
    }
}
