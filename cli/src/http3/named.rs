//! The gateway that the DNS names for a host: HTTPS records (RFC 9460) with its key.

use super::request::Request;
use packrat_wire::dns::{self, Answer, LONGEST_ANSWER_BYTES, NamedGateway, named_gateway};
use rustls::crypto::aws_lc_rs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use url::Host;

/// Maximum number of aliases that are followed.
const MOST_ALIASES: usize = 3;
/// Maximum number of servers that are asked, one after the other, as the resolver of the C library
/// does.
const MOST_SERVERS: usize = 3;
/// Time for an answer, before the next server is asked.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// Path of the file with the system's servers, on Unix. Elsewhere nothing is asked, unless a server
/// is given.
const RESOLVER_FILE: &str = "/etc/resolv.conf";

/// The question to ask before a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// Name of the records.
    name: String,
    /// Ask this server instead of the system's.
    server: Option<SocketAddr>,
}

impl Question {
    /// The question for a request that wants a gateway, and does not know which.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let access = &request.assist.as_ref()?.access;
        let Some(Host::Domain(host)) = request.url.host() else { return None };
        if access.gateway_key.is_some() || request.connect_to.is_some() || host == "localhost" {
            return None;
        }
        let (name, port) = request.target();
        if request.places.addresses(&name, port).is_some() {
            return None;
        }
        // RFC 9460, section 9.1.
        let name = match request.url.port().unwrap_or(443) {
            443 => host.to_owned(),
            port => format!("_{port}._https.{host}"),
        };
        Some(Self { name, server: request.dns_server })
    }

    /// The gateway that the records name, if they can be had.
    pub(super) async fn ask(self) -> Option<NamedGateway> {
        let servers = match self.server {
            Some(server) => vec![server],
            None => servers(&tokio::fs::read_to_string(RESOLVER_FILE).await.ok()?),
        };
        let mut name = self.name.clone();
        for _ in 0..=MOST_ALIASES {
            match ask_each(&servers, &name).await? {
                Answer::Alias(other) => name = other,
                Answer::Records(records) => {
                    let mut named = named_gateway(&records)?;
                    // The records belong to the alias's name, or to a port's, which has no address.
                    if named.host.is_none() && name != self.name {
                        named.host = Some(name);
                    }
                    return Some(named);
                }
                Answer::Nothing => return None,
            }
        }
        None
    }
}

/// The servers of a `resolv.conf`; one that has a zone in its address is left out.
fn servers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next()? == "nameserver").then(|| words.next())??;
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, 53))
    });
    addresses.take(MOST_SERVERS).collect()
}

async fn ask_each(servers: &[SocketAddr], name: &str) -> Option<Answer> {
    for server in servers {
        match tokio::time::timeout(ANSWER_PATIENCE, ask(*server, name)).await {
            Ok(Some(answer)) => return Some(answer),
            Ok(None) => tracing::debug!(%server, name, "the DNS server cannot be asked"),
            Err(_) => tracing::debug!(%server, name, "the DNS server does not answer"),
        }
    }
    None
}

/// Waits until the server answers this very question; `None` if it cannot be asked.
async fn ask(server: SocketAddr, name: &str) -> Option<Answer> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let mut id = [0; 2];
    aws_lc_rs::default_provider().secure_random.fill(&mut id).ok()?;
    let id = u16::from_be_bytes(id);
    let socket = UdpSocket::bind(local).await.ok()?;
    // Datagrams of others do not come in.
    socket.connect(server).await.ok()?;
    socket.send(&dns::question(id, name)?).await.ok()?;
    let mut buffer = [0; LONGEST_ANSWER_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await.ok()?;
        if let Some(answer) = dns::answer(&buffer[..length], id, name) {
            return Some(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_where_the_answer_would_not_matter() {
        let asked = |url: &str, change: fn(&mut Request)| {
            let mut request = Request::new(url).unwrap();
            change(&mut request);
            Question::of(&request).map(|question| question.name)
        };
        assert_eq!(asked("https://shop.example/", |_| ()).unwrap(), "shop.example");
        let other_port = asked("https://shop.example:8443/", |_| ()).unwrap();
        assert_eq!(other_port, "_8443._https.shop.example");
        for url in ["https://192.0.2.1/", "https://[::1]/", "https://localhost:4433/"] {
            assert_eq!(asked(url, |_| ()), None, "{url}");
        }
        let changes: [fn(&mut Request); 4] = [
            |request| request.places.resolve = vec!["*:443:192.0.2.1".parse().unwrap()],
            |request| request.assist = None,
            |request| request.connect_to = Some(("192.0.2.1".to_owned(), 443)),
            |request| request.assist.as_mut().unwrap().access.gateway_key = Some([1; 32]),
        ];
        for change in changes {
            assert_eq!(asked("https://shop.example/", change), None);
        }
    }

    #[test]
    fn the_first_servers_of_the_system_are_asked() {
        let text = "# nameserver 192.0.2.9\nsearch example\nnameserver 192.0.2.1\n\
                    nameserver\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\n\
                    nameserver 192.0.2.3\nnameserver 192.0.2.4\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"];
        assert_eq!(servers(text), expected.map(|server| server.parse().unwrap()));
    }
}
