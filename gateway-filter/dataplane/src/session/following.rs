//! The changes that a session follows: its listener's socket, its route's configuration, and another
//! endpoint.

use std::sync::Arc;

use packrat_engine::Outbox;

use super::client_path::ClientPath;
use super::endpoint::endpoint_for;
use super::state::Session;
use crate::socket::EndpointAddress;

/// The work that is left after a session has followed its route.
#[derive(Debug)]
#[must_use]
pub(crate) struct Followed {
    /// The session has another upstream socket, which its I/O thread has to read.
    pub(crate) has_moved: bool,
    /// Datagrams of the engine, for the client and for the server.
    pub(crate) outbox: Outbox,
}

impl Session {
    /// Follows a listener whose socket is another one now, and a configuration that has changed.
    pub(crate) fn follow(self: &Arc<Self>, path: &ClientPath) -> Option<Followed> {
        self.follow_listener(path);
        self.follow_route()
    }

    /// Takes over a configuration that has changed, and leaves an endpoint that is not configured
    /// and does not answer.
    pub(crate) fn follow_route(self: &Arc<Self>) -> Option<Followed> {
        let generation = self.route.generation();
        let now = || self.route.environment.now();
        if self.has_to_follow(generation) {
            let mut outbox = Outbox::default();
            let Self { engine_side, server_side, route, transfer, .. } = &**self;
            engine_side.follow_route(self, route, transfer, &mut outbox);
            let is_over = server_side.follow_endpoints(route) || server_side.is_overdue(now);
            let has_moved = is_over && self.leave_endpoint();
            return Some(Followed { has_moved, outbox });
        }
        let has_moved = self.server_side.is_overdue(now) && self.leave_endpoint();
        has_moved.then(|| Followed { has_moved, outbox: Outbox::default() })
    }

    /// Notes that the network reports the server as unreachable: if it is not configured any more,
    /// the session leaves it at once. True if the session has another upstream socket.
    #[must_use]
    pub(crate) fn note_unreachable(&self) -> bool {
        !self.server_side.is_configured() && self.leave_endpoint()
    }

    fn leave_endpoint(&self) -> bool {
        self.server_side.leave(&self.route, self.client(), self)
    }

    /// Continues with the endpoint that the client had through another gateway. The client has to
    /// have proved its address. True if the endpoint is another one now.
    pub(crate) fn resume_endpoint(&self, known: EndpointAddress) -> bool {
        let client = self.client();
        self.server_side
            .reconnect(&self.route, client, self, |_, old| (old != known).then_some(known))
    }

    /// Leaves another gateway for a server: the client begins a session here. True if it has.
    pub(crate) fn stop_relaying(&self) -> bool {
        let client = self.client();
        self.is_relay()
            && self.server_side.reconnect(&self.route, client, self, |settings, _| {
                endpoint_for(&settings.config, client)
            })
    }
}
