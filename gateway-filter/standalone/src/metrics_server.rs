//! Prometheus metrics over plain HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use packrat_dataplane::Dataplane;
use packrat_dataplane::metrics::prometheus_text;
use tiny_http::{Header, Request, Response, Server};

/// Serves `/metrics` until it is dropped.
pub(crate) struct MetricsServer {
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Binds `address` and starts to serve.
    pub(crate) fn start(
        address: SocketAddr,
        dataplane: &Arc<Dataplane>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let server = Server::http(address).map_err(|error| {
            format!("cannot serve metrics on {address}: {error}; choose another --metrics address")
        })?;
        let server = Arc::new(server);
        let address = server.server_addr().to_ip().unwrap_or(address);
        let (serving, dataplane) = (Arc::clone(&server), Arc::clone(dataplane));
        let thread = std::thread::Builder::new().name("packrat-metrics".to_owned()).spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &dataplane);
            }
        })?;
        Ok(Self { server, address, thread: Some(thread) })
    }

    /// The address in use.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn answer(request: Request, dataplane: &Dataplane) {
    let response = if request.url().split('?').next() == Some("/metrics") {
        let response = Response::from_string(prometheus_text(&dataplane.routes()));
        match Header::from_bytes("Content-Type", "text/plain; version=0.0.4; charset=utf-8") {
            Ok(header) => response.with_header(header),
            Err(()) => response,
        }
    } else {
        Response::from_string("the metrics are at /metrics\n").with_status_code(404)
    };
    // A scraper that has gone away asks again.
    let _ = request.respond(response);
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // The thread only answers requests; a panic in it has been printed already.
            let _ = thread.join();
        }
    }
}
