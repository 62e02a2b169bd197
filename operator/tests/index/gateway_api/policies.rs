//! PackratPolicies.

use serde_json::{Value, json};

use super::super::{key, number, service, slice};
use super::{
    GROUP, a_gateway_of, class, edge_of, index, listener, of_packrat, quic_gateway, resolve, route,
    to_web,
};

/// A PackratPolicy of namespace `app`.
fn policy(name: &str, second: u64, target: Value, defaults: Value, overrides: Value) -> Value {
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "PackratPolicy",
        "metadata": {
            "namespace": "app", "name": name, "generation": 5,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": { "targetRefs": [target], "defaults": defaults, "overrides": overrides },
    })
}

fn target(kind: &str, name: &str, section: Option<&str>) -> Value {
    json!({ "group": GROUP, "kind": kind, "name": name, "sectionName": section })
}

fn budget(percent: u64) -> Value {
    json!({ "repair": { "budgetPercent": percent } })
}

#[test]
fn the_most_specific_default_and_least_specific_override_win() {
    let layers = [
        target("Gateway", "edge", None),
        target("Gateway", "edge", Some("quic")),
        target("UDPRoute", "web", None),
    ];
    let in_force = |policies: &[Value]| {
        let mut more = vec![route(
            "app",
            "web",
            0,
            json!({ "name": "edge", "sectionName": "quic" }),
            json!([{ "name": "web", "port": 8443 }]),
        )];
        more.extend(policies.iter().cloned());
        let listeners =
            json!([listener("quic", 443, json!({})), listener("game", 7000, json!({}))]);
        let resolution = resolve(listeners, &more);
        let view = &resolution.gateways[&key("app", "edge")];
        number(&view.listeners[&443].overrides, "repair-budget-percent")
    };
    let of = |layer: usize, defaults: Option<u64>, overrides: Option<u64>| {
        let settings = |percent: Option<u64>| percent.map_or(json!({}), budget);
        policy(
            &format!("p{layer}"),
            0,
            layers[layer].clone(),
            settings(defaults),
            settings(overrides),
        )
    };
    // Gateway, listener, route: the default and the override of each; the value in force.
    type Said = (Option<u64>, Option<u64>);
    const NOTHING: Said = (None, None);
    let cases: [([Said; 3], Option<u64>); 8] = [
        ([NOTHING, NOTHING, NOTHING], None),
        ([(Some(1), None), NOTHING, NOTHING], Some(1)),
        ([(Some(1), None), (Some(2), None), NOTHING], Some(2)),
        ([(Some(1), None), (Some(2), None), (Some(3), None)], Some(3)),
        ([(None, Some(4)), (None, Some(5)), (None, Some(6))], Some(4)),
        ([NOTHING, (None, Some(5)), (None, Some(6))], Some(5)),
        ([(Some(1), None), NOTHING, (Some(3), Some(6))], Some(6)),
        ([(None, Some(4)), NOTHING, (Some(3), None)], Some(4)),
    ];
    for (said, expected) in cases {
        let policies: Vec<_> = said
            .into_iter()
            .enumerate()
            .map(|(layer, (defaults, overrides))| of(layer, defaults, overrides))
            .collect();
        assert_eq!(in_force(&policies), expected, "{said:?}");
    }
    // Another listener's, and more than the EdgeGateway has.
    let of_game = policy("game", 0, target("Gateway", "edge", Some("game")), budget(7), json!({}));
    assert_eq!(in_force(&[of_game]), None);
    assert_eq!(in_force(&[of(2, Some(1000), None)]), Some(25));
}

#[test]
fn annotations_rank_between_policy_defaults_and_overrides() {
    let resolve = |defaults: Value, overrides: Value| {
        let gateway = quic_gateway();
        let annotations =
            [("assist", "enabled"), ("gateway", "edge"), ("config.repair-budget-percent", "10")];
        let resolution = index(&[
            of_packrat(),
            edge_of(&gateway),
            gateway,
            service("own", 0, &annotations, &[("quic", 443)]),
            slice("own", "own-1", &[("quic", 1443)], &[("10.0.0.9", true)]),
            policy("p", 0, target("Gateway", "edge", None), defaults, overrides),
        ])
        .resolve();
        let overrides = resolution.gateways[&key("app", "edge")].listeners[&443].overrides.clone();
        let is_off = resolution.services[&key("app", "own")].is_off;
        (
            number(&overrides, "repair-budget-percent"),
            number(&overrides, "idle-timeout-seconds"),
            is_off,
        )
    };
    let both =
        json!({ "repair": { "budgetPercent": 5 }, "sessions": { "idleTimeoutSeconds": 30 } });
    assert_eq!(resolve(json!({}), json!({})), (Some(10), None, false));
    assert_eq!(resolve(both.clone(), json!({})), (Some(10), Some(30), false));
    assert_eq!(resolve(json!({}), both), (Some(5), Some(30), false));
    assert_eq!(resolve(json!({}), json!({ "assist": false })), (Some(10), None, true));
}

#[test]
fn a_policy_is_told_whether_it_is_in_force() {
    let more = [
        to_web("web", 0),
        policy("old", 0, target("Gateway", "edge", None), budget(1), json!({})),
        policy("new", 1, target("Gateway", "edge", None), budget(2), json!({})),
        policy("gone", 0, target("Gateway", "gone", None), budget(2), json!({})),
        policy("section", 0, target("Gateway", "edge", Some("gone")), budget(2), json!({})),
        policy("wrong", 0, target("UDPRoute", "web", None), budget(1001), json!({})),
        policy("theirs", 0, target("Gateway", "theirs", None), budget(2), json!({})),
        a_gateway_of("theirs", "other"),
        class("other", "example.org/other"),
    ];
    let resolution = resolve(json!([listener("quic", 443, json!({}))]), &more);
    let told: Vec<_> = resolution
        .policies
        .ancestors
        .iter()
        .map(|(key, ancestors)| {
            let (reference, accepted) = &ancestors[0];
            (key.name.as_str(), reference.kind.as_deref().unwrap(), accepted.reason)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("gone", "Gateway", "TargetNotFound"),
            ("new", "Gateway", "Conflicted"),
            ("old", "Gateway", "Accepted"),
            ("section", "Gateway", "TargetNotFound"),
            ("wrong", "UDPRoute", "Invalid"),
        ]
    );
    let found = resolution.gateways[&key("app", "edge")].listeners[&443].overrides.clone();
    assert_eq!(
        number(&found, "repair-budget-percent"),
        Some(1),
        "what is wrong or refused changes nothing"
    );
}
