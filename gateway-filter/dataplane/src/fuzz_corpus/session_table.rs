//! The session table: paths that are opened, looked up, claimed by moves and given back; sessions
//! that speak, are silent, or leave when there is little room. The oracle is a plain list.
//!
//! Input: steps of two bytes. The kind is in the lower three bits of the first; its upper five and
//! the second name sessions, paths and times.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use packrat_api::route::RouteConfig;
use packrat_eack::SketchLimits;
use packrat_engine::{NetworkPath, Outbox, Received};
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Initiator};
use packrat_wire::identifier::IdentifierScheme;

use crate::context::{Environment, RouteContext};
use crate::process::{Places, Room, Unassured};
use crate::route::{Moved, Opened, SessionTable};
use crate::session::{ClientPath, FlowId, Session};
use crate::socket::{ClientAddress, ListenerAddress, Slot};

/// Sessions of the route, fewer than there are paths.
const MOST_SESSIONS: u64 = 10;
const CLIENTS: u8 = 4;
/// An assisted client answers a question within this time, or has gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for which an answer, and the question, count.
const ANSWER_COUNTS: Duration = Duration::from_secs(3);
/// Time after its last datagram for which a session without assistance speaks.
const SPEAKS: Duration = Duration::from_secs(10);
/// Age of its server's first answer from which it keeps its path.
const SETTLED: Duration = Duration::from_secs(3);
/// Idle timeouts: of a session that is not mutual, or displaced, and of the configuration.
const IDLE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(120)];
const ROUTE: usize = 7;

/// Client and gateway's address, however they are written.
type Key = (u8, u8);

/// The list of sessions that are not assured in which a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    New,
    Mutual,
    No,
}

/// The oracle's knowledge of a session.
struct Known {
    session: Arc<Session>,
    /// The session's key in the table; `None` when it is closed or displaced.
    at: Option<Key>,
    closed: bool,
    /// State of the session when the I/O thread has last seen it.
    listed: Listed,
    active: Timestamp,
    heard: Option<Timestamp>,
    asked: Option<Timestamp>,
}

impl Known {
    fn id(&self) -> FlowId {
        self.session.id
    }
}

struct World {
    route: Arc<RouteContext>,
    table: SessionTable,
    unassured: Unassured,
    slots: [Arc<Slot>; 3],
    known: Vec<Known>,
    now: Timestamp,
    next_nonce: u64,
}

fn environment() -> &'static Arc<Environment> {
    static ENVIRONMENT: OnceLock<Arc<Environment>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Environment::silent(1000))
}

/// Runs the steps; panics when table and oracle differ.
pub fn session_table(data: &[u8]) {
    let mut config = RouteConfig::new("fuzzed", ["127.0.0.1:9".parse().unwrap()]).unwrap();
    config.maximum_sessions = MOST_SESSIONS;
    let slot = |address: &str| Arc::new(Slot::new(ListenerAddress::new(address.parse().unwrap())));
    let mut world = World {
        route: Arc::new(RouteContext::new(config, Arc::clone(environment())).unwrap()),
        table: SessionTable::default(),
        unassured: Unassured::default(),
        slots: ["192.0.2.1:443", "192.0.2.1:444", "0.0.0.0:443"].map(slot),
        known: Vec::new(),
        // Later than anything in the environment's own time.
        now: Timestamp::from_millis(1 << 40),
        next_nonce: 1,
    };
    for step in data.chunks_exact(2) {
        let (number, detail) = (step[0] >> 3, step[1]);
        match step[0] & 7 {
            0 => world.open(detail),
            1 => world.find(detail),
            2 => world.move_client(number, detail),
            3 => world.now = world.now + Duration::from_millis(u64::from(detail) << (number % 10)),
            4 => world.remove(number, detail & 1 == 0),
            5 => world.assist(number, detail & 1 == 0),
            6 => world.speak(number, detail),
            _ => world.say_goodbye(number),
        }
        world.check();
    }
    for known in &world.known {
        known.session.end_assistance(|_| {});
    }
}

impl World {
    /// A path, and what it is. Several ways to write the same one.
    fn path(&self, detail: u8) -> (ClientPath, Key) {
        let client = detail % CLIENTS;
        let is_mapped = detail & 4 != 0;
        let port = 1000 + u16::from(client);
        let address: SocketAddr = match is_mapped {
            true => format!("[::ffff:198.51.100.1]:{port}").parse().unwrap(),
            false => ([198, 51, 100, 1], port).into(),
        };
        let (slot, local, gateway) = match detail >> 3 & 3 {
            0 => (0, None, 0),
            1 => (1, None, 1),
            // A listener at all addresses of the host: each datagram carries its destination
            // address.
            2 => (2, Some([192, 0, 2, 1]), 0),
            _ => (2, Some([192, 0, 2, 2]), 2),
        };
        let path = ClientPath {
            client: ClientAddress::new(address),
            slot: Arc::clone(&self.slots[slot]),
            local: local.map(Into::into),
        };
        (path, (client, gateway))
    }

    fn network(key: Key) -> NetworkPath {
        let gateway: [SocketAddr; 3] = [
            ([192, 0, 2, 1], 443).into(),
            ([192, 0, 2, 1], 444).into(),
            ([192, 0, 2, 2], 443).into(),
        ];
        let client = ([198, 51, 100, 1], 1000 + u16::from(key.0)).into();
        NetworkPath { client, gateway: gateway[usize::from(key.1)] }
    }

    fn at(&self, key: Key) -> Option<usize> {
        self.known.iter().position(|known| known.at == Some(key))
    }

    fn open_count(&self) -> u64 {
        self.known.iter().filter(|known| !known.closed).count() as u64
    }

    /// A session that was opened once; it may be closed.
    fn choose(&self, number: u8) -> Option<usize> {
        (!self.known.is_empty()).then(|| usize::from(number) % self.known.len())
    }

    fn open(&mut self, detail: u8) {
        let (path, key) = self.path(detail);
        let before = self.at(key);
        let is_full = self.open_count() >= MOST_SESSIONS;
        let opened = self.table.open(&self.route, &path, None, 0, self.now);
        match (opened, before) {
            (Some(Opened::Before(session)), Some(at)) => {
                assert_eq!(session.id, self.known[at].id());
            }
            (None, None) => assert!(is_full, "refused, and there is room"),
            (Some(Opened::Now(session)), None) => {
                assert!(!is_full, "more sessions than the route may have");
                let newest = self.known.last().map(Known::id);
                assert!(newest.is_none_or(|newest| newest < session.id));
                self.unassured.insert(ROUTE, session.id);
                let (at, active) = (Some(key), self.now);
                let (closed, listed, heard, asked) = (false, Listed::New, None, None);
                self.known.push(Known { session, at, closed, listed, active, heard, asked });
                self.make_room();
            }
            (opened, before) => panic!("{opened:?} where the list has {before:?}"),
        }
    }

    /// Makes room in the same way as the I/O thread after a session was opened.
    fn make_room(&mut self) {
        for _ in 0..=2 * MOST_SESSIONS {
            for known in &mut self.known {
                if known.session.is_assured() {
                    self.unassured.remove(ROUTE, known.session.id);
                    known.listed = Listed::No;
                }
            }
            let taken = self.table.count();
            let new = || self.known.iter().filter(|known| known.listed == Listed::New);
            let new_count = new().count() as u64;
            let lasting = MOST_SESSIONS - MOST_SESSIONS / 5;
            let expected = if taken > lasting && new_count > (MOST_SESSIONS - taken).max(1) {
                new().next()
            } else if taken - new_count > lasting {
                self.known.iter().rfind(|known| known.listed == Listed::Mutual)
            } else {
                None
            };
            let in_route = Room { taken, limit: MOST_SESSIONS };
            let in_process = Room { taken, limit: 1000 };
            let places = Places { in_route, in_process, threads: 1 };
            let surplus = self.unassured.surplus(ROUTE, places);
            let expected = expected.map(|known| (ROUTE, known.id()));
            assert_eq!(surplus, expected, "{taken}, {new_count} new");
            let Some((_, id)) = surplus else { return };
            let at = self.known.iter().position(|known| known.id() == id).unwrap();
            let known = &mut self.known[at];
            if known.session.is_mutual() {
                let settles = known.listed == Listed::New && taken - new_count < lasting;
                assert_eq!(self.unassured.settle(ROUTE, id, places), settles);
                if settles {
                    known.listed = Listed::Mutual;
                    continue;
                }
            }
            self.unassured.remove(ROUTE, id);
            assert!(self.table.remove(&self.known[at].session, self.now, None));
            self.close(at);
        }
        panic!("sessions leave without end");
    }

    fn close(&mut self, at: usize) {
        self.known[at].at = None;
        self.known[at].closed = true;
        self.known[at].listed = Listed::No;
        self.unassured.remove(ROUTE, self.known[at].id());
        self.known[at].session.end_assistance(|_| {});
    }

    fn find(&mut self, detail: u8) {
        let (path, key) = self.path(detail);
        let found = self.table.find(path.network(), self.now).map(|session| session.id);
        let expected = self.at(key);
        assert_eq!(found, expected.map(|at| self.known[at].id()));
        if let Some(at) = expected {
            self.known[at].active = self.now;
        }
    }

    /// The client of a session has proved to be at another path.
    fn move_client(&mut self, number: u8, detail: u8) {
        let Some(at) = self.choose(number) else { return };
        let (path, key) = self.path(detail);
        let before = self.known[at].session.network();
        let moved = self.table.move_client(&self.known[at].session, &path, self.now);
        if self.known[at].closed {
            assert!(matches!(moved, Moved::Closed), "a closed session has moved: {moved:?}");
            return;
        }
        let occupant = self.at(key).filter(|occupant| *occupant != at);
        if let Some(occupant) = occupant {
            match self.stays(occupant) {
                Some(true) => {
                    assert!(matches!(moved, Moved::Refused), "{moved:?} where another one speaks");
                    return;
                }
                None => {
                    let Moved::Held(asked) = moved else { panic!("{moved:?} of one to be asked") };
                    assert_eq!(asked.id, self.known[occupant].id());
                    return;
                }
                Some(false) => {}
            }
        }
        let Moved::From(from, displaced) = moved else {
            panic!("{moved:?} to a path that is free")
        };
        assert_eq!(from, before);
        self.known[at].at = Some(key);
        let is_closed = occupant.filter(|at| {
            let session = &self.known[*at].session;
            !session.is_assisted() && !session.has_asked()
        });
        assert_eq!(displaced.map(|session| session.id), is_closed.map(|at| self.known[at].id()));
        if let Some(occupant) = occupant {
            self.known[occupant].at = None;
            let displaced = &self.known[occupant].session;
            let successor = displaced.successor().map(|successor| successor.id);
            let is_passed_on = !displaced.is_assisted() && displaced.has_asked();
            assert_eq!(successor, is_passed_on.then(|| self.known[at].id()));
        }
        if let Some(closed) = is_closed {
            self.close(closed);
        }
    }

    /// True if the session at a path keeps it; `None`: its client has to be asked first.
    fn stays(&mut self, at: usize) -> Option<bool> {
        let now = self.now;
        let known = &mut self.known[at];
        if !known.session.is_assisted() {
            let is_old = |answered| now.saturating_since(answered) >= SETTLED;
            let is_settled = known.session.is_mutual()
                && known.session.server_side.answered().is_some_and(is_old);
            return Some(is_settled && now.saturating_since(known.active) < SPEAKS);
        }
        let asked = known.asked.filter(|asked| now.saturating_since(*asked) < ANSWER_COUNTS);
        let Some(asked) = asked else {
            known.asked = Some(now);
            return None;
        };
        if known.heard.is_some_and(|heard| heard >= asked) {
            return Some(true);
        }
        (now.saturating_since(asked) >= PATIENCE).then_some(false)
    }

    fn remove(&mut self, number: u8, is_idle_only: bool) {
        let Some(at) = self.choose(number) else { return };
        let known = &self.known[at];
        let is_displaced = known.at.is_none() && !known.closed && !known.session.is_assisted();
        let idle = IDLE[usize::from(known.session.is_mutual() && !is_displaced)];
        let timeout = known.session.idle_timeout();
        assert_eq!(timeout, idle);
        let leaves = !known.closed && (!is_idle_only || known.active + idle <= self.now);
        let removed = self.table.remove(&known.session, self.now, is_idle_only.then_some(timeout));
        assert_eq!(removed, leaves);
        if leaves {
            self.close(at);
        }
    }

    /// The client of a session asks for assistance. Only one that echoes a cookie, or that has
    /// sealed something, has proved its address.
    fn assist(&mut self, number: u8, echoes_cookie: bool) {
        let Some(at) = self.choose(number) else { return };
        let session = Arc::clone(&self.known[at].session);
        let (nonce, client) = (self.next_nonce, session.client().get());
        self.next_nonce += 1;
        let client_params = ClientParams {
            scheme: IdentifierScheme::Payload,
            limits: SketchLimits { power_sums: 100, coded_symbols: 0 },
            maximum_hold: Duration::from_millis(300),
            token: Vec::new(),
            live: None,
            numbered: None,
            ticket: None,
            bundles: false,
        };
        let noise = Initiator::new([1; 32], nonce, client_params, None).message().unwrap();
        let engine = Arc::clone(&self.route.engine);
        let (mut question, mut out) = (Vec::new(), Outbox::new());
        let first: &[u8] = if echoes_cookie { &[] } else { &noise };
        Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise: first }
            .encode(&mut question);
        let mut received = engine.receive(&question, client, self.now, &mut out);
        if echoes_cookie {
            let offer = out.datagrams().next().map(<[u8]>::to_vec).unwrap_or_default();
            let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(&offer)
            else {
                return;
            };
            question.clear();
            Control::Init { nonce, cookie_time, cookie, noise: &noise }.encode(&mut question);
            out.clear();
            received = engine.receive(&question, client, self.now, &mut out);
        }
        let Received::Begin(begin) = received else { return };
        let was_assisted = session.is_assisted();
        let now = self.now;
        session.assist(|flow| flow.begin(begin, [5; 32], now, &mut out));
        if !echoes_cookie {
            assert_eq!(session.is_assisted(), was_assisted, "assisted, and nothing is proved");
        }
    }

    /// A session speaks: the client, sealed or not, or the server.
    fn speak(&mut self, number: u8, detail: u8) {
        let Some(at) = self.choose(number) else { return };
        let known = &mut self.known[at];
        let totals = &known.session.totals;
        match detail & 3 {
            0 => {
                known.session.note_heard(Some(self.now));
                known.heard = known.heard.max(Some(self.now));
            }
            1 => {
                known.session.note_question();
                totals.to_server_datagrams.fetch_add(1, Ordering::Relaxed);
            }
            2 => {
                known.session.note_answer(self.now);
                totals.to_client_datagrams.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                known.session.touch(self.now);
                known.active = self.now;
            }
        }
    }

    fn say_goodbye(&mut self, number: u8) {
        if let Some(at) = self.choose(number) {
            self.known[at].session.end_assistance(|_| {});
            assert!(!self.known[at].session.is_assisted());
        }
    }

    fn check(&self) {
        assert_eq!(self.table.count(), self.open_count());
        for client in 0..CLIENTS {
            for gateway in 0..3 {
                let key = (client, gateway);
                let found = self.table.peek(Self::network(key)).map(|session| session.id);
                assert_eq!(found, self.at(key).map(|at| self.known[at].id()), "at {key:?}");
            }
        }
        for known in &self.known {
            let session = &known.session;
            assert_eq!(session.is_closed(), known.closed);
            assert_eq!(
                session.is_displaced() && !known.closed,
                known.at.is_none() && !known.closed
            );
            assert_eq!(session.idle_since(), known.active);
            if let Some(key) = known.at {
                assert_eq!(session.network(), Self::network(key));
            }
            let numbered = self.table.numbered(session.id.get()).is_some();
            assert_eq!(numbered, known.at.is_some());
            let twice = |total: &crate::sync::atomic::AtomicU64| total.load(Ordering::Relaxed) >= 2;
            let totals = &session.totals;
            let both = twice(&totals.to_client_datagrams) && twice(&totals.to_server_datagrams);
            assert_eq!(session.is_assured(), session.is_assisted());
            assert_eq!(session.is_mutual(), both || session.is_assisted());
        }
        let busiest = self.table.busiest(usize::MAX);
        assert_eq!(busiest.len(), self.known.iter().filter(|known| known.at.is_some()).count());
    }
}
