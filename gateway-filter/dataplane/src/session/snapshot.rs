//! A session as operators and servers see it.

use std::collections::BTreeMap;

use packrat_api::status::{ClientOfServer, SessionSnapshot};
use packrat_engine::FlowCounters;

use super::state::Session;
use crate::socket::canonical;
use crate::sync::atomic::{AtomicU64, Ordering};

impl Session {
    /// The client, for its server; `None` while the system does not tell the socket's address.
    pub(crate) fn client_of_server(&self) -> Option<ClientOfServer> {
        let upstream = self.upstream();
        Some(ClientOfServer {
            upstream: canonical(upstream.local()?),
            client: canonical(self.client().get()),
            server: canonical(upstream.endpoint().get()),
            route: self.route.name().to_owned(),
            session: self.id.get(),
        })
    }

    /// The session as an operator may see it.
    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        self.snapshot_with_counters().0
    }

    /// Snapshot with the engine's counters.
    pub(crate) fn detailed_snapshot(&self) -> SessionSnapshot {
        let (snapshot, counters) = self.snapshot_with_counters();
        let counted = FlowCounters::FIELDS.iter().zip(counters.values());
        let counted = counted.filter(|(_, count)| *count > 0);
        SessionSnapshot {
            counters: counted.map(|((name, _), count)| ((*name).to_owned(), count)).collect(),
            ..snapshot
        }
    }

    /// The session without its counters, and these, of the same moment.
    fn snapshot_with_counters(&self) -> (SessionSnapshot, FlowCounters) {
        let environment = &self.route.environment;
        let (counters, gauges, assistance) = self.engine_side.figures(&self.route);
        let total = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let snapshot = SessionSnapshot {
            session: self.id.get(),
            client: environment.logger.client(self.client().get()).as_str().map(str::to_owned),
            endpoint: self.upstream().endpoint().get(),
            relayed: self.is_relay(),
            assistance: assistance.map(|id| id.get()),
            seconds: environment.now().saturating_since(self.opened).as_secs_f64(),
            to_client_datagrams: total(&self.totals.to_client_datagrams),
            to_client_bytes: total(&self.totals.to_client_bytes),
            to_server_datagrams: total(&self.totals.to_server_datagrams),
            to_server_bytes: total(&self.totals.to_server_bytes),
            recorded: counters.datagrams_recorded,
            missing: counters.datagrams_missing,
            repairs: counters.repairs,
            repairs_arrived: counters.repairs_arrived,
            resets: counters.resets_gateway + counters.resets_client,
            cache_bytes: gauges.cache_bytes,
            last_mile_round_trip_microseconds: gauges.round_trip_microseconds,
            last_mile_loss_ppm: gauges.loss_ppm,
            far_round_trip_microseconds: self.server_side.far_round_trip().unwrap_or_default(),
            route: self.route.name().to_owned(),
            refusal: self.engine_side.refusal().map(|outcome| outcome.name().to_owned()),
            counters: BTreeMap::new(),
        };
        (snapshot, counters)
    }
}
