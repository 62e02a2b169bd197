//! Affinity: which clients of a route have the same server.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// The part of a client's address that its server follows from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// The address without its port (IPv6: its /64): a client whose port changes has the same
    /// server behind every gateway, and so have all clients of an address.
    #[default]
    Address,
    /// Address and port: clients of one address spread over the servers. One whose port changes
    /// keeps its server behind the same gateway only.
    Port,
}

words! {
    Affinity,
    /// The error of a text that is no affinity.
    UnknownAffinity "write address or port",
    [Address "address" "ClientAddress", Port "port" "ClientPort"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_configuration() {
        for &affinity in Affinity::ALL {
            assert_eq!(serde_json::to_value(affinity).unwrap(), affinity.name());
            assert_eq!(affinity.name().parse(), Ok(affinity));
        }
        assert_eq!("ClientIP".parse::<Affinity>(), Err(UnknownAffinity));
    }
}
