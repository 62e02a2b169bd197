//! A link of either model, for callers that take what a scenario asks for.

use packrat_wire::estimate::Timestamp;

use super::delay::DelayModel;
use super::discipline::QueueManagement;
use super::link::{Link, LinkConfig, LinkCounters};
use super::queued_link::{Fate, QueuedLink, QueuedLinkConfig, Rate};

/// Configuration of an [`AnyLink`].
#[derive(Debug, Clone, PartialEq)]
pub enum AnyLinkConfig {
    /// Constant rate and delay; a datagram's fate is known when it is offered.
    Constant(LinkConfig),
    /// Everything else; the link holds the datagrams.
    Queued(Box<QueuedLinkConfig>),
}

impl AnyLinkConfig {
    /// Converts the link to one that holds its datagrams.
    pub fn queued(self) -> QueuedLinkConfig {
        match self {
            Self::Queued(config) => *config,
            Self::Constant(LinkConfig { delay, rate, queue, loss, seed }) => QueuedLinkConfig {
                delay: DelayModel { base: delay, ..DelayModel::default() },
                rate: if rate == 0 { Rate::Unlimited } else { Rate::Constant(rate) },
                queue: QueueManagement::Arrival(queue),
                loss,
                outages: None,
                seed,
                outage_seed: seed,
                air: None,
            },
        }
    }
}

/// A [`Link`] or a [`QueuedLink`].
#[derive(Debug, Clone)]
pub enum AnyLink<D> {
    /// Constant rate and delay, and the fate of the datagram offered last.
    Constant(Box<Link>, Option<Fate<D>>),
    /// Everything else.
    Queued(Box<QueuedLink<D>>),
}

impl<D> AnyLink<D> {
    /// An idle link.
    pub fn new(config: AnyLinkConfig) -> Self {
        match config {
            AnyLinkConfig::Constant(config) => Self::Constant(Box::new(Link::new(config)), None),
            AnyLinkConfig::Queued(config) => Self::Queued(Box::new(QueuedLink::new(*config))),
        }
    }

    /// See [`QueuedLink::offer`]; all fates must be taken before the next datagram is offered.
    pub fn offer(
        &mut self,
        now: Timestamp,
        length: usize,
        flow: u64,
        ecn_capable: bool,
        datagram: D,
    ) {
        match self {
            Self::Constant(link, fate) => {
                let verdict = link.offer(now, length);
                *fate = Some(Fate { datagram, verdict, marked: false });
            }
            Self::Queued(link) => link.offer(now, length, flow, ecn_capable, datagram),
        }
    }

    /// See [`QueuedLink::poll_fate`].
    pub fn poll_fate(&mut self) -> Option<Fate<D>> {
        match self {
            Self::Constant(_, fate) => fate.take(),
            Self::Queued(link) => link.poll_fate(),
        }
    }

    /// See [`QueuedLink::next_timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        match self {
            Self::Constant(..) => None,
            Self::Queued(link) => link.next_timeout(),
        }
    }

    /// See [`QueuedLink::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if let Self::Queued(link) = self {
            link.handle_timeout(now);
        }
    }

    /// The link's counters.
    pub fn counters(&self) -> LinkCounters {
        match self {
            Self::Constant(link, _) => link.counters(),
            Self::Queued(link) => link.counters(),
        }
    }
}
