//! The engine behind a wall: whatever happens in it, forwarding continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use packrat_engine::{Flow, FlowCounters, FlowGauges, Gateway, Outbox};
use packrat_wire::SessionId;
use packrat_wire::handshake::SESSION_NAMES;
use packrat_wire::message::GoodbyeReason;

use crate::context::RouteContext;
use crate::log::Event;
use crate::metrics::{Metric, Reported};

/// The names of the sessions that a flow answers to: of the one that assists it, and of the one that
/// is about to take over.
pub(crate) type SessionIds = [Option<SessionId>; 2 * SESSION_NAMES];

/// The engine's view of one session.
#[derive(Debug)]
pub(crate) struct Assistance {
    flow: Flow,
    /// The part of this flow in the levels of the route.
    reported: Reported,
    /// Everything that the engine has counted for this flow; `None` while all counters are zero.
    counted: Option<Box<FlowCounters>>,
    /// The ids of the sessions that this flow is known by in the route's index, and all their names.
    known: [Option<SessionId>; 2],
    indexed: SessionIds,
    /// True if the engine reports each step.
    observed: bool,
    /// True if the session has ended: assistance does not begin any more.
    ended: bool,
    /// Datagrams for the server that have waited in a flow which has failed, in order.
    rescued: Option<Box<Outbox>>,
}

impl Assistance {
    pub(crate) fn new(engine: Arc<Gateway>) -> Self {
        Self {
            flow: Flow::new(engine),
            reported: Reported::default(),
            counted: None,
            known: [None; 2],
            indexed: SessionIds::default(),
            observed: false,
            ended: false,
            rescued: None,
        }
    }

    /// Calls the engine for this flow. After a panic in it the flow continues without assistance,
    /// as if the client had never asked for it; the datagrams that waited in it are in
    /// [`Self::take_rescued`]. `None` also after the session has ended.
    pub(crate) fn run<R>(
        &mut self,
        route: &RouteContext,
        action: impl FnOnce(&mut Flow) -> R,
    ) -> Option<R> {
        if self.ended {
            return None;
        }
        // After a panic the flow is asked only for the datagrams that wait in it, and replaced as a
        // whole.
        let result = guarded(route, || action(&mut self.flow));
        if result.is_none() {
            let mut broken =
                std::mem::replace(&mut self.flow, Flow::new(Arc::clone(&route.engine)));
            self.flow.observe(self.observed);
            let mut waiting = Box::new(Outbox::new());
            guarded(route, || broken.release_upward(&mut waiting));
            if waiting.datagrams_to_server().next().is_some() {
                self.rescued = Some(waiting);
            }
            // A flow that panicked once may panic again when it is dropped.
            guarded(route, move || {
                let _dropped_here = broken;
            });
        }
        self.settle(route);
        result
    }

    /// Takes the datagrams that have waited in a flow that has failed since the last call, for the
    /// server.
    pub(crate) fn take_rescued(&mut self) -> Option<Box<Outbox>> {
        self.rescued.take()
    }

    /// Ends where assistance has been switched off. All other limits the engine follows by itself.
    pub(crate) fn follow_route(&mut self, route: &RouteContext, out: &mut Outbox) {
        self.run(route, Flow::follow_config);
        if !route.engine.config().assist {
            self.run(route, |flow| flow.close(GoodbyeReason::Draining, out));
        }
    }

    /// Has the engine tell of each step, or not any more.
    pub(crate) fn observe(&mut self, observed: bool) {
        self.observed = observed;
        self.flow.observe(observed);
    }

    /// Moves counters and levels of the flow into the metrics of the route.
    fn settle(&mut self, route: &RouteContext) {
        let read = guarded(route, || (self.flow.take_counters(), self.flow.gauges()));
        if let Some((counters, gauges)) = read {
            route.metrics.add_flow(&counters);
            if counters != FlowCounters::default() {
                self.counted.get_or_insert_default().add(&counters);
            }
            route.metrics.levels.replace(&mut self.reported, &gauges);
        }
    }

    /// The engine's counts for this flow, its levels, and the session that assists it.
    pub(crate) fn figures(
        &self,
        route: &RouteContext,
    ) -> (FlowCounters, FlowGauges, Option<SessionId>) {
        let gauges = guarded(route, || self.flow.gauges()).filter(|_| !self.ended);
        (
            self.counted.as_deref().copied().unwrap_or_default(),
            gauges.unwrap_or_default(),
            self.indexed.first().copied().flatten(),
        )
    }

    /// Ends the session: its levels do not count any more.
    pub(crate) fn finish(&mut self, route: &RouteContext) {
        self.ended = true;
        self.settle(route);
        route.metrics.levels.replace(&mut self.reported, &FlowGauges::default());
    }

    /// True if the engine assists the flow: not before its client has proved its address.
    pub(crate) fn is_assisted(&self) -> bool {
        !self.ended && self.flow.is_assisted()
    }

    /// True if the engine records datagrams to the client.
    pub(crate) fn records(&self) -> bool {
        !self.ended && self.flow.records()
    }

    /// The flow's sessions before and now, if they are others than at the last call.
    pub(crate) fn replaced_sessions(&mut self) -> Option<(SessionIds, SessionIds)> {
        // A session keeps its names, so that its id shows whether there is anything to look at.
        let mut known = [None; 2];
        if !self.ended {
            for (place, id) in known.iter_mut().zip(self.flow.sessions()) {
                *place = Some(id);
            }
        }
        if known == self.known {
            return None;
        }
        self.known = known;
        let mut now = SessionIds::default();
        if !self.ended {
            // The names belong to two sessions at most.
            for (place, id) in now.iter_mut().zip(self.flow.names()) {
                *place = Some(id);
            }
        }
        let before = std::mem::replace(&mut self.indexed, now);
        (before != now).then_some((before, now))
    }
}

/// Runs engine code; a panic is counted and logged, and gives `None`.
pub(crate) fn guarded<R>(route: &RouteContext, action: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(action))
        .inspect_err(|panic| {
            route.metrics.add(Metric::AssistancePanics, 1);
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            route.log(Event::AssistancePanic, || [("message", text.into())]);
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Environment;
    use packrat_api::route::RouteConfig;
    use packrat_client::{ClientConfig, Shim};
    use packrat_engine::Received;
    use packrat_wire::estimate::Timestamp;
    use std::net::SocketAddr;

    #[test]
    fn a_panic_costs_the_flow_its_assistance_and_nothing_else() {
        let config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        let route = RouteContext::new(config, Environment::silent(1)).unwrap();
        let mut assistance = Assistance::new(Arc::clone(&route.engine));
        let result: Option<()> = assistance.run(&route, |_| panic!("deliberate, in a test"));
        assert!(result.is_none());
        assert_eq!(route.metrics.get(Metric::AssistancePanics), 1);
        assert_eq!(assistance.run(&route, |flow| flow.is_assisted()), Some(false));
        assert!(assistance.take_rescued().is_none(), "nothing has waited");
    }

    #[test]
    fn what_has_waited_in_a_flow_that_fails_is_for_the_server() {
        let config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        let route = RouteContext::new(config, Environment::silent(1)).unwrap();
        let mut assistance = Assistance::new(Arc::clone(&route.engine));
        let client: SocketAddr = "192.0.2.7:5000".parse().unwrap();
        let now = Timestamp::from_millis(1000);
        let uploads = ClientConfig::default().with_uploads(true);
        let mut shim = Shim::new(uploads, [9; 32], now);
        // Everything that both say, until they have a session.
        let mut out = Outbox::new();
        let mut converse = |shim: &mut Shim<()>, assistance: &mut Assistance| {
            while let Some(said) = shim.poll_transmit(now) {
                out.clear();
                assistance.run(&route, |flow| {
                    match route.engine.receive(&said, client, now, &mut out) {
                        Received::Done(_) => {}
                        Received::Begin(begin) => {
                            flow.begin(begin, [5; 32], now, &mut out);
                        }
                        Received::ForFlow => flow.control(&said, now, &mut out),
                    }
                });
                for answer in out.datagrams() {
                    let _ = shim.on_datagram(answer, (), now);
                }
            }
        };
        converse(&mut shim, &mut assistance);
        let datagrams: Vec<Vec<u8>> = (0..5_u8).map(|at| vec![0x40 | at; 1000]).collect();
        let numbered: Vec<Vec<u8>> = datagrams
            .iter()
            .map(|datagram| [&shim.on_send(datagram, now).unwrap()[..], datagram].concat())
            .collect();
        // The second one is missing, and those behind it wait.
        let mut passed = Outbox::new();
        for at in [0, 2, 3, 4] {
            let taken = assistance
                .run(&route, |flow| flow.receive_upward(&numbered[at], 0, now, &mut passed));
            assert_eq!(taken, Some(true));
        }
        let of = |out: &Outbox| -> Vec<Vec<u8>> {
            out.datagrams_to_server().map(|(datagram, _)| datagram.to_vec()).collect()
        };
        assert_eq!(of(&passed), datagrams[..1]);
        let result: Option<()> = assistance.run(&route, |_| panic!("deliberate, in a test"));
        assert!(result.is_none());
        let rescued = assistance.take_rescued().expect("what waits is not lost");
        assert_eq!(of(&rescued), datagrams[2..]);
        assert!(assistance.take_rescued().is_none(), "once");
    }
}
