//! A gateway with few descriptors refuses further clients. Its other clients and its operator do
//! not notice.

use std::net::SocketAddr;
use std::time::Duration;

use crate::program::{PATIENCE, Program, metric, socket, wait_until};

const DESCRIPTORS: usize = 80;
const CLIENTS: usize = 100;

#[test]
fn sessions_end_before_the_descriptors_do() {
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    let arguments =
        format!("--listen 127.0.0.1:0 --endpoint {endpoint} --workers 2 --metrics 127.0.0.1:0");
    let mut program = Program::start_with_descriptors(DESCRIPTORS, &arguments);
    let limited = program.line("sessions_limited");
    assert_eq!(limited["in_force"], DESCRIPTORS / 2);
    assert!(limited["reason"].as_str().unwrap().contains("RLIMIT_NOFILE"));
    let ready = program.ready();
    let mut served = Vec::new();
    for number in 0..CLIENTS {
        let client = socket();
        client.connect(ready["listen"].as_str().unwrap()).unwrap();
        if number == DESCRIPTORS / 2 {
            // The gateway refuses every client after this one.
            server.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        let exchange = |question: &[u8], answer: &[u8]| -> Option<SocketAddr> {
            let mut buffer = [0; 100];
            client.send(question).unwrap();
            let (_, upstream) = server.recv_from(&mut buffer).ok()?;
            server.send_to(answer, upstream).unwrap();
            client.recv(&mut buffer).unwrap();
            Some(upstream)
        };
        // A session whose client repeats its server's connection ID (QUIC) makes room for no other.
        let id = [number as u8; 8];
        let long_header = [&b"\xc3\0\0\0\x01\0\x08"[..], &id, &[0; 30]].concat();
        if let Some(upstream) = exchange(b"question", &long_header) {
            assert_eq!(exchange(&[&b"\x41"[..], &id].concat(), b"answer"), Some(upstream));
            served.push((client, upstream));
        }
    }
    assert_eq!(served.len(), DESCRIPTORS / 2);
    // Descriptors are left for the metrics.
    let refused = (CLIENTS - DESCRIPTORS / 2) as u64;
    wait_until("all refusals", || metric(&ready["metrics"], "sessions_refused_total") == refused);
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    for (client, upstream) in &served {
        let mut buffer = [0; 10];
        client.send(b"again").unwrap();
        assert_eq!(server.recv_from(&mut buffer).unwrap(), (5, *upstream));
        server.send_to(b"answer", upstream).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
    }
    program.signal("-INT");
    program.assert_end();
}
