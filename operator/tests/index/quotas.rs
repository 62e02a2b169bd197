//! The quotas of tenants, and a look at all objects whose cost grows with their number.

use k8s_openapi::jiff::Timestamp;
use packrat_operator::index::{Index, Resolution};
use packrat_operator::model::GatewayModel;
use packrat_operator::policy::{Policy, Quotas};
use packrat_operator::resource::{EdgeGatewayStatus, ListenerStatus};
use packrat_operator::status::{Observed, gateway_status};
use serde_json::{Value, json};

use super::{endpoints, gateway, index, key, service, slice, take};

/// Largest object of etcd, in bytes.
const ETCD_BYTES: usize = 1_572_864;
const ON: (&str, &str) = ("assist", "enabled");

/// The annotation that gives a Service's port 443 this number of ports of the gateway.
fn ports(first: u16, number: u16) -> String {
    let ports: Vec<String> = (0..number).map(|at| format!("{}:443", first + at)).collect();
    ports.join(",")
}

/// The objects of a Service with this number of ports.
fn tenant(name: &str, second: u32, first: u16, number: u16) -> [Value; 2] {
    [
        service(name, second, &[ON, ("port", &ports(first, number))], &[("", 443)]),
        slice(name, &format!("{name}-1"), &[("", 443)], &[("10.0.0.66", true)]),
    ]
}

/// Objects of a tenant in another namespace, still with the EdgeGateway `app/default`.
fn in_namespace([mut service, mut slice]: [Value; 2], namespace: &str) -> [Value; 2] {
    service["metadata"]["namespace"] = namespace.into();
    service["metadata"]["annotations"]["packrat.dev/gateway"] = "app/default".into();
    slice["metadata"]["namespace"] = namespace.into();
    slice["endpoints"][0]["targetRef"]["namespace"] = namespace.into();
    [service, slice]
}

/// The EdgeGateway with the status that the operator writes of a resolution.
fn written(resolution: &Resolution) -> Value {
    let mut edge = gateway("app", "default", "All");
    let view = &resolution.gateways[&key("app", "default")];
    let observed = Observed::default();
    let status =
        gateway_status(&GatewayModel::default(), view, &observed, &[], Timestamp::UNIX_EPOCH);
    edge["status"] = serde_json::to_value(status).unwrap();
    edge
}

fn listeners_of(resolution: &Resolution, namespace: &str, name: &str) -> usize {
    resolution.services[&key(namespace, name)].listeners.len()
}

#[test]
fn one_service_takes_a_hundred_ports_of_a_gateway_at_most() {
    let mut objects = vec![gateway("app", "default", "All")];
    objects.extend(tenant("greedy", 0, 20_000, 23_000));
    objects.extend(tenant("honest", 1, 443, 1));
    let all = in_namespace(tenant("neighbour", 2, 444, 1), "others");
    objects.extend(all);
    let resolution = index(&objects).resolve();
    assert_eq!(listeners_of(&resolution, "app", "greedy"), 100);
    let told = &resolution.services[&key("app", "greedy")].problems;
    assert_eq!(told.len(), 1, "{told:?}");
    let asks = "asks for 23000 ports of EdgeGateway app/default and gets 100";
    assert!(told[0].message.contains(asks), "{told:?}");
    assert_eq!(listeners_of(&resolution, "app", "honest"), 0, "its namespace has its quota");
    assert_eq!(listeners_of(&resolution, "others", "neighbour"), 1, "another tenant");
}

#[test]
fn all_services_of_an_edge_gateway_have_at_most_1000_ports() {
    let mut objects = vec![gateway("app", "default", "All")];
    for number in 0..12_u16 {
        let [service, slice] = tenant("greedy", number.into(), 20_000 + 100 * number, 100);
        objects.extend(in_namespace([service, slice], &format!("tenant-{number}")));
    }
    let resolution = index(&objects).resolve();
    assert_eq!(resolution.gateways[&key("app", "default")].listeners.len(), 1000);
    assert_eq!(listeners_of(&resolution, "tenant-9", "greedy"), 100);
    assert_eq!(listeners_of(&resolution, "tenant-10", "greedy"), 0);
    // A tenant who is older, and asks now, takes no listener from existing ones.
    objects[0] = written(&resolution);
    let older = in_namespace(tenant("older", 0, 30_000, 100), "older");
    objects.extend(older);
    let resolution = index(&objects).resolve();
    assert_eq!(listeners_of(&resolution, "older", "older"), 0);
    assert_eq!(listeners_of(&resolution, "tenant-9", "greedy"), 100);
}

#[test]
fn a_service_above_its_quota_keeps_the_ports_that_it_has() {
    let mut objects = vec![gateway("app", "default", "All")];
    objects.extend(tenant("web", 0, 20_100, 100));
    objects[0] = written(&index(&objects).resolve());
    objects[1] = service("web", 0, &[ON, ("port", &ports(20_000, 200))], &[("", 443)]);
    let resolution = index(&objects).resolve();
    let listeners = &resolution.services[&key("app", "web")].listeners;
    assert_eq!(*listeners, (20_100..20_200).collect::<Vec<u16>>());
}

/// A tenant who takes all that it gets does not keep the status from being written, and with it the
/// record of the ports' owners.
#[test]
fn a_port_stays_with_its_service_beside_a_greedy_one() {
    let mut objects = vec![gateway("app", "default", "All")];
    objects.extend(in_namespace(tenant("greedy", 0, 20_000, 23_000), "greedy"));
    objects.push(service("honest", 30, &[ON], &[("quic", 443)]));
    objects.push(slice("honest", "honest-1", &[("quic", 8443)], &[("10.0.0.1", true)]));
    let served = index(&objects).resolve();
    assert_eq!(endpoints(&served, 443), ["10.0.0.1:8443"]);
    objects[0] = written(&served);
    assert!(objects[0].to_string().len() < ETCD_BYTES);
    // Made long ago, annotated now.
    objects.push(service("thief", 0, &[ON, ("port", "443:quic")], &[("quic", 8443)]));
    objects.push(slice("thief", "thief-1", &[("quic", 1)], &[("10.0.0.67", true)]));
    assert_eq!(endpoints(&index(&objects).resolve(), 443), ["10.0.0.1:8443"]);
}

#[test]
fn etcd_accepts_the_status_of_a_gateway_with_the_most_listeners() {
    let longest = |bytes: usize| "x".repeat(bytes);
    let listener = ListenerStatus {
        port: 65_535,
        service: format!("{}/{}.udproute", longest(63), longest(253)),
        service_port: 65_535,
        service_port_name: Some(longest(15)),
        endpoints: i32::MAX,
        tcp_endpoints: Some(i32::MAX),
        terminated: true,
        stream_port: Some(65_535),
        draining: true,
        node_port: Some(65_535),
        stopped_gateways: i32::MAX,
        trying_gateways: i32::MAX,
    };
    let listeners = vec![listener; Quotas::MOST_PER_GATEWAY.into()];
    let status = EdgeGatewayStatus { listeners, ..EdgeGatewayStatus::default() };
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < ETCD_BYTES * 9 / 10, "{bytes} bytes: the rest of the object also needs room");
}

/// Nanoseconds that this thread has been on a processor. (/proc/thread-self/schedstat counts whole
/// ticks of the scheduler: work of less than one has taken none.)
fn processor_time() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// An index with an EdgeGateway that has this many thousand listeners, according to its status, of
/// ten times as many Services.
fn crowded(thousands: u16) -> Index {
    let quotas = Quotas { per_gateway: 1000 * usize::from(thousands), ..Quotas::default() };
    let mut index = Index::new("packrat-system", Policy { quotas, ..Policy::default() });
    let mut edge = gateway("app", "default", "All");
    let listeners = (0..1000 * thousands).map(|at| {
        json!({
            "port": 20_000 + at, "service": format!("tenant-{}/web", at / 100), "servicePort": 443,
            "servicePortName": "", "endpoints": 1,
        })
    });
    edge["status"] = json!({ "listeners": listeners.collect::<Vec<_>>() });
    take(&mut index, &edge);
    for tenant_number in 0..10 * thousands {
        let objects = tenant("web", 0, 20_000 + 100 * tenant_number, 100);
        let objects = in_namespace(objects, &format!("tenant-{tenant_number}"));
        objects.iter().for_each(|object| take(&mut index, object));
    }
    index
}

/// Sixteen times the listeners take sixteen times the work of a look at all of them, not 256 times. It is
/// counted in processor time of this thread, the least of some looks, which no other process changes much.
#[test]
fn the_work_of_resolve_grows_with_the_number_of_listeners() {
    let work = |thousands| {
        let index = crowded(thousands);
        let looks = (0..5).map(|_| {
            let before = processor_time();
            let resolution = index.resolve();
            let work = processor_time() - before;
            let listeners = &resolution.gateways[&key("app", "default")].listeners;
            assert_eq!(listeners.len(), 1000 * usize::from(thousands));
            work
        });
        looks.min().unwrap()
    };
    let (few, many) = (work(1), work(16));
    println!("{few} ns for 1000 listeners, {many} ns for 16,000");
    assert!(many < 70 * few, "{few} ns for 1000 listeners, {many} ns for 16,000");
}
