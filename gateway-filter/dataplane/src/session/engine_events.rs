//! The engine's events as log lines and metrics.

use packrat_engine::{Event, Outbox};

use super::flow_id::FlowId;
use crate::context::{Environment, RouteContext};
use crate::log::{self, LogSubject};
use crate::metrics::reset;

/// Writes the engine's events to the log, as lines about `subject`, and its measurements to the
/// metrics. Events within the session are kept for observers; false if there is no observer any
/// more.
pub(super) fn record(
    route: &RouteContext,
    flow: FlowId,
    subject: &impl LogSubject,
    outbox: &mut Outbox,
) -> bool {
    route.metrics.record_samples(outbox.samples());
    let mut is_observed = true;
    for event in outbox.take_events() {
        if let Event::Session { session, event } = event {
            let Environment { observations, .. } = &*route.environment;
            let now = route.environment.now();
            is_observed &= observations.keep(flow.get(), session, route.name(), event, now);
        } else {
            record_event(route, subject, &event);
        }
    }
    is_observed
}

fn record_event(route: &RouteContext, subject: &impl LogSubject, event: &Event) {
    let logger = &route.environment.logger;
    match event {
        Event::SessionOpened { session } => {
            logger.about(log::Event::AssistanceBegun, subject, || {
                [("assistance", session.get().into())]
            })
        }
        Event::Reset { session, side, reason, epoch } => {
            route.metrics.add(reset(*side, *reason), 1);
            logger.about(log::Event::Reset, subject, || {
                [
                    ("assistance", session.get().into()),
                    ("side", side.name().into()),
                    ("reason", reason.name().into()),
                    ("epoch", epoch.get().into()),
                ]
            })
        }
        Event::SessionClosed { session, side, reason, totals } => {
            logger.about(log::Event::AssistanceEnded, subject, || {
                [
                    ("assistance", session.get().into()),
                    ("side", side.name().into()),
                    ("reason", format!("{reason:?}").to_lowercase().into()),
                    ("repaired", totals.repaired.into()),
                    ("repair_transmissions", totals.repair_transmissions.into()),
                    ("unrepairable", totals.unrepairable.into()),
                    ("decode_failures", totals.decode_failures.into()),
                    ("resets", totals.resets.into()),
                    ("cache_high_water_bytes", totals.cache_high_water.into()),
                ]
            });
        }
        Event::SendersJudged { session, tolerant } => {
            logger.about(log::Event::SendersJudged, subject, || {
                [("assistance", session.get().into()), ("tolerant", (*tolerant).into())]
            })
        }
        // The listener logs both paths.
        Event::ClientMoved { .. } => {}
        other => logger
            .about(log::Event::Assistance, subject, || [("detail", format!("{other:?}").into())]),
    }
}
