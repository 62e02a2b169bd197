//! A change of the configuration applies to sessions that run, without a loss for any of them.

use packrat_client::RefusalReason;
use packrat_dataplane::RouteConfig;

use crate::client::{Client, connect, transfer, transfer_until_repaired};
use crate::gateway::{self, Gateway, config, socket};

/// Datagrams of one transfer; the last mile loses one of twenty.
const DATAGRAMS: usize = 200;
const CACHE_BYTES: u64 = 12 * 1024;

#[test]
fn budget_cache_and_key_change_under_a_session_that_runs() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    let mut first = 0;
    let repairs = || gateway.metric("repairs_total");
    let mut change = |what: &str, has_repairs: bool, change: &dyn Fn(&mut RouteConfig)| {
        let mut changed = config(&[&server]);
        change(&mut changed);
        gateway.dataplane.configure(changed).unwrap();
        if has_repairs {
            transfer_until_repaired(&mut client, &server, upstream, first, repairs);
        } else {
            transfer(&mut client, &server, upstream, first..first + DATAGRAMS);
        }
        first += 1_000_000;
        assert_eq!(gateway.metric("sessions_begun_total"), 1, "{what}: the session went");
        assert_eq!(gateway.metric("sessions_assisted"), 1, "{what}");
    };
    change("as it was", true, &|_| {});
    let before = gateway.metric("cache_high_water_bytes");
    assert!(before > CACHE_BYTES, "{before} bytes");
    let before = repairs();
    change("no budget", false, &|config| config.repair_budget = 0.0);
    // The first eACK after the change may still be answered with a repair.
    assert!(repairs() <= before + 1, "{} repairs without a budget", repairs() - before);
    change("a small cache", true, &|config| config.cache_bytes_per_session = CACHE_BYTES);
    assert!(gateway.metric("cache_bytes") <= CACHE_BYTES);
    let key = "11".repeat(32);
    change("another key", true, &|config| {
        config.static_key = Some(packrat_api::route::Hidden::new(key.clone()));
    });
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
}

#[test]
fn sessions_that_run_count_towards_a_limit_that_has_changed() {
    let server = socket("127.0.0.1:0");
    let limited = |sessions: u32| {
        let mut limited = config(&[&server]);
        limited.sessions_per_source = sessions;
        limited
    };
    let gateway = Gateway::start("127.0.0.1:0", limited(10));
    let (mut first, upstream) = connect(gateway.listen, &server);
    let _second = connect(gateway.listen, &server);
    gateway.dataplane.configure(limited(2)).unwrap();
    let mut third = Client::new(gateway.listen);
    third.socket.send(b"hello").unwrap();
    assert_eq!(gateway::receive(&server).0, b"hello");
    assert_eq!(third.wait_for_refusal(), RefusalReason::Full);
    assert_eq!(gateway.metric("sessions_assisted"), 2, "none that runs has ended");
    transfer(&mut first, &server, upstream, 0..DATAGRAMS);
    gateway.dataplane.configure(limited(3)).unwrap();
    let _third = connect(gateway.listen, &server);
    assert_eq!(gateway.metric("sessions_assisted"), 3);
}
