//! Certificates are replaced while Envoy runs: its own, the operator's, and the authority behind
//! both.

use packrat_operator::certificates::{Authority, LEAF_DAYS};

use super::envoy::replace_certificates;
use super::operator::{Cluster, UID};
use super::scene::{OneRoute, Scene, agree, exchange};

const DAY: i64 = 86_400;

/// The authority after the next step of its rotation.
fn step(authority: &Authority, due: i64) -> Authority {
    let mut authority = authority.clone();
    assert!(authority.advance(due).unwrap(), "a step is due");
    authority
}

#[test]
fn another_authority_takes_over_without_a_restart_of_envoy() {
    let now = jiff::Timestamp::now().as_second();
    // So old that the next one was announced a day ago.
    let first = Authority::generate(now - 366 * DAY).unwrap();
    let announced = step(&first, now - DAY);
    let used = step(&announced, now);
    let alone = step(&used, now + LEAF_DAYS * DAY);
    let scene = Scene::of(|| {
        let mut cluster = Cluster::new();
        cluster.authority = first.clone();
        cluster
    });
    let Some(scene) = scene else { return };
    let localhost = std::net::Ipv4Addr::LOCALHOST.into();
    let Some(route) = OneRoute::of(scene, &[], localhost, localhost) else { return };
    let OneRoute { scene, envoy, server, port, client, source } = route;
    assert!(used.bundle().contains(&first.bundle()) && !alone.bundle().contains(&first.bundle()));

    // Envoy learns the authorities to trust, then it gets a certificate of the new authority; the
    // operator has exchanged its own by then.
    replace_certificates(
        &envoy,
        &first.issue_gateway(&scene.cluster.gateway, UID, now).unwrap(),
        &announced.bundle(),
    );
    scene.replica.authority(&announced);
    replace_certificates(
        &envoy,
        &used.issue_gateway(&scene.cluster.gateway, UID, now).unwrap(),
        &used.bundle(),
    );
    scene.replica.authority(&used);

    // The first authority is no longer trusted, and Envoy, the same process, connects to another
    // replica.
    let mut scene = scene;
    scene.cluster.authority = alone;
    let scene =
        scene.restart(|| assert_eq!(exchange(&client, &server), source, "without an operator"));
    scene.replica.service("web", port, &[server.local_addr().unwrap()], &[]);
    scene.replica.complete();
    envoy.wait_until("Envoy to connect again", |_| scene.replica.connected() == 1);
    agree(&envoy, &scene.replica, 1);
    assert_eq!(exchange(&client, &server), source);
}

#[test]
fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let Some(scene) = Scene::begin() else { return };
    let now = jiff::Timestamp::now().as_second();
    scene.replica.complete();
    let (key, authority) = (&scene.cluster.gateway, &scene.cluster.authority);
    let envoy =
        scene.envoy_with(&authority.issue_gateway(key, UID, now - (LEAF_DAYS + 1) * DAY).unwrap());
    envoy.wait_until("Envoy to be turned away", |envoy| {
        let failed = envoy.get(
            "/stats?filter=cluster.packrat-operator.upstream_cx_(connect_fail|destroy_remote)$",
        );
        failed.lines().any(|line| !line.ends_with(": 0"))
    });
    assert_eq!(scene.replica.connected(), 0);
    replace_certificates(
        &envoy,
        &authority.issue_gateway(key, UID, now).unwrap(),
        &authority.bundle(),
    );
    envoy.wait_until("Envoy to connect", |_| scene.replica.connected() == 1);
}
