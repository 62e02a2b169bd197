//! A fault in an I/O thread costs only the datagram in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use packrat_dataplane::log::{Level, LogSink};

use crate::gateway::{Gateway, config, receive, socket};

/// Panics at the first lines of one kind.
struct Faulty {
    event: &'static str,
    panics_left: Arc<AtomicUsize>,
}

impl LogSink for Faulty {
    fn write(&self, _level: Level, fields: serde_json::Map<String, serde_json::Value>) {
        let one_less = |left: usize| left.checked_sub(1);
        if fields["event"] == self.event
            && self.panics_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        {
            panic!("deliberate, in a test");
        }
    }
}

#[test]
fn a_panic_while_clients_are_read_costs_the_listener_nothing() {
    let server = socket("127.0.0.1:0");
    let panics_left = Arc::new(AtomicUsize::new(6));
    let log = Faulty { event: "session_opened", panics_left: Arc::clone(&panics_left) };
    let gateway = Gateway::start_with_log("127.0.0.1:0", config(&[&server]), Box::new(log));
    let clients: Vec<_> = (0..12).map(|_| gateway.client()).collect();
    for (number, client) in (0u8..).zip(&clients) {
        let panics = panics_left.load(Ordering::SeqCst);
        client.send(b"lost when the thread panics").unwrap();
        if panics > 0 {
            gateway.wait_for("the panic", |_| panics_left.load(Ordering::SeqCst) < panics);
        } else {
            receive(&server);
        }
        client.send(&[0x40, number]).unwrap();
        let (datagram, upstream) = receive(&server);
        assert_eq!(datagram, [0x40, number]);
        server.send_to(b"answer", upstream).unwrap();
        assert_eq!(receive(client).0, b"answer");
    }
    assert_eq!((gateway.metric("sessions"), gateway.metric("sessions_opened_total")), (12, 12));
    gateway.dataplane.shutdown();
    assert_eq!(gateway.metric("sessions"), 0);
}
