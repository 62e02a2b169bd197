//! A gateway in this process, on the loopback interface.
#![allow(dead_code)] // every test uses a part of it

use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, Route, RouteConfig, route_from_json};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// A gateway with one route, until it is dropped.
pub(crate) struct LocalGateway {
    dataplane: Dataplane,
    pub(crate) route: Arc<Route>,
    pub(crate) address: SocketAddr,
    _listening: Attachment,
}

impl LocalGateway {
    pub(crate) fn start(config: &Value) -> Self {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        let route = dataplane.configure(read(config)).unwrap();
        let socket = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
        let listening = dataplane.listen(&route, address, 0, socket).unwrap();
        Self { dataplane, route, address, _listening: listening }
    }

    /// Gives the route another configuration.
    pub(crate) fn configure(&self, config: &Value) {
        self.dataplane.configure(read(config)).unwrap();
    }
}

impl Drop for LocalGateway {
    fn drop(&mut self) {
        self.dataplane.shutdown();
    }
}

fn read(config: &Value) -> RouteConfig {
    route_from_json(config.to_string().as_bytes()).unwrap()
}
