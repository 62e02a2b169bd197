//! Speaking to an agent from other threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use mio::Waker;
use packrat_client::Access;

use crate::socks::Name;
use crate::statistics::Status;

/// A request of another thread's.
pub(crate) enum Command {
    SetAccess(usize, Access),
    SetTargets(usize, Vec<SocketAddr>),
    Resolved(Name, Option<SocketAddr>),
    Status(Sender<Status>),
    Stop,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::SetAccess(..) => "SetAccess",
            Self::SetTargets(..) => "SetTargets",
            Self::Resolved(..) => "Resolved",
            Self::Status(_) => "Status",
            Self::Stop => "Stop",
        })
    }
}

/// Controls an agent that runs in another thread.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
}

impl Handle {
    pub(crate) fn tell(&self, command: Command) {
        // An agent that has ended ignores commands.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }

    /// Sets another token, key or hold for a service. Existing flows take token and key.
    pub fn set_access(&self, service: usize, access: Access) {
        self.tell(Command::SetAccess(service, access));
    }

    /// Sets the addresses of a service's name. A flow keeps its address as long as that answers; others
    /// begin at the present one if it is among these. Addresses of the agent's own are refused.
    pub fn set_targets(&self, service: usize, addresses: Vec<SocketAddr>) {
        self.tell(Command::SetTargets(service, addresses));
    }

    /// The agent's figures; `None`: it has ended.
    pub fn status(&self) -> Option<Status> {
        let (sender, receiver) = channel();
        self.tell(Command::Status(sender));
        receiver.recv().ok()
    }

    /// Ends the agent, and notifies the gateways.
    pub fn stop(&self) {
        self.tell(Command::Stop);
    }
}
