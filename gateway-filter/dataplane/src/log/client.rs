//! Names of clients in logs and lists.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;

/// The form of a client's address in log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Clients {
    /// A keyed hash of the IP address (SipHash with a random key of this process): one client can
    /// be followed, but not identified.
    Hashed = 0,
    /// The address and the port.
    Shown = 1,
    /// Nothing.
    Hidden = 2,
}

impl Clients {
    const ALL: [Self; 3] = [Self::Hashed, Self::Shown, Self::Hidden];

    /// The text in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hashed => "hashed",
            Self::Shown => "shown",
            Self::Hidden => "hidden",
        }
    }
}

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|clients| clients.name() == text).ok_or_else(|| {
            format!("{text:?} is no way to show clients; use hashed, shown or hidden")
        })
    }
}

/// Names clients as it is configured.
#[derive(Debug, Default)]
pub(super) struct ClientNames {
    mode: AtomicU8,
    hasher: RandomState,
}

impl ClientNames {
    pub(super) fn mode(&self) -> Clients {
        let mode = self.mode.load(Ordering::Relaxed);
        Clients::ALL.into_iter().find(|known| *known as u8 == mode).unwrap_or(Clients::Hashed)
    }

    pub(super) fn set(&self, clients: Clients) {
        self.mode.store(clients as u8, Ordering::Relaxed);
    }

    pub(super) fn show(&self, client: SocketAddr) -> Value {
        match self.mode() {
            // The port is no part of it: a client that moves behind its NAT keeps its name.
            Clients::Hashed => {
                format!("{:016x}", self.hasher.hash_one(client.ip().to_canonical())).into()
            }
            Clients::Shown => client.to_string().into(),
            Clients::Hidden => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hashed_unless_somebody_asks_for_them() {
        let names = ClientNames::default();
        let (one, moved, other): (SocketAddr, SocketAddr, SocketAddr) = (
            "192.0.2.1:5".parse().unwrap(),
            "192.0.2.1:6".parse().unwrap(),
            "192.0.2.2:5".parse().unwrap(),
        );
        let name = names.show(one);
        assert!(!name.to_string().contains("192.0.2"), "{name}");
        assert_eq!(names.show(moved), name);
        assert_ne!(names.show(other), name);
        // Another process has another key.
        assert_ne!(ClientNames::default().show(one), name);
        names.set("shown".parse().unwrap());
        assert_eq!(names.show(one), "192.0.2.1:5");
        names.set(Clients::Hidden);
        assert_eq!(names.show(one), Value::Null);
    }
}
