//! `/live`, `/ready` and `/metrics`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::authority::Identities;
use super::contact::Contact;
use super::discovery::Connections;
use super::peers::{Door, IDLE_TIME};
use super::snapshot::{Snapshot, Snapshots};

/// The sources of the pages.
#[derive(Clone)]
pub(super) struct Health {
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) connections: Arc<Connections>,
    pub(super) contact: Arc<Contact>,
    pub(super) elected: watch::Receiver<bool>,
    /// Set once the operator has its certificates.
    pub(super) identities: Arc<OnceLock<Arc<Identities>>>,
}

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener, health: Health) {
    let door = Door::new();
    loop {
        let (stream, visit) = door.accept(&listener).await;
        let health = health.clone();
        tokio::spawn(async move {
            let visit = &visit;
            let service = service_fn(move |request: Request<Incoming>| {
                // Keeps the connection from being idle.
                drop(visit.request());
                let answer = health.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIME);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            // A prober that disconnects is no error.
            tokio::select! {
                _ = connection => {}
                () = visit.over() => {}
            }
        });
    }
}

impl Health {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, text) = match request.uri().path() {
            "/live" => (StatusCode::OK, "live\n".to_owned()),
            "/ready" if self.contact.is_lost() => {
                (StatusCode::SERVICE_UNAVAILABLE, "the API server is away\n".to_owned())
            }
            "/ready" if self.snapshots.is_complete() => (StatusCode::OK, "ready\n".to_owned()),
            "/ready" => {
                (StatusCode::SERVICE_UNAVAILABLE, "not everything has been seen yet\n".to_owned())
            }
            "/metrics" => (StatusCode::OK, self.metrics()),
            _ => (StatusCode::NOT_FOUND, "there are /live, /ready and /metrics\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/plain; version=0.0.4"),
        );
        response
    }

    fn metrics(&self) -> String {
        let snapshot = self.snapshots.subscribe().borrow().clone().unwrap_or_default();
        let connections = self.connections.list();
        let refused =
            connections.values().flatten().filter(|(_, proxy)| proxy.error.is_some()).count();
        let routes: usize =
            snapshot.gateways.values().map(|gateway| gateway.view.listeners.len()).sum();
        let problems: usize =
            snapshot.resolution.services.values().map(|service| service.problems.len()).sum();
        let without_sidecar = snapshot.resolution.pods.len();
        let lagging = connections
            .iter()
            .filter_map(|(key, proxies)| Some((snapshot.gateways.get(key)?, proxies)))
            .flat_map(|(gateway, proxies)| {
                proxies.iter().filter(|(_, proxy)| proxy.version != gateway.version)
            })
            .count();
        let expires = self.identities.get().map(|found| found.authority().borrow().expires());
        let mut text = String::new();
        for (name, help, value) in [
            ("elected", "Whether this replica writes.", usize::from(*self.elected.borrow())),
            ("edge_gateways", "EdgeGateways.", snapshot.gateways.len()),
            (
                "foreign_edge_gateways",
                "EdgeGateways of its class that it leaves alone, because they are another operator's.",
                snapshot.resolution.foreign.len(),
            ),
            ("routes", "Routes of all EdgeGateways.", routes),
            ("service_problems", "What is wrong with Services.", problems),
            ("pods_without_sidecar", "Pods that ask for a sidecar and have none.", without_sidecar),
            (
                "connected_gateways",
                "Gateways that this replica serves.",
                connections.values().map(Vec::len).sum(),
            ),
            (
                "refusing_gateways",
                "Of those, gateways that have refused their newest configuration.",
                refused,
            ),
            (
                "lagging_gateways",
                "Of those, gateways that have not acknowledged their newest configuration.",
                lagging,
            ),
            (
                "authority_expires_timestamp_seconds",
                "When the certificate of the operator's authority ends, in seconds since 1970; 0 before it is known.",
                expires.and_then(|time| usize::try_from(time).ok()).unwrap_or_default(),
            ),
        ] {
            let _ = write!(
                text,
                "# HELP packrat_operator_{name} {help}\n# TYPE packrat_operator_{name} gauge\npackrat_operator_{name} {value}\n"
            );
        }
        write_conditions(&snapshot, &mut text);
        text
    }
}

/// The conditions of all EdgeGateways.
fn write_conditions(snapshot: &Snapshot, text: &mut String) {
    let name = "edge_gateway_condition";
    let help = "1 while a condition of an EdgeGateway is True, 0 while it is not.";
    let _ = write!(
        text,
        "# HELP packrat_operator_{name} {help}\n# TYPE packrat_operator_{name} gauge\n"
    );
    for (gateway, found) in &snapshot.gateways {
        for condition in &found.model.status.conditions {
            let is_true = u8::from(condition.status == "True");
            let _ = writeln!(
                text,
                "packrat_operator_{name}{{gateway=\"{gateway}\",condition=\"{}\",reason=\"{}\"}} {is_true}",
                condition.type_, condition.reason
            );
        }
    }
}
