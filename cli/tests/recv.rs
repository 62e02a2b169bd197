//! `packrat recv` against a real gateway on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use stream_gateway::{PATIENCE, StreamGateway};

use crate::stream_gateway;

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn packet(number: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 96];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 9]);
    bytes.extend((0..100u16).map(|at| (at * 3 + number * 17) as u8));
    bytes
}

#[test]
fn a_players_port_gets_the_sent_packets() {
    let gateway =
        StreamGateway::start(&mut Command::new(stream_gateway::program()), "127.0.0.1:0", &[]);
    let player = UdpSocket::bind(local()).unwrap();
    player.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut recv = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args([
            "recv",
            &format!("udp://{}", gateway.listen),
            "--latency",
            "50",
            "--seconds",
            "120",
            "--to",
        ])
        .arg(player.local_addr().unwrap().to_string())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    gateway.wait_for_subscribers(1);
    let sender = UdpSocket::bind(local()).unwrap();
    let mut buffer = [0; 2048];
    for number in 0..20 {
        sender.send_to(&packet(number), gateway.stream).unwrap();
        let length = player.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], packet(number), "packet {number}");
    }
    recv.kill().unwrap();
    recv.wait().unwrap();
}

#[test]
fn mistakes_are_named() {
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_packrat"))
            .arg("recv")
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["https://127.0.0.1:5"]).contains("udp://HOST:PORT"));
    let nobody = UdpSocket::bind(local()).unwrap();
    let url = format!("udp://{}", nobody.local_addr().unwrap());
    assert!(said(&[&url, "--seconds", "1"]).contains("packrat-gateway --stream"));
    assert!(said(&[&url, "--group", "127.0.0.1:9"]).contains("no multicast group"));
}
