//! A gateway's flow and a client's shim in virtual time: messages to the gateway, and whose turn it
//! is.
#![allow(dead_code)] // every test uses a part of it

pub(crate) mod pair;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{AssistState, ClientConfig, Input, Released, Shim, Timestamp, Verdict};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, FlowCounters, Gateway, Outbox, Received};
use packrat_wire::is_control;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A control datagram of the client at `from` reaches the gateway. A session that begins takes
/// `random`.
pub(crate) fn hear(
    gateway: &Gateway,
    flow: &mut Flow,
    said: &[u8],
    from: SocketAddr,
    random: [u8; 32],
    now: Timestamp,
    out: &mut Outbox,
) {
    match gateway.receive(said, from, now, out) {
        Received::Done(_) => {}
        Received::Begin(begin) => {
            flow.begin(begin, random, now, out);
        }
        Received::ForFlow => flow.control(said, now, out),
    }
}

/// A datagram that looks like one of QUIC, and contains its number.
pub(crate) fn datagram(number: u64, length: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut bytes = vec![0x40; length];
    random.fill_bytes(&mut bytes[1..]);
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// An occurrence: a datagram that has passed the last mile, or one of a world's own.
#[derive(Debug)]
pub(crate) enum Event<E> {
    ToClient(Vec<u8>),
    ToGateway(Vec<u8>),
    Own(E),
}

/// A gateway with one flow and a client's shim, in virtual time.
pub(crate) struct Ends<M: Clone, E> {
    pub(crate) now: Timestamp,
    pub(crate) random: ChaCha8Rng,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) client: SocketAddr,
    pub(crate) flow: Flow,
    pub(crate) shim: Shim<M>,
    pub(crate) schedule: Schedule<Event<E>>,
    pub(crate) counters: FlowCounters,
}

impl<M: Clone, E> Ends<M, E> {
    pub(crate) fn new(gateway: Arc<Gateway>, config: ClientConfig, seed: u64) -> Self {
        Self::at(Timestamp::from_millis(1000), gateway, config, seed)
    }

    /// Both ends, from this time on.
    pub(crate) fn at(
        now: Timestamp,
        gateway: Arc<Gateway>,
        config: ClientConfig,
        seed: u64,
    ) -> Self {
        Self {
            now,
            random: ChaCha8Rng::seed_from_u64(seed),
            client: ([192, 0, 2, 1], 5000).into(),
            flow: Flow::new(Arc::clone(&gateway)),
            gateway,
            shim: Shim::new(config, [9; 32], now),
            schedule: Schedule::new(),
            counters: FlowCounters::default(),
        }
    }

    /// The gateway's process starts anew: it has forgotten its sessions.
    pub(crate) fn restart(&mut self, gateway: Arc<Gateway>) {
        self.flow = Flow::new(Arc::clone(&gateway));
        self.gateway = gateway;
    }

    pub(crate) fn plan(&mut self, after: Duration, event: Event<E>) {
        self.schedule.plan(self.now + after, event);
    }

    pub(crate) fn happens(&mut self, per_mille: u32) -> bool {
        self.random.next_u32() % 1000 < per_mille
    }

    /// A datagram of the server as the gateway forwards it; false: without a number.
    pub(crate) fn forward(&mut self, mut bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let header = self.flow.forward(&bytes, self.now);
        let is_numbered = header.is_some();
        bytes.splice(..0, header.into_iter().flatten());
        (bytes, is_numbered)
    }
}

/// The surroundings of both ends: a last mile, a server and a transport.
pub(crate) trait World {
    /// Metadata that datagrams have in the shim.
    type Beside: Clone;
    type Own;

    fn ends(&mut self) -> &mut Ends<Self::Beside, Self::Own>;
    fn beside(&mut self) -> Self::Beside;
    fn happen(&mut self, event: Self::Own);
    /// The gateway sends a datagram towards the client.
    fn down(&mut self, bytes: Vec<u8>);
    /// The client sends a message towards the gateway.
    fn up(&mut self, bytes: Vec<u8>);
    /// The client's transport gets a datagram.
    fn pass(&mut self, bytes: &[u8], beside: Self::Beside);

    /// The server gets a datagram.
    fn serve(&mut self, _bytes: &[u8]) {}

    /// The gateway has done something.
    fn look_at_gateway(&mut self, _out: &mut Outbox) {}

    /// True if the gateway is gone: datagrams reach the server without it.
    fn is_gateway_gone(&self) -> bool {
        false
    }

    /// Handles what the gateway has done and sent.
    fn flush(&mut self, out: &mut Outbox) {
        let ends = self.ends();
        ends.counters.add(&ends.flow.take_counters());
        let up: Vec<_> = out.datagrams_to_server().map(|(bytes, _)| bytes.to_vec()).collect();
        up.iter().for_each(|bytes| self.serve(bytes));
        self.look_at_gateway(out);
        let down: Vec<_> = out.datagrams().map(<[u8]>::to_vec).collect();
        out.clear();
        down.into_iter().for_each(|bytes| self.down(bytes));
    }

    /// Handles what the shim has released and sent.
    fn release(&mut self) {
        while let Some(Released { datagram, metadata }) = self.ends().shim.poll_deliver() {
            self.pass(&datagram, metadata);
        }
        loop {
            let Ends { shim, now, .. } = self.ends();
            let Some(said) = shim.poll_transmit(*now) else { break };
            self.up(said);
        }
    }

    /// A datagram arrives at the client.
    fn arrive(&mut self, bytes: &[u8]) {
        let beside = self.beside();
        let Ends { shim, now, .. } = self.ends();
        if let Verdict::Now { skip, metadata } = shim.on_datagram(bytes, beside, *now) {
            self.pass(&bytes[skip..], metadata);
        }
        self.release();
    }

    /// A datagram arrives at the gateway.
    fn hear(&mut self, said: &[u8]) {
        if self.is_gateway_gone() {
            return self.serve(said);
        }
        let Ends { gateway, flow, client, now, .. } = self.ends();
        let mut out = Outbox::new();
        if flow.receive_upward(said, 0, *now, &mut out) {
        } else if is_control(said) {
            hear(gateway, flow, said, *client, [5; 32], *now, &mut out);
        } else {
            return self.serve(said);
        }
        self.flush(&mut out);
    }

    /// Lets happen what happens until this time.
    fn run_until(&mut self, end: Timestamp) {
        while self.ends().now < end {
            let is_gone = self.is_gateway_gone();
            let Ends { now, flow, shim, schedule, .. } = self.ends();
            let Some(turn) = next(now, (!is_gone).then_some(flow), shim, schedule) else { break };
            match turn {
                Turn::Flow(mut out) => self.flush(&mut out),
                Turn::Shim => self.release(),
                Turn::Event(Event::ToClient(bytes)) => self.arrive(&bytes),
                Turn::Event(Event::ToGateway(said)) => self.hear(&said),
                Turn::Event(Event::Own(event)) => self.happen(event),
            }
        }
    }
}

/// The number in a [`datagram`] of this length; `None` for other bytes.
pub(crate) fn number_of(bytes: &[u8], length: usize) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.get(1..)?.first_chunk()?);
    (*bytes == datagram(number, length)).then_some(number)
}

/// An assisted flow of an address of its own, and its client, whose sessions begin one after the
/// other: a thread has only so much time for all of them at once.
pub(crate) fn assisted(gateway: &Arc<Gateway>, number: u32, uploads: bool) -> (Flow, Shim<()>) {
    let mut random = ChaCha8Rng::seed_from_u64(number.into());
    let [mut of_client, mut of_session] = [[0; 32]; 2];
    random.fill_bytes(&mut of_client);
    random.fill_bytes(&mut of_session);
    let (mut out, mut flow) = (Outbox::new(), Flow::new(Arc::clone(gateway)));
    let begin = Timestamp::from_millis(1000 + u64::from(number));
    let config = ClientConfig::default().with_uploads(uploads);
    let mut client = Shim::new(config, of_client, begin);
    let peer = (std::net::Ipv4Addr::from(0x0a00_0000 + number), 443).into();
    for _ in 0..4 {
        while let Some(question) = client.poll_transmit(begin) {
            hear(gateway, &mut flow, &question, peer, of_session, begin, &mut out);
        }
        for answer in out.datagrams() {
            let _ = client.on_datagram(answer, (), begin);
        }
        out.clear();
    }
    assert!(flow.is_assisted());
    assert_eq!(client.assistance().state, AssistState::Established);
    (flow, client)
}

/// The next occurrence in virtual time.
#[derive(Debug)]
pub(crate) enum Turn<E> {
    /// A timeout of the flow, with its outbox.
    Flow(Outbox),
    /// A timeout of the shim.
    Shim,
    /// A planned event.
    Event(E),
}

/// Goes on to the next occurrence; `None` if there will be no other. Timeouts come first at the
/// same time. `flow`: `None` when the gateway is gone.
pub(crate) fn next<M: Clone, E>(
    now: &mut Timestamp,
    flow: Option<&mut Flow>,
    shim: &mut Shim<M>,
    schedule: &mut Schedule<E>,
) -> Option<Turn<E>> {
    let of_flow = flow.as_ref().and_then(|flow| flow.next_timeout());
    let of_shim = shim.next_timeout();
    let at = [schedule.next_at(), of_flow, of_shim].into_iter().flatten().min()?;
    *now = at.max(*now);
    if let Some(flow) = flow.filter(|_| of_flow == Some(at)) {
        let mut out = Outbox::new();
        flow.handle_timeout(*now, &mut out);
        Some(Turn::Flow(out))
    } else if of_shim == Some(at) {
        shim.handle(Input::Timeout, *now);
        Some(Turn::Shim)
    } else {
        schedule.pop().map(|(_, event)| Turn::Event(event))
    }
}
