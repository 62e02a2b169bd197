//! The servers of a route that connection IDs name, if the route is configured so.

use std::collections::HashMap;

use packrat_api::route::{InvalidField, RouteConfig};
use packrat_engine::{ServerId, ServerIdDecoder, destination};

use crate::socket::EndpointAddress;

/// Decoders of server IDs, each with the servers of its configuration.
#[derive(Debug, Default)]
pub(crate) struct NamedServers(Vec<(ServerIdDecoder, HashMap<ServerId, EndpointAddress>)>);

impl NamedServers {
    /// Named servers of a route. A server ID that two endpoints share names neither.
    pub(crate) fn of(config: &RouteConfig) -> Result<Self, InvalidField> {
        let all = config.quic_lb.iter().map(|ids| {
            let number = u8::try_from(ids.config).unwrap_or(u8::MAX);
            let lengths = (ids.server_id_bytes as usize, ids.nonce_bytes as usize);
            let key = ids.key_bytes();
            let decoder = ServerIdDecoder::new(number, lengths.0, lengths.1, key.as_ref())
                .map_err(|error| InvalidField::of_route("quic_lb", error.to_string()))?;
            let mut servers: HashMap<ServerId, Option<EndpointAddress>> = HashMap::new();
            for endpoint in &config.endpoints {
                let Some(id) = ServerId::new(&ids.of(*endpoint)) else { continue };
                let only = (!servers.contains_key(&id)).then(|| EndpointAddress::new(*endpoint));
                servers.insert(id, only);
            }
            let servers = servers.into_iter().filter_map(|(id, server)| Some((id, server?)));
            Ok((decoder, servers.collect()))
        });
        all.collect::<Result<_, _>>().map(Self)
    }

    /// True if no connection ID names a server.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The server that the connection ID of a client's datagram names.
    pub(crate) fn server_of(&self, datagram: &[u8]) -> Option<EndpointAddress> {
        if self.is_empty() {
            return None;
        }
        let connection_id = destination(datagram)?;
        self.0
            .iter()
            .find_map(|(decoder, servers)| servers.get(&decoder.server_of(connection_id)?).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::route_from_json;
    use serde_json::json;

    #[test]
    fn a_connection_id_names_the_server_whose_id_it_has() {
        let text = json!({
            "route": "web", "endpoints": ["10.244.1.7:443", "10.244.2.7:443", "10.244.1.9:443", "10.244.2.9:443"],
            "quic_lb": [
                { "server_id_bytes": 4, "nonce_bytes": 4 },
                { "config": 1, "server_id_bytes": 1, "nonce_bytes": 4, "server_ids": { "10.244.1.9:443": "01" } },
            ],
        });
        let config = route_from_json(text.to_string().as_bytes()).unwrap();
        let named = NamedServers::of(&config).unwrap();
        let server = |connection_id: &[u8]| {
            let short = [&[0x41][..], connection_id, b"payload of the datagram"].concat();
            let length = u8::try_from(connection_id.len()).unwrap();
            let long = [&[0xe0, 0, 0, 0, 1, length][..], connection_id, &[0], b"payload"].concat();
            let found = named.server_of(&short).map(|server| server.to_string());
            assert_eq!(named.server_of(&long).map(|server| server.to_string()), found);
            found
        };
        let at = |text: &str| Some(text.to_owned());
        assert_eq!(server(&[0x08, 10, 244, 2, 7, 1, 2, 3, 4]), at("10.244.2.7:443"));
        assert_eq!(server(&[0x08, 10, 244, 3, 7, 1, 2, 3, 4]), None);
        // In the other configuration one has a number of its own, and two have the same.
        assert_eq!(server(&[0x25, 1, 1, 2, 3, 4]), at("10.244.1.9:443"));
        assert_eq!(server(&[0x25, 9, 1, 2, 3, 4]), at("10.244.2.9:443"));
        assert_eq!(server(&[0x25, 7, 1, 2, 3, 4]), None);
        // A server ID that is not configured, and a connection ID without one.
        assert_eq!(server(&[0x48, 10, 244, 2, 7, 1, 2, 3, 4]), None);
        assert_eq!(server(&[0xe8, 10, 244, 2, 7, 1, 2, 3, 4]), None);
    }
}
