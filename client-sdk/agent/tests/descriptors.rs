//! An agent whose process has as many descriptors as it may have.
#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packrat_agent::{Agent, Choosing, ClientConfig, DontFragment, Limits, Service, Target};

use crate::own_process;

/// Descriptors that the process may have.
const DESCRIPTORS: u32 = 256;
const PATIENCE: Duration = Duration::from_secs(60);
/// Flows for which there are descriptors, and programs.
const FLOWS: usize = 8;
const PROGRAMS: usize = 12;

fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// True if a program's datagram comes back.
fn is_served(program: &UdpSocket, agent: SocketAddr) -> bool {
    program.send_to(b"hello", agent).unwrap();
    program.recv(&mut [0; 100]).is_ok()
}

#[test]
fn without_descriptors_the_longest_idle_flow_makes_room() {
    own_process::with_descriptors(DESCRIPTORS, "descriptors::with_few_descriptors");
}

#[test]
#[ignore = "runs in a process of its own, which another test makes"]
fn with_few_descriptors() {
    let server = bound();
    let to = Target::Service(server.local_addr().unwrap());
    let echo = server.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut buffer) {
            if buffer[..length] == *b"hello" {
                let _ = echo.send_to(&buffer[..length], from);
            }
        }
    });
    let socket = bound();
    let address = socket.local_addr().unwrap();
    let (config, dont_fragment) = (ClientConfig::default(), DontFragment::default());
    let service = Service { name: "echo".to_owned(), socket, to, config, dont_fragment };
    let (agent, handle) =
        Agent::new(vec![service], Choosing::default(), Limits::default()).unwrap();
    let thread = std::thread::spawn(move || agent.run().unwrap());
    let programs: Vec<_> = (0..PROGRAMS).map(|_| bound()).collect();
    for program in &programs {
        program.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    let mut filling: Vec<_> = std::iter::from_fn(|| server.try_clone().ok()).collect();
    filling.truncate(filling.len() - FLOWS);
    let refused = programs.iter().filter(|program| !is_served(program, address)).count();
    assert!(refused >= PROGRAMS - FLOWS, "{refused} of {PROGRAMS} are refused");
    // The others have been used lately, and are not evicted until they are idle.
    let (begun, late) = (Instant::now(), programs.last().unwrap());
    while !is_served(late, address) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", handle.status());
    }
    assert!(handle.status().unwrap().services[0].evicted_flows > 0);
    handle.stop();
    thread.join().unwrap();
}
