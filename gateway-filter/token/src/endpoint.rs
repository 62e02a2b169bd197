//! The endpoint: decides on each request, and makes the answer.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use packrat_api::token::{TokenDocument, TokenParameters, UdpEndpoint};
use packrat_api::token_endpoint::OtherPaths;
use packrat_assist_token::{Claims, RouteHash, WELL_KNOWN_PATH, to_text};

use crate::configuration::Configuration;
use crate::rate_limit::RateLimit;

/// The token endpoint.
#[derive(Debug)]
pub struct Endpoint {
    configuration: Configuration,
    route: RouteHash,
    limit: RateLimit,
}

/// The parts of a request that the endpoint reads.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `:method`.
    pub method: &'a str,
    /// `:path`, with the query.
    pub path: &'a str,
    /// The client's address as Envoy writes it, `ip:port`.
    pub client: &'a str,
}

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request is not for this endpoint.
    Continue,
    /// The endpoint answers.
    Answer(Answer),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Header fields in addition to Envoy's.
    pub headers: Vec<(&'static str, String)>,
    /// Envoy leaves it out when the method is HEAD.
    pub body: String,
}

impl Endpoint {
    /// An endpoint without any requests so far.
    pub fn new(configuration: Configuration) -> Self {
        let route = RouteHash::of(&configuration.endpoint.route);
        let limit = RateLimit::new(configuration.endpoint.rate);
        Self { configuration, route, limit }
    }

    /// Decides on a request. `now`: since 1970; `nonce`: a fresh random number.
    pub fn decide(&mut self, request: Request<'_>, now: Duration, nonce: u64) -> Decision {
        let path = request.path.split(['?', '#']).next().unwrap_or_default();
        if path != WELL_KNOWN_PATH {
            return match self.configuration.endpoint.other_paths {
                OtherPaths::Continue => Decision::Continue,
                OtherPaths::NotFound => Decision::Answer(error(404, "not found")),
            };
        }
        if !matches!(request.method, "GET" | "HEAD") {
            let mut answer = error(405, "only GET and HEAD are possible");
            answer.headers.push(("allow", "GET, HEAD".to_owned()));
            return Decision::Answer(answer);
        }
        // A client without an IP address (a listener on a Unix socket) is one client together with
        // its kind.
        let client = client_ip(request.client);
        if let Err(wait) = self.limit.take(client.unwrap_or(IpAddr::from([0, 0, 0, 0])), now) {
            let mut answer = error(429, "too many requests from this address");
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answer.headers.push(("retry-after", seconds.to_string()));
            return Decision::Answer(answer);
        }
        Decision::Answer(self.issue(client, now, nonce))
    }

    fn issue(&self, client: Option<IpAddr>, now: Duration, nonce: u64) -> Answer {
        let Configuration { endpoint, key } = &self.configuration;
        let expires = now.as_secs() + u64::from(endpoint.lifetime_seconds);
        let binding = client.and_then(|client| self.configuration.binding(client));
        let claims = Claims { expires, route: self.route, binding, nonce };
        let Ok(port) = u16::try_from(endpoint.udp.port) else {
            return error(500, "no UDP port is configured");
        };
        let document = TokenDocument {
            version: TokenDocument::VERSION,
            udp: Some(UdpEndpoint { host: endpoint.udp.host.clone(), port }),
            gateway_key: endpoint.gateway_key.clone(),
            token: to_text(&key.issue(&claims)),
            expires: Some(expires),
            parameters: TokenParameters { maximum_hold_ms: Some(endpoint.maximum_hold_ms.into()) },
        };
        match serde_json::to_string(&document) {
            Ok(body) => answer(200, body),
            Err(_) => error(500, "the document could not be written"),
        }
    }
}

fn answer(status: u16, body: String) -> Answer {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        // A token belongs to one client and is short-lived.
        ("cache-control", "no-store".to_owned()),
    ];
    Answer { status, headers, body }
}

fn error(status: u16, message: &str) -> Answer {
    answer(status, serde_json::json!({ "error": message }).to_string())
}

fn client_ip(address: &str) -> Option<IpAddr> {
    address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| address.parse()).ok()
}
