//! Flows whose service does not answer any more.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packrat_agent::Limits;
use packrat_path::{ANY_PORT, STEP_PATIENCE};

use crate::running::Running;

/// A server that echoes datagrams as long as `answers`, given the number of the sender's port among
/// those before, says so. Ends with the test.
fn echo(answers: impl Fn(usize) -> bool + Send + 'static) -> SocketAddr {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut ports) = ([0; 2048], Vec::new());
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            // Questions for a gateway are no datagrams of the program's.
            if &buffer[..length] != b"echo" {
                continue;
            }
            let known = ports.iter().position(|port| *port == from.port());
            let number = known.unwrap_or_else(|| {
                ports.push(from.port());
                ports.len() - 1
            });
            if answers(number) {
                let _ = server.send_to(&buffer[..length], from);
            }
        }
    });
    address
}

/// Sends until an echo comes.
fn wait_for_echo(program: &UdpSocket, agent: SocketAddr) {
    program.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let begun = Instant::now();
    loop {
        program.send_to(b"echo", agent).unwrap();
        if program.recv(&mut [0; 2048]).is_ok() {
            return;
        }
        assert!(begun.elapsed() < STEP_PATIENCE, "there is no echo");
    }
}

#[test]
fn a_flow_that_falls_silent_takes_another_way() {
    // One socket per server, which is heard as long as its flow is answered.
    let program = || UdpSocket::bind(ANY_PORT).unwrap();
    let silenced = Arc::new(AtomicBool::new(false));
    let [stale, moved] = [true, false].map(|has_other_ways| {
        let is_on = Arc::clone(&silenced);
        // The way of the first source port leads nowhere any more.
        echo(move |number| number > 0 && has_other_ways || !is_on.load(Ordering::Relaxed))
    });
    let (dead, alive) = (echo(|_| false), echo(|_| true));
    let agents = [stale, moved, dead].map(|to| Running::start(to, Limits::default()));
    let programs = [(); 3].map(|()| program());
    wait_for_echo(&programs[0], agents[0].address);
    wait_for_echo(&programs[1], agents[1].address);
    silenced.store(true, Ordering::Relaxed);
    // The name of the second has moved, the third has a further address.
    agents[1].handle.set_targets(0, vec![alive]);
    agents[2].handle.set_targets(0, vec![dead, alive]);
    // Answers on the way.
    for program in &programs {
        program.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while program.recv(&mut [0; 2048]).is_ok() {}
    }
    std::thread::scope(|scope| {
        for (program, agent) in programs.iter().zip(&agents) {
            scope.spawn(|| wait_for_echo(program, agent.address));
        }
    });
    let targets = agents.each_ref().map(|agent| agent.status().services[0].to.unwrap());
    assert_eq!(targets, [stale, alive, alive]);
}
