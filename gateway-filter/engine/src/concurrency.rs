//! Tests of what the threads of a gateway share, in many orders of their steps (`make
//! concurrency`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod explore;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use packrat_eack::SketchLimits;
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Initiator};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::GoodbyeReason;
use shuttle::thread;

use crate::admission::Network;
use crate::admission::SessionPermit;
use crate::budget::{GatewayBudget, SourceBudget};
use crate::gateway::{Begin, COOKIE_SECRET_LIFETIME, Gateway, HandshakeOutcome, Received};
use crate::loss_memory::LossMemory;
use crate::sender_memory::{Finding, SenderMemory};
use crate::sync::Mutex;
use crate::{Flow, GatewayConfig, Outbox};
use explore::explore;

const TEST_TIME: Timestamp = Timestamp::ZERO;

fn gateway(config: GatewayConfig) -> Arc<Gateway> {
    Gateway::new(config, [1; 32], [2; 32])
}

/// Runs `work` on three threads, and waits for them.
fn on_three_threads(work: impl Fn(u8) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(number))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn address(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

#[test]
fn permits_stay_within_the_limit_and_are_all_returned() {
    explore(|| {
        let gateway = gateway(GatewayConfig { maximum_sessions: 2, ..GatewayConfig::default() });
        let shared = Arc::clone(&gateway);
        on_three_threads(move |number| {
            for _ in 0..2 {
                let permit = SessionPermit::new(&shared, address(number), TEST_TIME);
                let sessions = shared.sessions();
                assert!(sessions <= 2, "{sessions} sessions of 2");
                assert!(permit.is_none() || sessions > 0, "a permit that is not counted");
            }
        });
        assert_eq!(gateway.sessions(), 0);
        let permits: Vec<_> =
            (0..3).map(|number| SessionPermit::new(&gateway, address(number), TEST_TIME)).collect();
        assert_eq!(permits.iter().flatten().count(), 2, "room that no session has given back");
    });
}

#[test]
fn a_sources_limit_of_sessions_holds_over_all_threads() {
    explore(|| {
        let config = GatewayConfig { sessions_per_source: 2, ..GatewayConfig::default() };
        let gateway = gateway(config);
        let (shared, kept) = (Arc::clone(&gateway), Arc::new(Mutex::new(Vec::new())));
        let all = Arc::clone(&kept);
        on_three_threads(move |_| {
            if let Some(permit) = SessionPermit::new(&shared, address(1), TEST_TIME) {
                all.lock().unwrap().push(permit);
            }
        });
        let mut kept = kept.lock().unwrap();
        assert_eq!((kept.len(), gateway.sessions()), (2, 2));
        kept.clear();
        assert!(SessionPermit::new(&gateway, address(1), TEST_TIME).is_some());
    });
}

#[test]
fn all_sessions_memory_stays_within_the_total_and_is_returned() {
    const TOTAL_BYTES: usize = 1 << 20;
    explore(|| {
        let gateway =
            gateway(GatewayConfig { cache_bytes_total: TOTAL_BYTES, ..GatewayConfig::default() });
        let shared = Arc::clone(&gateway);
        on_three_threads(move |number| {
            let mut permit = SessionPermit::new(&shared, address(number), TEST_TIME).unwrap();
            let held = || shared.admission.cache_bytes.load(Ordering::Relaxed);
            for bytes in [500_000, 100_000] {
                permit.try_take(bytes);
                assert!(held() <= TOTAL_BYTES, "{} bytes of {TOTAL_BYTES}", held());
            }
            permit.hold(1000);
            permit.try_take(200_000);
            assert!(held() <= TOTAL_BYTES && held() >= permit.held());
        });
        let held = gateway.admission.cache_bytes.load(Ordering::Relaxed);
        assert_eq!((held, gateway.sessions()), (0, 0));
        let mut permit = SessionPermit::new(&gateway, address(1), TEST_TIME).unwrap();
        assert!(
            permit.try_take(TOTAL_BYTES / 3 * 2 - 2),
            "its source is charged for what others have returned"
        );
    });
}

#[test]
fn repairs_of_all_threads_stay_within_their_sources_budget() {
    const COST_BYTES: usize = 300_000;
    explore(|| {
        let budgets = Arc::new((GatewayBudget::new(), SourceBudget::new(), Mutex::new(0)));
        let shared = Arc::clone(&budgets);
        on_three_threads(move |number| {
            let (gateway, source, taken) = &*shared;
            for _ in 0..2 {
                if gateway.take_shared(source, COST_BYTES, false) {
                    *taken.lock().unwrap() += COST_BYTES;
                }
                if number == 0 {
                    gateway.earn_for(source, 300_000, 0.5);
                }
            }
        });
        // A mebibyte at first, and two times 150,000 bytes unless the bucket was full.
        let (gateway, source, taken) = &*budgets;
        let taken = *taken.lock().unwrap();
        assert!((900_000..=1_200_000).contains(&taken), "{taken} bytes");
        let mut left = 0;
        while gateway.take_shared(source, 10_000, false) {
            left += 10_000;
        }
        assert!(taken + left <= 1_048_576 + 300_000, "{taken} and {left} bytes");
        assert!(taken + left >= 1_048_576 - 10_000, "{taken} and {left} bytes: some have got lost");
    });
}

#[test]
fn work_for_a_source_is_charged_in_full_on_all_threads() {
    explore(|| {
        let gateway = gateway(GatewayConfig::default());
        let permit = SessionPermit::new(&gateway, address(1), TEST_TIME).unwrap();
        let before = gateway.work().spent();
        let permit = Arc::new(permit);
        let shared = Arc::clone(&permit);
        on_three_threads(move |_| {
            shared.charge_work(10_000_000, TEST_TIME);
            shared.charge_work(10_000_000, TEST_TIME);
        });
        assert_eq!(gateway.work().spent() - before, 60_000_000);
        let use_lately = permit.use_lately(TEST_TIME).unwrap();
        assert!((use_lately - 0.6).abs() < 0.01, "{use_lately} of what a thread has");
    });
}

/// An Init with the cookie that the gateway offers this client.
fn offered(gateway: &Gateway, client: SocketAddr) -> Vec<u8> {
    let (mut question, mut init, mut out) = (Vec::new(), Vec::new(), Outbox::new());
    Control::Discover { nonce: 5, versions: &[PROTOCOL_VERSION], noise: &[] }.encode(&mut question);
    gateway.receive(&question, client, TEST_TIME, &mut out);
    let answer = out.datagrams().next().unwrap();
    let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(answer) else {
        panic!("no offer")
    };
    Control::Init { nonce, cookie_time, cookie, noise: &[7; 40] }.encode(&mut init);
    init
}

#[test]
fn threads_that_find_the_cookie_secret_old_change_it_once() {
    explore(|| {
        let gateway = gateway(GatewayConfig::default());
        let client = SocketAddr::new(address(1), 5000);
        let init = offered(&gateway, client);
        let shared = Arc::clone(&gateway);
        let later = TEST_TIME + COOKIE_SECRET_LIFETIME;
        on_three_threads(move |number| {
            if shared.is_cookie_secret_old(later) {
                shared.rotate_cookie_secret([number; 32], later);
            }
        });
        // The secret before is accepted on; one that was changed twice would be forgotten.
        let received =
            gateway.receive(&init, client, TEST_TIME + Duration::from_secs(1), &mut Outbox::new());
        assert!(matches!(received, Received::Begin(_)), "{received:?}");
    });
}

#[test]
fn limits_that_change_meanwhile_leave_the_counts_right() {
    explore(|| {
        let gateway = gateway(GatewayConfig { maximum_sessions: 3, ..GatewayConfig::default() });
        let shared = Arc::clone(&gateway);
        on_three_threads(move |number| {
            if number == 0 {
                shared.reconfigure(GatewayConfig { maximum_sessions: 1, ..shared.config() });
                let before = shared.sessions();
                // Sessions that had checked the limit before may still come.
                if before >= 1
                    && let Some(permit) = SessionPermit::new(&shared, address(number), TEST_TIME)
                {
                    assert_eq!(shared.sessions(), 1, "{permit:?} above the limit in force");
                }
            } else {
                drop(SessionPermit::new(&shared, address(number), TEST_TIME));
                drop(SessionPermit::unvalidated(&shared, address(number), TEST_TIME));
            }
        });
        assert_eq!(gateway.sessions(), 0);
        let first = SessionPermit::new(&gateway, address(1), TEST_TIME);
        assert!(first.is_some() && SessionPermit::new(&gateway, address(2), TEST_TIME).is_none());
    });
}

/// The first message of a client, of which the gateway has checked the cookie.
fn begin(gateway: &Gateway) -> Option<Begin> {
    let client_params = ClientParams {
        scheme: IdentifierScheme::Payload,
        limits: SketchLimits { coded_symbols: 32, power_sums: 32 },
        maximum_hold: Duration::from_millis(100),
        token: Vec::new(),
        live: None,
        numbered: None,
        ticket: None,
        bundles: false,
    };
    let noise = Initiator::new([3; 32], 5, client_params, None).message().unwrap();
    let mut datagram = Vec::new();
    Control::Discover { nonce: 5, versions: &[PROTOCOL_VERSION], noise: &noise }
        .encode(&mut datagram);
    let client = SocketAddr::new(address(1), 5000);
    match gateway.receive(&datagram, client, TEST_TIME, &mut Outbox::new()) {
        Received::Begin(begin) => Some(Begin { is_validated: true, ..begin }),
        Received::Done(outcome) => {
            assert_eq!(outcome, HandshakeOutcome::RefusedDisabled);
            None
        }
        received @ Received::ForFlow => panic!("{received:?}"),
    }
}

#[test]
fn switched_off_assistance_ends_and_does_not_begin() {
    explore(|| {
        let gateway = gateway(GatewayConfig::default());
        let flow = Arc::new(Mutex::new(Flow::new(Arc::clone(&gateway))));
        let client = {
            let (gateway, flow) = (Arc::clone(&gateway), Arc::clone(&flow));
            thread::spawn(move || {
                let Some(begin) = begin(&gateway) else { return };
                flow.lock().unwrap().begin(begin, [4; 32], TEST_TIME, &mut Outbox::new());
            })
        };
        // As a route does: the limits first, then its sessions hear of it.
        gateway.reconfigure(GatewayConfig { assist: false, ..gateway.config() });
        flow.lock().unwrap().close(GoodbyeReason::Draining, &mut Outbox::new());
        client.join().unwrap();
        assert!(!flow.lock().unwrap().is_assisted(), "a session has begun after the end of all");
        drop(flow);
        assert_eq!(gateway.sessions(), 0);
    });
}

#[test]
fn of_simultaneous_votes_one_makes_a_verdict_and_one_ends_it() {
    explore(|| {
        let memory = Arc::new(SenderMemory::default());
        let changes = Arc::new(Mutex::new(Vec::new()));
        let votes = |finding: Finding, count: u8| {
            let (memory, changes) = (Arc::clone(&memory), Arc::clone(&changes));
            on_three_threads(move |number| {
                for vote in 0..count {
                    let network = Network::largest_of([192, number, vote, 1].into());
                    let change = memory.vote(network, finding, TEST_TIME);
                    changes.lock().unwrap().extend(change);
                }
            });
        };
        votes(Finding::Tolerates, 2);
        assert_eq!(*changes.lock().unwrap(), [true]);
        votes(Finding::Answers, 1);
        assert_eq!(*changes.lock().unwrap(), [true, false]);
    });
}

#[test]
fn losses_that_threads_note_at_once_are_all_remembered() {
    explore(|| {
        let memory = Arc::new(LossMemory::default());
        let shared = Arc::clone(&memory);
        on_three_threads(move |number| {
            let own = Network::of(address(number));
            shared.note(own, 1000, 50, TEST_TIME);
            shared.note(Network::of(address(9)), 1000, u64::from(number) * 100, TEST_TIME);
            assert!(shared.expect(own, TEST_TIME) > 0.0);
        });
        let alone = LossMemory::default();
        (0..3)
            .for_each(|number| alone.note(Network::of(address(9)), 1000, number * 100, TEST_TIME));
        let of_nine = |memory: &LossMemory| memory.expect(Network::of(address(9)), TEST_TIME);
        assert!((of_nine(&memory) - of_nine(&alone)).abs() < 1e-9);
    });
}
