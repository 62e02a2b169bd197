//! Programs that choose their destinations through SOCKS.

use std::net::SocketAddr;

use packrat_client::Timestamp;
use packrat_socket::{Batch, Message, Peer};

use super::listener::Listener;
use super::turning::Turning;
use super::{Agent, LONGEST_WAIT, TURN_RECEIVES};
use crate::socks::{AssociationId, Name, Route, Socks, Waiting};
use crate::token::Ready;

/// The SOCKS listener, and its number: it is among the last.
fn socks_of(listeners: &mut [Listener]) -> Option<(usize, &mut Socks)> {
    let mut numbered = listeners.iter_mut().enumerate().rev();
    numbered.find_map(|(service, listener)| Some((service, listener.socks()?)))
}

/// The TURN listener, and its number.
pub(super) fn turn_of(listeners: &mut [Listener]) -> Option<(usize, &mut Turning)> {
    let mut numbered = listeners.iter_mut().enumerate().rev();
    numbered.find_map(|(service, listener)| Some((service, listener.turn()?)))
}

impl Agent {
    /// A program speaks on its control connection, or closes it. False: there is no more.
    pub(super) fn converse(&mut self, id: AssociationId) -> bool {
        let Some((service, socks)) = socks_of(&mut self.listeners) else { return false };
        if socks.converse(id, self.poll.registry()) {
            self.end_association(service, id);
        }
        false
    }

    /// Ends an association with its flows, and notifies the gateways.
    pub(super) fn end_association(&mut self, service: usize, id: AssociationId) {
        let now = self.now();
        for flow in self.table.flows_through(service, id) {
            self.with(flow, |table, wire| table.close(flow, now, wire));
            self.drop_upstream(flow);
        }
        let ended = self.listeners.get_mut(service).and_then(|listener| listener.end(id));
        if let Some(bound) = ended {
            self.bound.remove(&bound);
        }
    }

    /// Ends associations that were not asked for in time, and allocations whose time has passed. Returns
    /// the listener of the former: connections may wait there that the system has not let it take.
    pub(super) fn end_overdue(&mut self) -> Option<Ready> {
        let now = self.now();
        if now < self.next_look {
            return None;
        }
        self.next_look = now + LONGEST_WAIT;
        if let Some((service, turn)) = turn_of(&mut self.listeners) {
            let over = turn.server.expire(now);
            over.into_iter().for_each(|id| self.end_association(service, id));
        }
        let (service, socks) = socks_of(&mut self.listeners)?;
        socks.overdue(now).into_iter().for_each(|id| self.end_association(service, id));
        Some(Ready::Listener(service))
    }

    pub(super) fn read_relay(&mut self, association: AssociationId, batch: &mut Batch) -> bool {
        for _ in 0..TURN_RECEIVES {
            let now = self.now();
            let Some((service, socks)) = socks_of(&mut self.listeners) else { return false };
            let Some(relay) = socks.relay(association) else { return false };
            if relay.receive(batch).is_err() {
                return false;
            }
            for message in batch.messages() {
                for (datagram, mark) in message.datagrams() {
                    let Some((_, socks)) = socks_of(&mut self.listeners) else { return false };
                    match socks.route(association, message.source, datagram, mark, now) {
                        Route::To(to, payload) => {
                            let through = Some((association, to));
                            let peer = Peer { service, address: message.source, through };
                            self.forward(
                                peer,
                                &Message::of_one(message.source, payload, mark),
                                now,
                            );
                        }
                        Route::Later => {}
                        Route::Refused => self.table.count_refused(service, 1),
                    }
                }
            }
            if !batch.may_have_more() {
                return false;
            }
        }
        true
    }

    /// Called when a name is resolved, or has no address.
    pub(super) fn on_resolved(&mut self, name: Name, to: Option<SocketAddr>, now: Timestamp) {
        let Some((service, socks)) = socks_of(&mut self.listeners) else { return };
        let waiting = socks.on_answer(name, to, now);
        for Waiting { association, program, payload, mark, .. } in waiting {
            let through = to.map(|to| (association, to));
            let peer = Peer { service, address: program, through };
            self.forward(peer, &Message::of_one(program, &payload, mark), now);
        }
    }
}
