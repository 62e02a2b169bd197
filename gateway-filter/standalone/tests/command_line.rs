//! The program under an operator's commands and signals.

use std::net::UdpSocket;

use serde_json::Value;

use crate::client;
use crate::program::{Program, file, get, socket, wait_until};

fn pass_one_datagram(server: &UdpSocket, listen: &Value) {
    let client = socket();
    client.connect(listen.as_str().unwrap()).unwrap();
    client.send(b"question").unwrap();
    let mut buffer = [0; 100];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"question");
    server.send_to(b"answer", from).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 6);
}

#[test]
fn forwards_serves_metrics_and_ends_on_a_signal() {
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    for signal in ["-TERM", "-INT"] {
        let more = "--workers 3 --metrics 127.0.0.1:0 --drain-seconds 0";
        let mut program =
            Program::start(&format!("--listen 127.0.0.1:0 --endpoint {endpoint} {more}"));
        let ready = program.line("ready");
        for _ in 0..5 {
            pass_one_datagram(&server, &ready["listen"]);
        }
        let metrics = get(&ready["metrics"], "/metrics");
        assert!(metrics.starts_with("HTTP/1.1 200"));
        assert!(metrics.contains("# TYPE packrat_sessions gauge"), "{metrics}");
        // A batch is counted after it has been sent.
        for count in ["sessions 5", "to_server_bytes_total 40"] {
            let (name, value) = count.split_once(' ').unwrap();
            let labels = "route=\"default\",gateway=\"packrat\",namespace=\"default\"";
            let line = format!("packrat_{name}{{{labels}}} {value}\n");
            wait_until(count, || get(&ready["metrics"], "/metrics").contains(&line));
        }
        assert!(get(&ready["metrics"], "/elsewhere").starts_with("HTTP/1.1 404"));
        program.signal(signal);
        assert_eq!(program.line("session_closed")["to_server_bytes"], 8);
        assert_eq!(program.wait(), Some(0));
    }
}

#[test]
fn a_configuration_file_is_the_route() {
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    let file = file(&format!(r#"{{"route":"web","gateway":"edge","endpoints":["{endpoint}"]}}"#));
    let mut program = Program::start(&format!("--listen [::]:0 --config {}", file.display()));
    assert_eq!(program.line("route_configured")["route"], "web");
    let ready = program.line("ready");
    assert_eq!(ready["metrics"], Value::Null);
    let port = ready["listen"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    pass_one_datagram(&server, &format!("127.0.0.1:{port}").into());
}

#[test]
fn mistakes_end_the_program_with_a_reason() {
    let file = file(r#"{"route":"web","endpoints":["127.0.0.1:9"],"cache_bites":1}"#);
    let taken = socket();
    let taken = taken.local_addr().unwrap();
    for (arguments, reason) in [
        (format!("127.0.0.1:0 --config {}", file.display()), "cache_bites"),
        ("127.0.0.1:0 --config /nonexistent.json".to_owned(), "/nonexistent.json"),
        (format!("{taken} --endpoint 127.0.0.1:9"), "cannot listen"),
        ("127.0.0.1:0 --endpoint 127.0.0.1:0".to_owned(), "endpoints"),
    ] {
        let mut program = Program::start(&format!("--listen {arguments}"));
        let line = program.line("failed");
        assert!(line["error"].as_str().unwrap().contains(reason), "{line}");
        assert_eq!(program.wait(), Some(1));
    }
    // Invalid arguments.
    let mut program = Program::start("--listen 127.0.0.1:0");
    assert_eq!(program.wait(), Some(2));
}

#[test]
fn a_drained_gateway_assists_its_clients_until_its_goodbye() {
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    let start = |seconds: u32| {
        let more = format!("--workers 2 --metrics 127.0.0.1:0 --drain-seconds {seconds}");
        let mut program =
            Program::start(&format!("--listen 127.0.0.1:0 --endpoint {endpoint} {more}"));
        let ready = program.line("ready");
        let listen = ready["listen"].as_str().unwrap().parse().unwrap();
        let (client, _) = client::connect(listen, &server);
        (program, ready, client)
    };
    // A second signal ends it at once.
    let (mut program, ready, mut client) = start(3600);
    program.signal("-TERM");
    program.line("draining");
    pass_one_datagram(&server, &ready["listen"]);
    let metrics = get(&ready["metrics"], "/metrics");
    assert!(
        metrics.contains(
            "packrat_sessions_assisted{route=\"default\",gateway=\"packrat\",namespace=\"default\"} 1"
        ),
        "{metrics}"
    );
    assert_eq!(program.process.try_wait().unwrap(), None);
    program.signal("-TERM");
    client.wait_for_goodbye();
    assert_eq!(program.line("session_closed")["reason"], "draining");
    assert_eq!(program.wait(), Some(0));
    // Without one, it ends by itself.
    let (mut program, _, mut client) = start(1);
    program.signal("-TERM");
    program.line("draining");
    client.wait_for_goodbye();
    assert_eq!(program.wait(), Some(0));
}
