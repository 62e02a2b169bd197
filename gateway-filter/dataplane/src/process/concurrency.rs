//! Tests of what the threads of a data plane share, in many orders of their steps (`make check-concurrency`):
//! mailboxes, the session table, slots, capacity, pending datagrams, a route's configuration.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

#[path = "../../../engine/src/concurrency/explore.rs"]
mod explore;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use packrat_api::route::{RouteConfig, StreamRoute};
use packrat_api::status::Stage;
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use shuttle::thread::{self, JoinHandle};

use super::io_thread::IoThread;
use crate::context::{Arm, Environment, Transferred};
use crate::listener::{Command, Forwarder, Mailboxes};
use crate::metrics::{Metric, definitions};
use crate::route::{Disposition, Moved, Opened, PendingDatagrams, Route};
use crate::session::{AssistedSessions, ClientPath, Session, UpstreamState, UpstreamStateCell};
use crate::socket::{
    Capacity, ClientAddress, Descriptors, Ecn, GsoBatch, ListenerAddress, Reader, RouteRoom, Slot,
};
use crate::sync::Mutex;
use explore::explore;

const TEST_TIME: Timestamp = Timestamp::from_millis(1);

/// A route, and the threads' way to it.
struct World {
    environment: Arc<Environment>,
    route: Arc<Route>,
    mailboxes: Arc<Mailboxes>,
}

fn endpoint(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn config(port: u16) -> RouteConfig {
    RouteConfig::new("web", [endpoint(port)]).unwrap()
}

impl World {
    fn new(config: RouteConfig) -> Arc<Self> {
        let environment = Environment::silent(100);
        let route = Arc::new(Route::new(config, Arc::clone(&environment)).unwrap());
        Arc::new(Self { environment, route, mailboxes: Arc::new(Mailboxes::new(1).unwrap()) })
    }

    fn path(&self, port: u16) -> ClientPath {
        let slot = self.route.slot(ListenerAddress::new(endpoint(1)), 0);
        ClientPath { client: ClientAddress::new(([192, 0, 2, 1], port).into()), slot, local: None }
    }

    fn forwarder(&self) -> Forwarder {
        Forwarder::new(Arc::clone(&self.mailboxes), 0)
    }

    /// Finds or opens a session, as for a datagram of this client.
    fn session(&self, port: u16) -> Option<Arc<Session>> {
        self.forwarder().find_or_open(&self.route, &self.path(port), None, None, TEST_TIME)
    }

    /// Moves the session, as for a client that has proved to be at another port.
    fn move_to(&self, session: &Arc<Session>, port: u16) {
        session.assist(|_| {
            let moved = self.route.sessions.move_client(session, &self.path(port), TEST_TIME);
            if let Moved::From(_, Some(displaced)) = moved {
                self.mailboxes.post(0, Command::Close(displaced));
            }
        });
    }

    fn io_thread(self: &Arc<Self>) -> JoinHandle<()> {
        let world = Arc::clone(self);
        thread::spawn(move || {
            let (environment, mailboxes) =
                (Arc::clone(&world.environment), Arc::clone(&world.mailboxes));
            IoThread::new(0, environment, mailboxes).run(world.mailboxes.of(0).unwrap());
        })
    }

    fn spawn(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let world = Arc::clone(self);
        thread::spawn(move || work(&world))
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_command_that_is_posted_is_never_slept_on() {
    explore(|| {
        let mailboxes = Arc::new(Mailboxes::new(1).unwrap());
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let mailboxes = Arc::clone(&mailboxes);
                thread::spawn(move || (0..2).for_each(|_| mailboxes.post(0, Command::FollowRoutes)))
            })
            .collect();
        let mailbox = mailboxes.of(0).unwrap();
        let (mut taken, mut ready) = (0, Vec::new());
        loop {
            taken += mailbox.take().len();
            if taken == 4 {
                break;
            }
            mailbox.poller.wait(None, &mut ready, || mailbox.is_empty()).unwrap();
        }
        join(posters);
        assert!(mailbox.is_empty());
    });
}

/// A route never has more sessions than its limit, and a free place is given to the next session.
#[test]
fn a_routes_sessions_reach_but_never_exceed_its_limit() {
    explore(|| {
        let world = World::new(RouteConfig { maximum_sessions: 1, ..config(9) });
        let first = world.session(1).unwrap();
        let openers = [2, 3].map(|port| {
            world.spawn(move |world| {
                for _ in 0..2 {
                    let opened = world.route.sessions.open(
                        &world.route.context,
                        &world.path(port),
                        None,
                        0,
                        TEST_TIME,
                    );
                    let count = world.route.sessions.count();
                    assert!(count <= 1, "{count} sessions of 1");
                    assert!(!matches!(opened, Some(Opened::Before(_))) || count == 1);
                }
            })
        });
        assert!(world.route.sessions.remove(&first, TEST_TIME, None));
        let opened = world.session(4);
        join(openers);
        // Refused only because another one has the place.
        let others = [2, 3]
            .into_iter()
            .filter_map(|port| world.route.sessions.peek(world.path(port).network()));
        assert_eq!(others.count() + opened.iter().count(), 1);
        assert_eq!(world.route.sessions.count(), 1);
    });
}

#[test]
fn sessions_that_open_move_and_close_at_once_leave_right_counts() {
    explore(|| {
        let world = World::new(config(9));
        let io_thread = world.io_thread();
        let moving = world.session(1).unwrap();
        // The moving one, and perhaps another.
        let check = |world: &World| {
            let sessions = world.route.metrics().get(Metric::Sessions);
            assert!((1..=2).contains(&sessions), "{sessions} sessions of one or two");
        };
        let opener = world.spawn(move |world| {
            world.session(2);
            check(world);
        });
        let mover = {
            let moving = Arc::clone(&moving);
            world.spawn(move |world| {
                world.move_to(&moving, 2);
                check(world);
            })
        };
        let reader = world.spawn(move |world| {
            for _ in 0..8 {
                check(world);
                thread::yield_now();
            }
        });
        join([opener, mover, reader]);
        world.mailboxes.post(0, Command::Stop);
        join([io_thread]);
        let metrics = world.route.metrics();
        assert_eq!((metrics.get(Metric::Sessions), world.route.sessions.count()), (0, 0));
        assert_eq!(metrics.get(Metric::SessionsOpened), metrics.get(Metric::SessionsClosed));
        drop(moving);
        assert_eq!(world.environment.capacity.taken(), 0);
    });
}

#[test]
fn clients_that_swap_paths_neither_deadlock_nor_get_lost() {
    explore(|| {
        let world = World::new(config(9));
        let sessions = [1, 2].map(|port| world.session(port).unwrap());
        let [one, other] = sessions.clone();
        let moved = Arc::clone(&other);
        let threads = [
            world.spawn(move |world| world.move_to(&one, 2)),
            world.spawn(move |world| world.move_to(&moved, 1)),
            world.spawn(move |world| {
                world.route.sessions.remove(&other, TEST_TIME, None);
                world.session(2);
            }),
        ];
        join(threads);
        let mut found = 0;
        for port in [1, 2] {
            let Some(session) = world.route.sessions.peek(world.path(port).network()) else {
                continue;
            };
            assert_eq!(session.network(), world.path(port).network());
            assert!(!session.is_closed() && !session.is_displaced());
            found += 1;
        }
        assert_eq!(world.route.sessions.count(), found);
        // What a server still sends to one that gave way goes to the client that took its path.
        for session in sessions {
            let Some(successor) = session.successor() else { continue };
            let there = world.route.sessions.peek(session.network()).map(|there| there.id);
            assert!(there == Some(successor.id) || successor.is_closed());
        }
    });
}

#[test]
fn a_session_opened_during_a_route_change_follows_the_change() {
    explore(|| {
        let world = World::new(config(9));
        let client = world.spawn(|world| {
            world.session(1);
        });
        world.route.context.reconfigure(config(10)).unwrap();
        join([client]);
        // Its client's next datagram.
        let session = world.session(1).unwrap();
        assert_eq!(session.upstream().endpoint().get(), endpoint(10));
    });
}

#[test]
fn a_session_ends_up_at_the_endpoint_of_the_last_change() {
    explore(|| {
        let world = World::new(config(9));
        world.session(1).unwrap();
        let changes = [9, 10].map(|port| {
            world.spawn(move |world| {
                world.route.context.reconfigure(config(port)).unwrap();
                world.session(1);
            })
        });
        world.route.context.reconfigure(config(11)).unwrap();
        world.session(1);
        join(changes);
        let session = world.session(1).unwrap();
        let configured = world.route.context.settings().config.endpoints.clone();
        assert_eq!([session.upstream().endpoint().get()], configured[..]);
    });
}

#[test]
fn a_late_thread_does_not_restore_an_earlier_configuration() {
    explore(|| {
        let world = World::new(config(9));
        // A server that has answered keeps its client for as long as it can be reached.
        let session = world.session(1).unwrap();
        session.note_question();
        session.note_answer(Timestamp::from_millis(5));
        world.route.context.reconfigure(RouteConfig { maximum_sessions: 5, ..config(9) }).unwrap();
        let earlier = world.spawn(|world| {
            world.session(1);
        });
        world.route.context.reconfigure(config(10)).unwrap();
        world.session(1);
        join([earlier]);
        let _ = session.note_unreachable();
        assert_eq!(session.upstream().endpoint().get(), endpoint(10));
    });
}

#[test]
fn a_draining_route_takes_no_client_in_any_configuration() {
    explore(|| {
        let world = World::new(config(9));
        let configuring = world.spawn(|world| {
            world.route.context.reconfigure(config(10)).unwrap();
            world.route.context.show_limits();
        });
        world.route.context.drain();
        join([configuring]);
        assert!(!world.route.context.engine.config().begins_sessions);
        assert_eq!(world.route.context.settings().config.endpoints, [endpoint(10)]);
    });
}

#[test]
fn the_limits_that_are_shown_last_are_those_in_force() {
    explore(|| {
        let world = World::new(config(9));
        let changes = [5, 6].map(|maximum_sessions| {
            world.spawn(move |world| {
                world
                    .route
                    .context
                    .reconfigure(RouteConfig { maximum_sessions, ..config(9) })
                    .unwrap();
                world.route.context.show_limits();
            })
        });
        join(changes);
        let in_force = world.route.context.settings().config.maximum_sessions;
        let mut values = definitions().iter().zip(world.route.metrics().values());
        let shown = values.find(|(definition, _)| definition.name == "packrat_sessions_limit");
        assert_eq!(shown.unwrap().1, in_force);
    });
}

/// Sessions that have ended, each of a network of its own: assisted ones are slower.
fn compare(world: &World, numbers: std::ops::Range<u8>) {
    for number in numbers {
        let (arm, microseconds) = match number % 2 {
            0 => (Arm::Assisted, 2_000_000),
            _ => (Arm::Holdout, 1_000_000),
        };
        let transferred =
            Transferred { arm, bytes: 1_000_000, microseconds, recorded: 0, missing: 0 };
        let client = IpAddr::from([192, number, 0, 1]);
        let _ = world.route.context.compare(&transferred, client, TEST_TIME);
    }
}

#[test]
fn assistance_stops_by_itself_unless_the_policy_just_changed() {
    explore(|| {
        let compared = RouteConfig { holdout: 0.5, ..config(9) };
        let world = World::new(compared.clone());
        compare(&world, 0..70);
        assert!(world.route.context.engine.config().assist, "too early to say anything");
        let ends = world.spawn(|world| compare(world, 70..100));
        let policy = RouteConfig { repair_budget: 0.2, ..compared };
        world.route.context.reconfigure(policy).unwrap();
        join([ends]);
        let context = &world.route.context;
        let stage = context.comparison().unwrap().stage;
        let is_stopped = context.metrics.get(Metric::AssistanceStopped) == 1;
        assert_eq!(
            (stage == Stage::Stopped, !context.engine.config().assist),
            (is_stopped, is_stopped)
        );
        assert_eq!(context.engine.config().repair_budget, 0.2);
        // Of clients that ask when the stop is over one begins the trial.
        let later = Timestamp::from_millis(3_600_000 * 2);
        let before = context.generation();
        join([0, 1].map(|_| world.spawn(move |world| world.route.context.try_again(later))));
        assert_eq!(context.generation() - before, u64::from(is_stopped));
        assert!(context.engine.config().assist);
    });
}

#[test]
fn a_session_that_was_assisted_once_counts_as_assisted() {
    explore(|| {
        let world = World::new(config(9));
        let session = world.session(1).unwrap();
        join([Arm::Holdout, Arm::Assisted, Arm::Holdout].map(|arm| {
            let session = Arc::clone(&session);
            world.spawn(move |_| session.transfer.set_arm(arm))
        }));
        [1, 2].into_iter().for_each(|at| session.transfer.note(Timestamp::from_millis(at)));
        let losses = session.losses();
        let transferred = session.transfer.count(1_000_000, losses, &world.route.context.metrics);
        assert_eq!(transferred.map(|transferred| transferred.arm), Some(Arm::Assisted));
    });
}

#[test]
fn of_two_configurations_of_a_stream_the_one_in_force_stays() {
    fn stream(maximum_clients: u32) -> RouteConfig {
        let stream = StreamRoute { maximum_clients, ..StreamRoute::new(endpoint(20)) };
        RouteConfig { stream: Some(stream), ..config(9) }
    }
    explore(|| {
        let world = World::new(config(9));
        let changes = [stream(5), stream(6), config(10)].map(|config| {
            world.spawn(move |world| {
                world.route.context.reconfigure(config).unwrap();
                world.mailboxes.follow_stream(&world.route);
            })
        });
        join(changes);
        assert_eq!(world.route.configured_stream(), world.route.context.settings().config.stream);
    });
}

/// A socket is not released while it is used, and a newer one not by the former owner.
#[test]
fn sockets_are_released_unused_and_only_by_their_owner() {
    explore(|| {
        let slot = Arc::new(Slot::new(ListenerAddress::new(endpoint(1))));
        let descriptors = Arc::new(Descriptors::default());
        let fill = |slot: &Slot, descriptors: &Descriptors, owner| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            slot.fill(descriptors, owner, Reader::IoThread, |_| Ok(socket.into())).unwrap();
        };
        fill(&slot, &descriptors, 1);
        let (used, owner) = (Arc::clone(&slot), (Arc::clone(&slot), Arc::clone(&descriptors)));
        let sender = thread::spawn(move || {
            used.with(|downstream| {
                let open = || {
                    // SAFETY: a number as argument, no pointers.
                    unsafe { libc::fcntl(downstream.socket().as_raw_fd(), libc::F_GETFD) >= 0 }
                };
                assert!(open());
                thread::yield_now();
                assert!(open(), "closed while it is used");
            });
        });
        let former = thread::spawn(move || {
            let (slot, descriptors) = owner;
            slot.release(&descriptors, 1);
        });
        fill(&slot, &descriptors, 2);
        join([sender, former]);
        let current = slot.with(|downstream| downstream.socket().as_raw_fd());
        let known: Vec<_> = descriptors.lock().iter().copied().collect();
        assert_eq!(known, [current.expect("the newer owner's socket")]);
    });
}

#[test]
fn descriptor_permits_stay_within_all_limits_and_return() {
    const TEST_SOURCE: [u8; 4] = [192, 0, 2, 1];
    const TEST_ROOM: RouteRoom = RouteRoom { taken: 0, limit: 1000, per_source: 1 };
    explore(|| {
        // A source may have 64 once half of all are taken.
        let capacity = Capacity::limited(128, String::new());
        let acquire = |capacity: &Arc<Capacity>, address: [u8; 4]| {
            capacity.try_acquire(address.into(), TEST_ROOM)
        };
        let mut kept: Vec<_> = (0..63).map(|_| acquire(&capacity, TEST_SOURCE).unwrap()).collect();
        let permits = Arc::new(Mutex::new(Vec::new()));
        let threads = [0, 1, 2].map(|_| {
            let (capacity, permits) = (Arc::clone(&capacity), Arc::clone(&permits));
            thread::spawn(move || {
                let permit = acquire(&capacity, TEST_SOURCE);
                permits.lock().extend(permit);
            })
        });
        join(threads);
        assert_eq!(permits.lock().len(), 1, "above the share of the source");
        kept.extend((0..64u8).map(|number| acquire(&capacity, [10, 0, 0, number]).unwrap()));
        assert!(acquire(&capacity, [10, 0, 1, 1]).is_err());
        let leaving = std::mem::take(&mut *permits.lock());
        let leaver = thread::spawn(move || drop(leaving));
        let taker = Arc::clone(&capacity);
        let taker = thread::spawn(move || {
            let taken = acquire(&taker, [10, 0, 1, 2]);
            assert!(taker.taken() <= 128 && (taken.is_ok() || taker.taken() >= 127));
        });
        join([leaver, taker]);
        assert_eq!(capacity.taken(), 127);
        drop(kept);
        assert_eq!(capacity.taken(), 0);
    });
}

#[test]
fn pending_datagrams_are_neither_lost_nor_taken_twice() {
    explore(|| {
        let world = World::new(config(9));
        let pending = Arc::new(PendingDatagrams::default());
        let (path, taken) = (world.path(1), Arc::new(Mutex::new(0)));
        let threads = [0, 1].map(|_| {
            let (pending, path) = (Arc::clone(&pending), path.clone());
            thread::spawn(move || {
                let batch = GsoBatch::single(&[0x41; 10], Ecn::NOT_CAPABLE);
                for _ in 0..2 {
                    assert!(matches!(
                        pending.add(&path, &[batch], TEST_TIME),
                        Disposition::Pending(_)
                    ));
                }
            })
        });
        let takers = [0, 1].map(|_| {
            let (pending, network, taken) =
                (Arc::clone(&pending), path.network(), Arc::clone(&taken));
            thread::spawn(move || *taken.lock() += pending.take(network).len())
        });
        join(threads);
        join(takers);
        let (is_empty, left) = (pending.is_empty(), pending.take(path.network()).len());
        assert_eq!((is_empty, *taken.lock() + left), (left == 0, 4));
        assert!(pending.is_empty() && pending.bytes() == 0);
    });
}

#[test]
fn the_index_of_assisted_sessions_knows_those_that_are_there() {
    const NO_SESSIONS: [Option<SessionId>; 8] = [None; 8];
    explore(|| {
        let index = Arc::new(AssistedSessions::<u8>::default());
        let named = |id: u32| {
            let mut ids = NO_SESSIONS;
            ids[0] = Some(SessionId::new(id));
            ids
        };
        // Two of one name, and one that leaves.
        let sessions = [(1, true), (1, true), (2, false)].map(|(id, stays)| {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let session = Arc::new(id as u8);
                index.replace(&session, NO_SESSIONS, named(id));
                if !stays {
                    index.replace(&session, named(id), NO_SESSIONS);
                }
            })
        });
        join(sessions);
        assert_eq!(index.with_id(SessionId::new(1)).len(), 2);
        assert!(index.with_id(SessionId::new(2)).is_empty() && !index.is_empty());
    });
}

#[test]
fn one_of_several_threads_leaves_an_endpoint() {
    explore(|| {
        let state = Arc::new(UpstreamStateCell::new(UpstreamState::Configured));
        state.set(UpstreamState::Draining);
        let left = Arc::new(Mutex::new(0));
        let threads = [0, 1, 2].map(|_| {
            let (state, left) = (Arc::clone(&state), Arc::clone(&left));
            thread::spawn(move || *left.lock() += usize::from(state.leave()))
        });
        join(threads);
        assert_eq!((*left.lock(), state.get()), (1, UpstreamState::Configured));
    });
}
