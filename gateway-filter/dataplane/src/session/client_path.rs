//! The way to a client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packrat_engine::{NetworkPath, Outbox};
use packrat_wire::number;

use crate::context::RouteContext;
use crate::log::Event;
use crate::metrics::Metric;
use crate::socket::{
    ClientAddress, Ecn, EndpointAddress, GsoBatch, SendReport, Sender, Slot, WhenFull, canonical,
};

/// The address of a client, and the socket through which it is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClientPath {
    pub(crate) client: ClientAddress,
    pub(crate) slot: Arc<Slot>,
    /// The address that the client sends to, when the listener is bound to a wildcard address.
    pub(crate) local: Option<IpAddr>,
}

/// A client that has no session yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer<'a> {
    pub(crate) path: &'a ClientPath,
    /// The endpoint that it is known to have had through another gateway.
    pub(crate) known: Option<EndpointAddress>,
}

impl ClientPath {
    /// Both addresses of the client's datagrams, in canonical form: the key of its session.
    pub(crate) fn network(&self) -> NetworkPath {
        let listener = self.slot.listener().get();
        let gateway = match self.local {
            Some(local) => SocketAddr::new(local, listener.port()),
            None => listener,
        };
        NetworkPath { client: self.client.get(), gateway: canonical(gateway) }
    }

    /// Sends datagrams to the client, and counts those not sent.
    pub(crate) fn send(
        &self,
        route: &RouteContext,
        sender: &mut Sender,
        batches: &[GsoBatch<'_>],
        when_full: WhenFull,
    ) -> SendReport {
        let report = self.slot.with(|downstream| {
            let destination = downstream.destination(self.client, self.local, when_full);
            sender.send(downstream.socket(), &downstream.offload, &destination, batches)
        });
        let report = report.unwrap_or_else(|| SendReport {
            dropped: GsoBatch::count(batches),
            error: Some(io::Error::new(io::ErrorKind::NotConnected, "the listener is gone")),
            ..SendReport::default()
        });
        self.count_unsent(route, &report);
        report
    }

    /// Sends the datagrams of an outbox, control datagrams and repairs; returns the number of
    /// repairs. `ecn`: the mark of repairs whose originals reported no congestion.
    pub(crate) fn send_outbox(
        &self,
        route: &RouteContext,
        sender: &mut Sender,
        outbox: &Outbox,
        ecn: Ecn,
        when_full: WhenFull,
    ) -> u64 {
        let (mut repairs, mut controls) = (0, 0);
        let batches: Vec<GsoBatch<'_>> = outbox
            .datagrams()
            .enumerate()
            .map(|(position, datagram)| {
                let is_repair = number::split(datagram).is_some();
                if packrat_wire::is_control(datagram) && !is_repair {
                    controls += 1;
                    GsoBatch::single(datagram, Ecn::NOT_CAPABLE)
                } else {
                    repairs += 1;
                    let congested = outbox.is_congested(position);
                    GsoBatch::single(datagram, if congested { Ecn::CONGESTION } else { ecn })
                }
            })
            .collect();
        if batches.is_empty() {
            return 0;
        }
        self.send(route, sender, &batches, when_full);
        route.metrics.add(Metric::ControlSent, controls);
        repairs
    }

    /// Counts datagrams that could not be sent to the client, and logs why.
    pub(crate) fn count_unsent(&self, route: &RouteContext, report: &SendReport) {
        route.metrics.add(Metric::DownstreamDropped, report.dropped);
        route.metrics.add(Metric::TooLarge, report.too_large);
        if report.offload_refused {
            route.log(Event::SegmentationUnavailable, || {
                [("listener", self.slot.listener().to_string().into())]
            });
        }
        if let Some(error) = &report.error {
            route.log(Event::DownstreamError, || {
                [
                    ("client", route.environment.logger.client(self.client.get())),
                    ("dropped", (report.dropped + report.too_large).into()),
                    ("error", error.to_string().into()),
                ]
            });
        }
    }
}
