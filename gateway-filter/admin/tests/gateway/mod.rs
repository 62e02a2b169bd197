//! A gateway on the loopback interface with its admin port, for tests.
#![allow(dead_code)] // every test uses a part of it

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packrat_admin::Server;
use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, RouteConfig};
use serde_json::Value;

/// Longest time that a test waits for something that has to happen: it only ends one that would
/// never end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Gateway {
    pub(crate) dataplane: Arc<Dataplane>,
    pub(crate) admin: Server,
    pub(crate) listen: SocketAddr,
    pub(crate) server: UdpSocket,
    _attachment: Attachment,
}

impl Gateway {
    pub(crate) fn start(route: &str) -> Self {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut config = RouteConfig::new(route, [server.local_addr().unwrap()]).unwrap();
        // No session ends because the test is late.
        config.idle_timeout_seconds = 3600;
        let dataplane =
            Arc::new(Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap());
        let route = dataplane.configure(config).unwrap();
        let socket = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let listen = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
        let attachment = dataplane.listen(&route, listen, 0, socket).unwrap();
        let admin = Server::start("127.0.0.1:0".parse().unwrap(), &dataplane).unwrap();
        Self { dataplane, admin, listen, server, _attachment: attachment }
    }

    /// Sends a client's request, receives its answer and waits until the gateway has counted it:
    /// the data plane counts a batch after it has sent it.
    pub(crate) fn ask(&self) {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(self.listen).unwrap();
        client.send(b"a question that is longer").unwrap();
        let mut buffer = [0; 100];
        let (length, from) = self.server.recv_from(&mut buffer).unwrap();
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
        let deadline = Instant::now() + PATIENCE;
        while self.json("/packrat")["routes"][0]["metrics"]["packrat_to_client_datagrams_total"]
            == 0
            || self.json("/packrat/sessions")["sessions"][0]["to_client_bytes"] == 0
        {
            assert!(Instant::now() < deadline, "the gateway never counted the answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Head and body of the answer to a request.
    pub(crate) fn request(&self, method: &str, target: &str) -> (String, String) {
        self.request_with(method, target, "Host: localhost\r\nX-Requested-With: a test\r\n")
    }

    /// Request for a path with these headers.
    pub(crate) fn request_with(
        &self,
        method: &str,
        target: &str,
        headers: &str,
    ) -> (String, String) {
        let mut stream = TcpStream::connect(self.admin.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {target} HTTP/1.0\r\n{headers}Content-Length: 0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    pub(crate) fn json(&self, target: &str) -> Value {
        let (head, body) = self.request("GET", target);
        assert!(head.contains("application/json"), "{head}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.dataplane.shutdown();
    }
}
