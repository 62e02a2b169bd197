//! The gateways' reports on their routes.

use std::collections::BTreeMap;

use crate::problem::Reason;
use crate::resource::ListenerStatus;

/// A reading of the pages of an EdgeGateway's gateways, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Gateways that have been read.
    pub gateways: i32,
    /// Sessions of these gateways.
    pub sessions: i64,
    /// Routes on which assistance has stopped by itself somewhere, by the name of the route.
    pub routes: BTreeMap<String, StoppedRoute>,
}

impl Reading {
    /// Adds the reading of further gateways.
    pub fn add(&mut self, other: Self) {
        self.gateways += other.gateways;
        self.sessions += other.sessions;
        for (route, StoppedRoute { stopped, trying }) in other.routes {
            let sum = self.routes.entry(route).or_default();
            sum.stopped += stopped;
            sum.trying += trying;
        }
    }
}

/// Numbers of gateways on which a route's assistance is not as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoppedRoute {
    /// Gateways at which assistance of the route has stopped by itself: assisted sessions were
    /// slower than held-out ones.
    pub stopped: i32,
    /// Gateways at which assistance of the route is tried again, for half of the clients.
    pub trying: i32,
}

/// The reason of a condition about these routes; `None` where all is well.
pub(super) fn harmed_reason(
    mut routes: impl Iterator<Item = StoppedRoute> + Clone,
) -> Option<&'static str> {
    if routes.clone().any(|route| route.stopped > 0) {
        Some(Reason::AssistanceStopped.name())
    } else {
        routes.any(|route| route.trying > 0).then_some("AssistanceTried")
    }
}

impl StoppedRoute {
    /// The largest numbers of some listeners of an EdgeGateway.
    pub fn worst<'a>(listeners: impl Iterator<Item = &'a ListenerStatus>) -> Self {
        listeners.fold(Self::default(), |worst, listener| Self {
            stopped: worst.stopped.max(listener.stopped_gateways),
            trying: worst.trying.max(listener.trying_gateways),
        })
    }

    /// The reason of a condition about it; `None` where all is well.
    pub fn reason(self) -> Option<&'static str> {
        harmed_reason(std::iter::once(self))
    }

    /// A sentence about the reading. `gateways`: the ready gateways; more were ready when they were
    /// read.
    pub fn told(self, gateways: i32) -> String {
        let Self { stopped, trying } = self;
        let gateways = gateways.max(stopped.saturating_add(trying));
        let mut parts = Vec::new();
        if stopped > 0 {
            parts.push(format!(
                "assistance has stopped by itself on {stopped} of {gateways} gateways: assisted sessions were slower than those held out (PackratAssistanceStopped in the runbook says what to do)"
            ));
        }
        if trying > 0 {
            parts.push(format!(
                "assistance that had stopped by itself is tried again on {trying} of {gateways} gateways, for half of the clients"
            ));
        }
        parts.join("; ")
    }
}
