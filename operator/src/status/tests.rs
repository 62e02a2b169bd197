//! Conditions that follow from observations.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::index::{GatewayView, Listener, ServiceView};
use crate::model::GatewayModel;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::resource::{
    EdgeGatewaySpec, EdgeGatewayStatus, ExposureType, GatewayProxy, ListenerStatus,
};

fn model(exposure: ExposureType) -> GatewayModel {
    let mut spec = EdgeGatewaySpec::default();
    spec.exposure.type_ = exposure;
    GatewayModel { generation: 7, spec, ..GatewayModel::default() }
}

fn proxy(name: &str, error: Option<&str>) -> GatewayProxy {
    GatewayProxy {
        name: name.to_owned(),
        replica: "r".to_owned(),
        version: Some("2".to_owned()),
        error: error.map(str::to_owned),
    }
}

fn routed() -> GatewayView {
    let listener = Listener {
        service: ObjectKey::new("shop", "web"),
        service_port: 8443,
        port_name: "quic".to_owned(),
        endpoints: vec!["[fd00::1]:443".parse().unwrap()],
        ..Listener::default()
    };
    GatewayView { listeners: [(443, listener)].into(), ..GatewayView::default() }
}

/// A workload whose gateways are all there.
fn rollout() -> Rollout {
    Rollout { wanted: 2, updated: 2, present: 2, ready: 2, fault: None }
}

fn well() -> Observed {
    Observed {
        addresses: vec!["2001:db8::1".to_owned()],
        public_key: Some("0f".repeat(32)),
        ready: 2,
        pods: 2,
        rollout: Some(rollout()),
        ready_pods: ["a", "b"].map(str::to_owned).into(),
        proxies: vec![proxy("a", None), proxy("b", None)],
        versions: ["2".to_owned()].into(),
        reading: Some(Reading { gateways: 2, sessions: 3, ..Reading::default() }),
        ..Observed::default()
    }
}

/// Observations with a route that is harmed.
fn harmed(route: StoppedRoute) -> Observed {
    let mut observed = well();
    observed.reading.as_mut().unwrap().routes.insert("shop/web/8443".to_owned(), route);
    observed
}

fn said(status: &EdgeGatewayStatus, type_: &str) -> (String, String, String) {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    assert_eq!(found.observed_generation, Some(7));
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

/// The status of a gateway behind a load balancer, at which all is well.
fn status_of(view: &GatewayView) -> EdgeGatewayStatus {
    gateway_status(&model(ExposureType::LoadBalancer), view, &well(), &[], Timestamp::UNIX_EPOCH)
}

/// Observations, each with the condition that follows: type, status, reason, a part of the
/// message.
#[test]
fn what_is_said_in_which_case() {
    let (balancer, host) = (ExposureType::LoadBalancer, ExposureType::HostNetwork);
    for (exposure, observed, condition, status, reason, part) in [
        (balancer, well(), "Accepted", "True", "Accepted", "the gateways are set up"),
        (balancer, well(), "ResolvedRoutes", "True", "Resolved", "all Services"),
        (balancer, well(), "Programmed", "True", "Programmed", "2"),
        (balancer, well(), "Ready", "True", "Ready", "2 of 2 gateways are ready"),
        (
            balancer,
            Observed { failure: Some("Deployment: no".to_owned()), ..well() },
            "Accepted",
            "False",
            "ApplyFailed",
            "an object of this EdgeGateway was refused: Deployment: no",
        ),
        (
            balancer,
            Observed { namespace_ends: true, ..well() },
            "Accepted",
            "False",
            "NamespaceEnds",
            "is being deleted",
        ),
        (
            balancer,
            Observed { definition_is_outdated: true, ..well() },
            "Accepted",
            "False",
            "DefinitionOutdated",
            "-f charts/packrat/definitions",
        ),
        (
            balancer,
            Observed { proxies: vec![proxy("a", None), proxy("b", Some("bad port"))], ..well() },
            "Programmed",
            "False",
            "Refused",
            "1 of 2 gateways refused a part of the configuration and keep the former: b: bad port",
        ),
        (
            balancer,
            Observed { proxies: Vec::new(), ..well() },
            "Programmed",
            "Unknown",
            "NotConnected",
            "no gateway is connected",
        ),
        (
            balancer,
            Observed { ready: 0, ..well() },
            "Ready",
            "False",
            "NoReadyGateway",
            "none of 2 wanted gateways is ready",
        ),
        (
            balancer,
            Observed { addresses: Vec::new(), ..well() },
            "Ready",
            "False",
            "NoAddress",
            "choose spec.exposure.type NodePort or HostNetwork",
        ),
        (balancer, well(), "Assisting", "True", "Assisting", "on no route"),
        (
            balancer,
            Observed { reading: None, ..well() },
            "Assisting",
            "Unknown",
            "NotKnown",
            "no gateway has been asked",
        ),
        (
            balancer,
            harmed(StoppedRoute { stopped: 1, trying: 1 }),
            "Assisting",
            "False",
            "AssistanceStopped",
            "UDP port 443 (Service shop/web): assistance has stopped by itself on 1 of 2 gateways",
        ),
        (
            balancer,
            harmed(StoppedRoute { stopped: 0, trying: 1 }),
            "Assisting",
            "False",
            "AssistanceTried",
            "tried again on 1 of 2 gateways",
        ),
        (
            host,
            Observed { addresses: Vec::new(), ..well() },
            "Ready",
            "False",
            "NoAddress",
            "no address yet",
        ),
    ] {
        let status_of =
            gateway_status(&model(exposure), &routed(), &observed, &[], Timestamp::UNIX_EPOCH);
        let (found_status, found_reason, message) = said(&status_of, condition);
        assert_eq!((found_status.as_str(), found_reason.as_str()), (status, reason), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

/// A workload with each fault that Kubernetes tells, and the two conditions that follow.
#[test]
fn the_workload_is_held_against_the_wanted_number() {
    let deployment = |status: Value| {
        let object =
            json!({ "spec": { "replicas": 3, "selector": {}, "template": {} }, "status": status });
        Rollout::from(&serde_json::from_value::<Deployment>(object).unwrap())
    };
    let fault = |type_: &str, status: &str, reason: &str| {
        let condition =
            json!({ "type": type_, "status": status, "reason": reason, "message": "quota" });
        deployment(
            json!({ "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "conditions": [condition] }),
        )
    };
    let pull = ("edge-1".to_owned(), "ImagePullBackOff: no such image".to_owned());
    let set = |status: Value| {
        let object = json!({ "spec": { "selector": {}, "template": {} }, "status": status });
        Rollout::from(&serde_json::from_value::<DaemonSet>(object).unwrap())
    };
    let full = json!({ "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3 });
    for (observed, ready, rolled_out) in [
        (
            Observed { ready: 3, rollout: Some(deployment(full)), ..well() },
            "True Ready: 3 of 3 gateways are ready",
            "True RolledOut: all 3 gateways have the newest version of their Pods",
        ),
        (
            Observed {
                ready: 1,
                rollout: Some(fault("ReplicaFailure", "True", "FailedCreate")),
                ..well()
            },
            "True Ready: 1 of 3 gateways are ready; FailedCreate: quota",
            "False RolloutStuck: of 3 gateways 1 have the newest version of their Pods, and 1 are ready; FailedCreate: quota",
        ),
        (
            Observed {
                ready: 0,
                waiting: Some(pull.clone()),
                rollout: Some(fault("Progressing", "False", "ProgressDeadlineExceeded")),
                ..well()
            },
            "False NoReadyGateway: none of 3 wanted gateways is ready; ProgressDeadlineExceeded: quota; Pod edge-1: ImagePullBackOff: no such image",
            "False RolloutStuck: of 3 gateways 1 have",
        ),
        (
            Observed {
                ready: 1,
                ending: 2,
                rollout: Some(fault("Progressing", "True", "ReplicaSetUpdated")),
                ..well()
            },
            "True Ready: 1 of 3 gateways are ready; 2 more drain",
            "False RollingOut: of 3 gateways 1 have",
        ),
        (
            Observed { ready: 0, rollout: Some(Rollout::default()), ..well() },
            "False ScaledToZero: no gateway is wanted",
            "True RolledOut: all 0 gateways",
        ),
        (
            Observed {
                waiting: Some(pull),
                is_on_each_node: true,
                rollout: Some(set(json!({
                    "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 2, "numberMisscheduled": 0,
                    "updatedNumberScheduled": 1,
                }))),
                ..well()
            },
            "True Ready: 2 of 3 gateways are ready; Pod edge-1: ImagePullBackOff: no such image",
            "False RolloutStuck: of 3 gateways 1 have the newest version of their Pods, and 2 are ready; Pod edge-1",
        ),
        (
            Observed { rollout: None, ..well() },
            "True Ready: 2 of 2 gateways are ready",
            "Unknown NotKnown: ",
        ),
    ] {
        let model = model(ExposureType::LoadBalancer);
        let status = gateway_status(&model, &routed(), &observed, &[], Timestamp::UNIX_EPOCH);
        for (type_, expected) in [("Ready", ready), ("RolledOut", rolled_out)] {
            let (status, reason, message) = said(&status, type_);
            let found = format!("{status} {reason}: {message}");
            assert!(found.starts_with(expected), "{type_}: {found}");
        }
    }
}

#[test]
fn a_pod_tells_what_it_waits_for() {
    let told = |status: Value| {
        why_waiting(&serde_json::from_value::<Pod>(json!({ "status": status })).unwrap())
    };
    let waits = |reason: &str| {
        json!({ "containerStatuses": [{
            "name": "envoy", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": reason, "message": "no such image" } },
        }]})
    };
    assert_eq!(told(waits("ErrImagePull")).unwrap(), "ErrImagePull: no such image");
    assert_eq!(told(waits("ContainerCreating")), None);
    let conditions = json!([{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available" }]);
    assert_eq!(told(json!({ "conditions": conditions })).unwrap(), "0/3 nodes are available");
    assert_eq!(told(json!({})), None);
}

/// The Service `web` of the EdgeGateway `edge`.
fn web() -> (ObjectKey, ServiceView) {
    let view = ServiceView {
        wanted: true,
        gateway: Some(ObjectKey::new("shop", "edge")),
        listeners: vec![443],
        ..ServiceView::default()
    };
    (ObjectKey::new("shop", "web"), view)
}

/// A Service is assisted only while a gateway is there for it.
#[test]
fn a_service_without_a_ready_gateway_is_not_assisted() {
    let observed = Observed { ready: 0, ..well() };
    let model = model(ExposureType::LoadBalancer);
    let of = |observed: &Observed| {
        gateway_status(&model, &routed(), observed, &[], Timestamp::UNIX_EPOCH)
    };
    let (key, view) = web();
    let (is_well, reason, message) = service_condition(&key, &view, Some(&of(&observed))).unwrap();
    assert_eq!((is_well, reason), (false, "NoReadyGateway"));
    assert_eq!(
        message,
        "no gateway is ready (its EdgeGateway's condition Ready says why); once one is: assisted by EdgeGateway shop/edge on UDP port 443"
    );
    assert!(service_condition(&key, &view, Some(&of(&well()))).unwrap().0);
}

#[test]
fn numbers_addresses_listeners_and_problems() {
    let web = ObjectKey::new("shop", "web");
    let problems = (0..7).map(|number| {
        let message = format!("problem {number}");
        (web.clone(), Problem { reason: Reason::PortConflict, message })
    });
    let view = GatewayView { problems: problems.collect(), ..routed() };
    let status = status_of(&view);
    assert_eq!(status.addresses, ["2001:db8::1"]);
    assert_eq!(status.public_key, Some("0f".repeat(32)));
    assert_eq!(
        (status.sessions, status.attached_routes, status.ready_gateways),
        (Some(3), Some(1), Some(2))
    );
    assert_eq!(status.observed_generation, Some(7));
    let expected = ListenerStatus {
        port: 443,
        service: "shop/web".to_owned(),
        service_port: 8443,
        service_port_name: Some("quic".to_owned()),
        endpoints: 1,
        ..ListenerStatus::default()
    };
    assert_eq!(status.listeners, [expected]);
    let (found, reason, message) = said(&status, "ResolvedRoutes");
    assert_eq!((found.as_str(), reason.as_str()), ("False", "PortConflict"));
    assert!(message.starts_with("Service shop/web: problem 0; "), "{message}");
    assert!(message.ends_with("; and 2 more"), "{message}");
}

#[test]
fn stopped_assistance_is_in_listener_and_service_conditions() {
    let observed = harmed(StoppedRoute { stopped: 2, trying: 0 });
    let model = model(ExposureType::LoadBalancer);
    let of = |model: &GatewayModel, view: &GatewayView| {
        gateway_status(model, view, &observed, &[], Timestamp::UNIX_EPOCH)
    };
    let status = of(&model, &routed());
    assert_eq!((status.listeners[0].stopped_gateways, status.sessions), (2, Some(3)));
    let (key, view) = web();
    let (is_well, reason, message) = service_condition(&key, &view, Some(&status)).unwrap();
    assert_eq!((is_well, reason), (false, "AssistanceStopped"));
    assert!(message.contains("stopped by itself on 2 of 2 gateways"), "{message}");
    // Another Service at that gateway, and a port that is about to go, get no message.
    let other = ObjectKey::new("shop", "game");
    assert!(service_condition(&other, &view, Some(&status)).unwrap().0);
    assert!(service_condition(&key, &view, None).unwrap().0);
    let mut leaving = routed();
    leaving.listeners.get_mut(&443).unwrap().is_leaving = true;
    assert_eq!(said(&of(&model, &leaving), "Assisting").0, "True");
    // If assistance is switched off, it cannot stop by itself.
    let mut off = model.clone();
    off.spec.assist = false;
    assert_eq!(said(&of(&off, &routed()), "Assisting").1, "SwitchedOff");
}

/// Without a reading the operator knows only the contents of the status.
#[test]
fn a_route_stays_stopped_until_a_gateway_says_otherwise() {
    let mut model = model(ExposureType::LoadBalancer);
    let of = |model: &GatewayModel, observed: &Observed| {
        gateway_status(model, &routed(), observed, &[], Timestamp::UNIX_EPOCH)
    };
    model.status = of(&model, &harmed(StoppedRoute { stopped: 2, trying: 0 }));
    // One of the two is not ready any more.
    let unread = Observed { reading: None, ready: 1, ..well() };
    let status = of(&model, &unread);
    assert_eq!(status.listeners[0].stopped_gateways, 2);
    let (found, reason, message) = said(&status, "Assisting");
    assert_eq!((found.as_str(), reason.as_str()), ("False", "AssistanceStopped"));
    assert!(message.contains("on 2 of 2 gateways"), "{message}");
    let status = of(&model, &well());
    assert_eq!(status.listeners[0].stopped_gateways, 0);
    assert_eq!(said(&status, "Assisting").0, "True");
    let one = Reading { gateways: 1, ..Reading::default() };
    let message = said(&of(&model, &Observed { reading: Some(one), ..well() }), "Assisting").2;
    assert!(message.ends_with("on no route of the 1 gateways that have answered"), "{message}");
    // The status has no message about another Service at that port.
    model.status.listeners[0].stopped_gateways = 2;
    model.status.listeners[0].service = "shop/game".to_owned();
    assert_eq!(of(&model, &unread).listeners[0].stopped_gateways, 0);
}

/// A gateway that the operator cannot reach keeps what it has: that is not the newest.
#[test]
fn a_gateway_is_programmed_once_it_acknowledged_the_newest() {
    let told = |change: &dyn Fn(&mut Observed)| {
        let mut observed = well();
        change(&mut observed);
        let model = model(ExposureType::LoadBalancer);
        let status = gateway_status(&model, &routed(), &observed, &[], Timestamp::UNIX_EPOCH);
        said(&status, "Programmed")
    };
    let of = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    let fine = of("True", "Programmed", "2 gateways have the newest configuration");
    assert_eq!(told(&|_| ()), fine);
    let behind = told(&|observed| observed.proxies[1].version = Some("1".to_owned()));
    let message = "1 of 2 gateways have not acknowledged the newest configuration: b";
    assert_eq!(behind, of("False", "Pending", message));
    // An endpoint has just come or gone: the answer is on its way.
    let recent = told(&|observed| {
        observed.proxies[1].version = Some("1".to_owned());
        observed.versions.insert("1".to_owned());
    });
    assert_eq!(recent, fine);
    // Before its first answer.
    let silent = told(&|observed| observed.proxies[1].version = None);
    assert_eq!(silent, behind);
    let (status, reason, message) = told(&|observed| {
        observed.proxies.pop();
    });
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotConnected"));
    assert!(message.starts_with("1 of 2 gateways are not connected"), "{message}");
    // A Pod that ends, and one that is not ready yet, do not count.
    let others = told(&|observed| {
        let ends = GatewayProxy { version: None, ..proxy("ends", None) };
        observed.proxies.push(ends);
    });
    assert_eq!(others, fine);
}

#[test]
fn a_route_that_is_about_to_go_is_marked_and_not_counted() {
    let mut view = routed();
    view.listeners.get_mut(&443).unwrap().is_leaving = true;
    let status = status_of(&view);
    assert_eq!((status.attached_routes, status.listeners[0].draining), (Some(0), true));
    assert_eq!(said(&status, "Ready").1, "NoRoutes");
}

#[test]
fn a_gateway_that_nobody_has_chosen_is_not_ready() {
    let status = gateway_status(
        &model(ExposureType::LoadBalancer),
        &GatewayView::default(),
        &well(),
        &[],
        Timestamp::UNIX_EPOCH,
    );
    let message =
        "no Service has chosen this gateway; annotate one with packrat.dev/assist: enabled";
    assert_eq!(
        said(&status, "Ready"),
        ("False".to_owned(), "NoRoutes".to_owned(), message.to_owned())
    );
}

/// The time of a condition is the time of its last change, also if its message changes later.
#[test]
fn the_time_changes_with_the_status_only() {
    let later = Timestamp::from_second(1000).unwrap();
    let view = routed();
    let first = status_of(&view);
    let fewer = Observed { ready: 1, ..well() };
    let second =
        gateway_status(&model(ExposureType::LoadBalancer), &view, &fewer, &first.conditions, later);
    let third = gateway_status(
        &model(ExposureType::LoadBalancer),
        &view,
        &Observed { ready: 0, ..well() },
        &second.conditions,
        later,
    );
    let time = |status: &EdgeGatewayStatus| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap()
            .last_transition_time
            .0
    };
    assert_eq!((time(&second), time(&third)), (Timestamp::UNIX_EPOCH, later));
    assert_ne!(said(&second, "Ready").2, said(&first, "Ready").2);
}
