//! An agent in a thread of its own, and the sockets around it.

use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_agent::{Agent, Choosing, Handle, Limits, Service, Status};
use packrat_path::{ANY_PORT, STEP_PATIENCE};

/// An agent in a thread of its own; ends when it is dropped.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    /// Address of its only listener.
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn of(
        address: SocketAddr,
        services: Vec<Service>,
        choosing: Choosing,
        limits: Limits,
    ) -> Self {
        let (agent, handle) = Agent::new(services, choosing, limits).unwrap();
        let thread = std::thread::spawn(move || agent.run().unwrap());
        Self { handle, address, thread: Some(thread) }
    }

    pub(crate) fn status(&self) -> Status {
        self.handle.status().unwrap()
    }

    pub(crate) fn wait_for(&self, what: &str, condition: impl Fn(&Status) -> bool) {
        let begun = Instant::now();
        while !condition(&self.status()) {
            let status = self.status();
            assert!(begun.elapsed() < STEP_PATIENCE, "waited in vain for {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn udp() -> UdpSocket {
    udp_at(ANY_PORT)
}

pub(crate) fn udp_at(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
    socket
}

/// The next datagram that is not the agent's question for a gateway, and who has sent it.
pub(crate) fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 70_000];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        if !buffer[..length].starts_with(b"\x0bPkr") {
            return (buffer[..length].to_vec(), from);
        }
    }
}
