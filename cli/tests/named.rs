//! A gateway that the DNS names: `packrat get` asks a DNS server for the HTTPS record of its URL, and
//! connects to the gateway of that record.

use local_gateway::LocalGateway;
use packrat_wire::dns::GATEWAY_PARAMETER;
use serde_json::{Value, json};
use server::{Server, file};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use crate::local_gateway;
use crate::server;

/// The host of the URL, which has no address.
const HOST: &str = "shop.invalid";

/// A DNS server that has one HTTPS record: the host's, with priority 1, this target, port and key. It
/// answers every question for an HTTPS record of the host, and no other one.
fn name_server(target: &str, port: u16, key: &str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let name = |name: &str| -> Vec<u8> {
        let labels = name.split('.').filter(|label| !label.is_empty());
        let labels = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        labels.chain([0]).collect()
    };
    let parameter = |number: u16, value: &[u8]| {
        [&number.to_be_bytes(), &(value.len() as u16).to_be_bytes(), value].concat()
    };
    let data = [
        vec![0, 1],
        name(target),
        parameter(0, &GATEWAY_PARAMETER.to_be_bytes()),
        parameter(1, b"\x02h3"),
        parameter(3, &port.to_be_bytes()),
        parameter(GATEWAY_PARAMETER, key.as_bytes()),
    ]
    .concat();
    // Type HTTPS, class IN.
    let question = [name(HOST), vec![0, 65, 0, 1]].concat();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let asked = &buffer[..length];
            assert_eq!(asked[12..][..question.len()], question);
            let length = (data.len() as u16).to_be_bytes();
            let owner = [0xc0, 12, 0, 65, 0, 1, 0, 0, 0, 60];
            let header = [&asked[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
            let answer = [&header[..], &question, &owner, &length, &data].concat();
            socket.send_to(&answer, from).unwrap();
        }
    });
    address
}

#[test]
fn only_the_gateway_of_the_hosts_https_record_is_used() {
    let server = Server::start(&[HOST, "localhost"], false);
    let config = json!({ "route": "web", "endpoints": [server.address] });
    let gateway = LocalGateway::start(&config);
    let public = gateway.route.public_key().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let named = format!("https://{HOST}/file");
    let download = |url: &str, key: &str, more: &[&str]| {
        let dns = name_server("localhost", gateway.address.port(), key).to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
        command.current_dir(folder.path()).args(["get", url]);
        command.args(["-o", "file", "--dns-server", &dns, "--cacert"]).arg(&server.authority);
        command.args(more).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
        (output.stdout, errors)
    };
    let (_, summary) = download(&named, &public, &[]);
    assert!(summary.contains("the gateway repaired"), "{summary}");
    assert!(summary.contains("key is the one in the host's HTTPS record"), "{summary}");
    assert!(!summary.contains("first use"), "{summary}");
    let (report, _) = download(&named, &public, &["--json"]);
    let report: Value = serde_json::from_slice(&report).unwrap();
    let assist = &report["assist"];
    assert_eq!(
        (&assist["gateway_key"], &assist["gateway_pinned"], &assist["gateway_key_from_dns"]),
        (&json!(public), &json!(true), &json!(true))
    );
    // The DNS record is held to: a gateway with another key only forwards.
    let (_, summary) = download(&named, &"0f".repeat(32), &[]);
    assert!(summary.contains("not the one whose key is known"), "{summary}");
    // Nothing is asked for this name, or the server would be asked for another one than it knows.
    let (_, summary) = download(&server.url("/file"), &public, &[]);
    assert!(summary.contains("no gateway on the path"), "{summary}");
}
