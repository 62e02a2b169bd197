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
    SetTarget(usize, SocketAddr),
    Resolved(Name, Option<SocketAddr>),
    Status(Sender<Status>),
    Stop,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::SetAccess(..) => "SetAccess",
            Self::SetTarget(..) => "SetTarget",
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

    /// Sets another address of a service, for flows that begin from now on. An address of the
    /// agent's own is refused.
    pub fn set_target(&self, service: usize, to: SocketAddr) {
        self.tell(Command::SetTarget(service, to));
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
