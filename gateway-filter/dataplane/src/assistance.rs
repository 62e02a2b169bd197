//! The engine behind a wall: whatever happens in it, forwarding goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use packrat_engine::{Flow, FlowCounters, FlowGauges, Gateway, Outbox};
use packrat_wire::message::GoodbyeReason;

use crate::log::{Event, Logger};
use crate::metrics::{Metric, Reported};
use crate::route::Route;

/// The sessions that a flow answers to: the one that assists it, and the one that is about to take over.
pub(crate) type Names = [Option<u32>; 2];

/// The engine's view of one session.
#[derive(Debug)]
pub(crate) struct Assistance {
    flow: Flow,
    engine: Arc<Gateway>,
    /// What this flow has added to the levels of the route.
    reported: Reported,
    /// What the engine has counted for this flow since it exists.
    counters: FlowCounters,
    /// Levels of the flow, as of the last call.
    gauges: FlowGauges,
    /// The sessions that this flow is known by in the route's index.
    indexed: Names,
    /// Nothing begins any more.
    ended: bool,
}

impl Assistance {
    pub(crate) fn new(engine: Arc<Gateway>) -> Self {
        Self {
            flow: Flow::new(Arc::clone(&engine)),
            engine,
            reported: Reported::default(),
            counters: FlowCounters::default(),
            gauges: FlowGauges::default(),
            indexed: Names::default(),
            ended: false,
        }
    }

    /// Calls the engine for this flow. After a panic in it the flow continues without assistance, as if the client had
    /// never asked for it. `None` also after the session has ended.
    pub(crate) fn run<R>(
        &mut self,
        route: &Route,
        logger: &Logger,
        action: impl FnOnce(&mut Flow) -> R,
    ) -> Option<R> {
        if self.ended {
            return None;
        }
        // Nothing of the flow is looked at after a panic: it is replaced as a whole.
        let result = guarded(route, logger, || action(&mut self.flow));
        if result.is_none() {
            let broken = std::mem::replace(&mut self.flow, Flow::new(Arc::clone(&self.engine)));
            // What panicked once may panic again when it is dropped.
            guarded(route, logger, move || {
                let _dropped_here = broken;
            });
        }
        self.settle(route, logger);
        result
    }

    /// Takes over a changed configuration. A session that is assisted keeps its engine; it ends when assistance was
    /// switched off.
    pub(crate) fn use_engine(
        &mut self,
        engine: &Arc<Gateway>,
        route: &Route,
        logger: &Logger,
        out: &mut Outbox,
    ) {
        if Arc::ptr_eq(&self.engine, engine) {
            return;
        }
        if !engine.config().assist {
            self.run(route, logger, |flow| flow.close(GoodbyeReason::Draining, out));
        }
        if !self.flow.is_assisted() {
            self.flow = Flow::new(Arc::clone(engine));
            self.engine = Arc::clone(engine);
        }
    }

    /// Moves counters and levels of the flow into the metrics of the route.
    fn settle(&mut self, route: &Route, logger: &Logger) {
        let read = guarded(route, logger, || (self.flow.take_counters(), self.flow.gauges()));
        if let Some((counters, gauges)) = read {
            route.metrics().add_flow(&counters);
            self.counters.add(&counters);
            self.gauges = gauges;
            route.metrics().replace_levels(&mut self.reported, &gauges);
        }
    }

    /// What the engine has counted for this flow, its levels, and the session that assists it.
    pub(crate) fn figures(&self) -> (FlowCounters, FlowGauges, Option<u32>) {
        (self.counters, self.gauges, self.indexed.first().copied().flatten())
    }

    /// The session has ended: none of its levels counts any more.
    pub(crate) fn finish(&mut self, route: &Route, logger: &Logger) {
        self.ended = true;
        self.settle(route, logger);
        route.metrics().replace_levels(&mut self.reported, &FlowGauges::default());
    }

    /// When the flow's sessions are others than at the last call: those before, and those now.
    pub(crate) fn renamed(&mut self) -> Option<(Names, Names)> {
        let mut now = Names::default();
        if !self.ended {
            // Two at most.
            for (place, name) in now.iter_mut().zip(self.flow.sessions()) {
                *place = Some(name);
            }
        }
        let before = std::mem::replace(&mut self.indexed, now);
        (before != now).then_some((before, now))
    }
}

/// Runs engine code; a panic is counted and logged, and gives `None`.
pub(crate) fn guarded<R>(route: &Route, logger: &Logger, action: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(action))
        .inspect_err(|panic| {
            route.metrics().add(Metric::AssistancePanics, 1);
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            logger.about(Event::AssistancePanic, route, || [("message", text.into())]);
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::configuration::RouteConfig;
    use crate::log::tests::silent_logger;

    #[test]
    fn a_panic_costs_the_flow_its_assistance_and_nothing_else() {
        let config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        let route = Route::new(config, Capacity::limited(1, String::new())).unwrap();
        let mut assistance = Assistance::new(Arc::clone(&route.settings().engine));
        let logger = silent_logger();
        let result: Option<()> = assistance.run(&route, &logger, |_| panic!("deliberate, in a test"));
        assert!(result.is_none());
        assert_eq!(route.metrics().get(Metric::AssistancePanics), 1);
        assert_eq!(assistance.run(&route, &logger, |flow| flow.is_assisted()), Some(false));
    }
}
