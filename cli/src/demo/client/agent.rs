//! The agent of a program that does not know Packrat.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use packrat_agent::{
    Agent, Choosing, ClientConfig, Counters, DontFragment, Handle, IdentifierScheme, Limits,
    Service, SocksListener, Target, TurnCredentials, TurnListener,
};

use super::super::error::DemoError;
use super::super::options::{ClientKind, DemoOptions};
use super::super::report::{AssistanceReport, HoleFigures};

/// An agent between a program and the last mile; ends when it is dropped.
pub(crate) struct RunningAgent {
    /// The address that the program sends to, instead of the server's.
    pub(crate) address: Option<SocketAddr>,
    /// The address of the SOCKS listener, for a program that sends to the server by that.
    pub(crate) proxy: Option<SocketAddr>,
    /// The address of the TURN server, for a page that reaches the server as a peer.
    pub(crate) turn: Option<SocketAddr>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl RunningAgent {
    pub(crate) fn start(options: &DemoOptions, to: SocketAddr) -> Result<Self, DemoError> {
        let any = (Ipv4Addr::LOCALHOST, 0);
        let mut config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        if let Some(hold) = options.program.maximum_hold {
            config.access.maximum_hold = Duration::from_millis(hold);
        }
        let (name, dont_fragment) = ("demo".to_owned(), DontFragment::default());
        let (mut services, mut choosing) = (Vec::new(), Choosing::default());
        let (mut address, mut proxy, mut turn) = (None, None, None);
        if options.program.client == ClientKind::CurlSocks {
            let socket = TcpListener::bind(any).map_err(DemoError::Port)?;
            proxy = Some(socket.local_addr().map_err(DemoError::Port)?);
            let allow = Vec::new();
            choosing.socks = Some(SocksListener { name, socket, config, dont_fragment, allow });
        } else if options.program.client == ClientKind::BrowserWebrtc {
            let socket = UdpSocket::bind(any).map_err(DemoError::Port)?;
            turn = Some(socket.local_addr().map_err(DemoError::Port)?);
            let users = [("demo".to_owned(), "demo".to_owned())].into();
            let credentials = TurnCredentials { users, secret: None };
            // The demo's network is on this host.
            let allow = to.to_string().parse().into_iter().collect();
            let config = TurnListener::config(config.access);
            let listener = TurnListener { name, socket, config, dont_fragment, credentials, allow };
            choosing.turn = Some(listener);
        } else {
            let socket = UdpSocket::bind(any).map_err(DemoError::Port)?;
            address = Some(socket.local_addr().map_err(DemoError::Port)?);
            let to = Target::Service(to);
            services.push(Service { name, socket, to, config, dont_fragment });
        }
        let (agent, handle) =
            Agent::new(services, choosing, Limits::default()).map_err(DemoError::Runtime)?;
        let thread = std::thread::Builder::new().name("packrat-agent".to_owned());
        let run = move || {
            if let Err(error) = agent.run() {
                eprintln!("packrat demo: the agent has ended: {error}");
            }
        };
        let thread = thread.spawn(run).map_err(DemoError::Runtime)?;
        Ok(Self { address, proxy, turn, handle, thread: Some(thread) })
    }

    /// Counters of the agent.
    pub(crate) fn counters(&self) -> Counters {
        self.handle.status().map(|status| status.total()).unwrap_or_default()
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl From<Counters> for AssistanceReport {
    fn from(counters: Counters) -> Self {
        Self {
            sessions: counters.sessions,
            eacks: counters.eacks,
            control_bytes_sent: counters.control_bytes_sent,
            control_bytes_received: counters.control_bytes_received,
            duplicates: counters.duplicates,
            holes: HoleFigures {
                holes: counters.holes,
                filled_in_time: counters.repaired_in_time,
                filled_late: counters.repaired_late,
                expired: counters.given_up,
                ..HoleFigures::default()
            },
            ..Self::default()
        }
    }
}
