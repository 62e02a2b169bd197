//! The API server goes away and comes back: the operator sees the changes of the time between.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{Cluster, gateway, service};

/// A way to the API server that can be cut.
struct Way {
    address: SocketAddr,
    /// The streams that go through; `None` while it is cut.
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            address: listener.local_addr().unwrap(),
            streams: Arc::new(Mutex::new(Some(Vec::new()))),
        };
        let streams = Arc::clone(&way.streams);
        // Ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                match streams.lock().unwrap().as_mut() {
                    Some(open) => {
                        open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()])
                    }
                    None => continue,
                }
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    std::thread::spawn(move || {
                        // Ends when either side does.
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        way
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().take().into_iter().flatten() {
            // It may be gone already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.streams.lock().unwrap() = Some(Vec::new());
    }
}

/// A Pod that ends with each failure waits longer and longer for its next start.
#[test]
fn an_operator_that_starts_before_the_api_server_waits_for_it() {
    let Some(cluster) = Cluster::find() else { return };
    let way = Way::to(cluster.server());
    way.cut();
    let operator = cluster.operator("early", Some(way.address));
    cluster.wait_until("two attempts", || {
        operator.log().matches("\"event\":\"api_server_awaited\"").count() >= 2
    });
    assert!(!operator.is_ready());
    way.mend();
    cluster.wait_until("the election", || operator.is_elected());
    cluster.wait_until("the readiness", || operator.is_ready());
}

#[test]
fn what_happens_while_the_api_server_is_away_is_seen_afterwards() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-outage";
    cluster.namespace(namespace, &json!({}));
    let way = Way::to(cluster.server());
    let operator = cluster.operator("cut-off", Some(way.address));
    cluster.wait_until("the election", || operator.is_elected());
    cluster.apply(gateway(namespace, "default", &json!({})));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let wanted = json!({ "packrat.dev/assist": "enabled" });
    let apply = |name: &str, port| {
        for object in service(namespace, name, port, &wanted, &["192.0.2.1".to_owned()]) {
            cluster.apply(object);
        }
    };
    let routes = || {
        let gateway = cluster.get("EdgeGateway", namespace, "default").unwrap();
        let listeners = gateway["status"]["listeners"].as_array().cloned().unwrap_or_default();
        listeners.iter().map(|listener| listener["port"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    apply("stays", 1001);
    apply("goes", 1002);
    cluster.wait_until("both routes", || routes() == [1001, 1002]);

    way.cut();
    cluster.delete("Service", namespace, "goes");
    apply("comes", 1003);
    cluster.wait_until("the lease to be lost", || !operator.is_elected());
    cluster.wait_until("the replica to leave the Service", || !operator.is_ready());
    assert_eq!(routes(), [1001, 1002], "nobody has written anything");
    way.mend();
    cluster.wait_until("the replica to be back", || operator.is_ready());
    // The route that has gone is served until its sessions had time to end; the Service itself
    // knows at once.
    cluster.wait_until("what came and what went", || {
        routes().contains(&1003)
            && cluster
                .condition("Service", namespace, "comes", "packrat.dev/Assisted")
                .is_some_and(|(status, ..)| status == "True")
    });
    cluster.remove_namespace(namespace);
}
