//! Which answer a request gets.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use packrat_assist_token::{Claims, RouteHash, WELL_KNOWN_PATH, to_text};
use serde::Serialize;

use crate::configuration::{Configuration, OtherPaths};
use crate::rate_limit::RateLimit;

/// The token endpoint.
#[derive(Debug)]
pub struct Endpoint {
    configuration: Configuration,
    route: RouteHash,
    limit: RateLimit,
}

/// What is looked at of a request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `:method`.
    pub method: &'a str,
    /// `:path`, with the query.
    pub path: &'a str,
    /// The client's address as Envoy writes it, `ip:port`.
    pub client: &'a str,
}

/// What is done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Not for this endpoint.
    Continue,
    /// Answered here.
    Answer(Answer),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Header fields beside those that Envoy adds.
    pub headers: Vec<(&'static str, String)>,
    /// Left out by Envoy when the method is HEAD.
    pub body: String,
}

/// The document behind [`WELL_KNOWN_PATH`].
#[derive(Serialize)]
struct Document<'a> {
    version: u8,
    udp: UdpEndpoint<'a>,
    gateway_key: &'a str,
    token: String,
    expires: u64,
    parameters: Parameters,
}

#[derive(Serialize)]
struct UdpEndpoint<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    port: u64,
}

#[derive(Serialize)]
struct Parameters {
    maximum_hold_ms: u64,
}

impl Endpoint {
    /// An endpoint that nobody has asked yet.
    pub fn new(configuration: Configuration) -> Self {
        let (route, limit) = (RouteHash::of(&configuration.route), RateLimit::new(configuration.rate));
        Self { configuration, route, limit }
    }

    /// Decides about a request. `now`: since 1970; `nonce`: a fresh random number.
    pub fn decide(&mut self, request: Request<'_>, now: Duration, nonce: u64) -> Decision {
        let path = request.path.split(['?', '#']).next().unwrap_or_default();
        if path != WELL_KNOWN_PATH {
            return match self.configuration.other_paths {
                OtherPaths::Continue => Decision::Continue,
                OtherPaths::NotFound => Decision::Answer(error(404, "not found")),
            };
        }
        if !matches!(request.method, "GET" | "HEAD") {
            let mut answer = error(405, "only GET and HEAD are possible");
            answer.headers.push(("allow", "GET, HEAD".to_owned()));
            return Decision::Answer(answer);
        }
        // A client without an IP address (a listener on a Unix socket) is one client together with its kind.
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
        let configuration = &self.configuration;
        let expires = now.as_secs() + configuration.lifetime_seconds;
        let binding = client.and_then(|client| configuration.binding(client));
        let claims = Claims { expires, route: self.route, binding, nonce };
        let Some(key) = configuration.token_keys.first() else { return error(500, "no key is configured") };
        let document = Document {
            version: 1,
            udp: UdpEndpoint { host: configuration.udp.host.as_deref(), port: configuration.udp.port },
            gateway_key: &configuration.gateway_key,
            token: to_text(&key.issue(&claims)),
            expires,
            parameters: Parameters { maximum_hold_ms: configuration.maximum_hold_ms },
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
