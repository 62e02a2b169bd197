//! The side of a session towards the engine, which assists it or does not.

use std::sync::Arc;

use packrat_engine::{Flow, FlowCounters, FlowGauges, HandshakeOutcome, Outbox};
use packrat_wire::SessionId;

use super::assistance::Assistance;
use super::assisted::AssistedSessions;
use super::transfer::Transfer;
use crate::context::{Arm, RouteContext};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The side of a session, an `S`, towards the engine.
#[derive(Debug)]
pub(crate) struct EngineSide<S> {
    assistance: Mutex<Assistance>,
    /// The sessions of the route that the engine assists.
    index: Arc<AssistedSessions<S>>,
    /// True if the engine assists this session, whose client has therefore proved its address; known
    /// without the lock of `assistance`.
    assisted: AtomicBool,
    /// True if the engine records datagrams to the client: also for a session that is only asked
    /// for.
    recorded: AtomicBool,
    /// True if the route sends twice what sparse flows bring to clients without a session.
    sparse_copies: AtomicBool,
    /// The refusal of the client's last question, if it was refused.
    refusal: Mutex<Option<HandshakeOutcome>>,
}

impl<S> EngineSide<S> {
    pub(super) fn new(
        route: &RouteContext,
        index: &Arc<AssistedSessions<S>>,
        sparse_copies: bool,
    ) -> Self {
        Self {
            assistance: Mutex::new(Assistance::new(Arc::clone(&route.engine))),
            index: Arc::clone(index),
            assisted: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            sparse_copies: AtomicBool::new(sparse_copies),
            refusal: Mutex::default(),
        }
    }

    /// True if the engine assists this session.
    pub(super) fn is_assisted(&self) -> bool {
        self.assisted.load(Ordering::Relaxed)
    }

    /// True if the engine records datagrams to the client.
    pub(super) fn records(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    /// True if the route sends twice what sparse flows bring to clients without a session.
    pub(super) fn has_sparse_copies(&self) -> bool {
        self.sparse_copies.load(Ordering::Relaxed)
    }

    /// Calls the engine for this session, and keeps the index of assisted sessions up to date. `None`
    /// after a fault in it, or when the session has ended; then there may be datagrams that have
    /// waited for the server.
    pub(super) fn assist<R>(
        &self,
        session: &Arc<S>,
        route: &RouteContext,
        transfer: &Transfer,
        action: impl FnOnce(&mut Flow) -> R,
    ) -> (Option<R>, Option<Box<Outbox>>) {
        let mut assistance = self.assistance.lock();
        let result = assistance.run(route, action);
        self.note(&mut assistance, session, transfer);
        (result, assistance.take_rescued())
    }

    /// Calls the engine for this session for the last time.
    pub(super) fn end(
        &self,
        session: &Arc<S>,
        route: &RouteContext,
        transfer: &Transfer,
        action: impl FnOnce(&mut Flow),
    ) -> Option<Box<Outbox>> {
        let mut assistance = self.assistance.lock();
        assistance.run(route, action);
        assistance.finish(route);
        self.note(&mut assistance, session, transfer);
        assistance.take_rescued()
    }

    /// Applies the assistance settings of a changed configuration. The outbox gets the engine's
    /// messages.
    pub(super) fn follow_route(
        &self,
        session: &Arc<S>,
        route: &RouteContext,
        transfer: &Transfer,
        outbox: &mut Outbox,
    ) {
        let mut assistance = self.assistance.lock();
        assistance.follow_route(route, outbox);
        self.note(&mut assistance, session, transfer);
        let sparse_copies = route.engine.config().sparse_copies;
        self.sparse_copies.store(sparse_copies, Ordering::Relaxed);
    }

    /// Notes the engine's present state of the session.
    fn note(&self, assistance: &mut Assistance, session: &Arc<S>, transfer: &Transfer) {
        if let Some((before, now)) = assistance.replaced_sessions() {
            self.index.replace(session, before, now);
        }
        // A session that a client without a cookie has asked for also has ids.
        let is_assisted = assistance.is_assisted();
        if is_assisted && !self.is_assisted() {
            transfer.set_arm(Arm::Assisted);
        }
        self.assisted.store(is_assisted, Ordering::Relaxed);
        self.recorded.store(assistance.records(), Ordering::Relaxed);
    }

    /// Has the engine tell of each step, or not any more; what it tells is kept in the environment's
    /// observations.
    pub(crate) fn observe(&self, observed: bool) {
        self.assistance.lock().observe(observed);
    }

    /// The engine's counts for this session, its levels, and the session that assists it.
    pub(super) fn figures(
        &self,
        route: &RouteContext,
    ) -> (FlowCounters, FlowGauges, Option<SessionId>) {
        self.assistance.lock().figures(route)
    }

    /// Notes what became of a question of the client.
    pub(crate) fn note_outcome(&self, outcome: HandshakeOutcome) {
        let refusal = match outcome {
            // Questions in between.
            HandshakeOutcome::Offered | HandshakeOutcome::Malformed => return,
            HandshakeOutcome::Accepted | HandshakeOutcome::AcceptedWithoutCookie => None,
            refusal => Some(refusal),
        };
        *self.refusal.lock() = refusal;
    }

    /// The refusal of the client's last question, if it was refused.
    pub(super) fn refusal(&self) -> Option<HandshakeOutcome> {
        *self.refusal.lock()
    }
}
