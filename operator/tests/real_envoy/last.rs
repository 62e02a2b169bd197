//! Gateways that start while the operator is away.

use packrat_operator::xds::file_of;
use packrat_operator::xds::wire::LISTENER_TYPE;
use packrat_real_envoy::free_port;
use tokio::net::TcpSocket;

use super::envoy::Entry;
use super::scene::{Scene, agree, exchange, socket};

/// Envoy forwards as before with the last configuration, and asks the operator when that is back.
#[test]
fn a_gateway_without_an_operator_has_the_last_configuration() {
    let Some(scene) = Scene::begin() else { return };
    let (server, client, port) = (socket(), socket(), free_port());
    scene.replica.service("web", port, &[server.local_addr().unwrap()], &[]);
    scene.replica.complete();
    let mut last = Vec::new();
    while last.is_empty() {
        let resources = scene.replica.resources();
        if resources.len() == 1 {
            last = file_of(&resources, LISTENER_TYPE);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The operator's address has no listener, and no other program can take it.
    let away = TcpSocket::new_v4().unwrap();
    away.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let operator = away.local_addr().unwrap();
    let envoy = scene.envoy_by(&Entry { operator, last, clusters: None });
    client.connect(("127.0.0.1", port)).unwrap();
    exchange(&client, &server);
    assert_eq!(scene.replica.connected(), 0, "it has the configuration of the operator");
    assert!(envoy.log().contains("does not answer"), "{}", envoy.log());

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _back = runtime.block_on(async { away.listen(1024) }).unwrap();
    agree(&envoy, &scene.replica, 1);
    assert_eq!(scene.replica.connected(), 1);
    exchange(&client, &server);
}
