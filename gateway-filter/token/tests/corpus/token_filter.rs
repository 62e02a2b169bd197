//! The token endpoint: its configuration, as Envoy passes it on, and the requests of clients.
//!
//! Input: a configuration, and after a line break requests, one a line: seconds that have passed,
//! method, path and the client's address, separated by blanks. If the configuration is refused, a
//! plain one answers the requests.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;

use packrat_api::token_endpoint::OtherPaths;
use packrat_assist_token::{Keys, RouteHash, WELL_KNOWN_PATH, from_text, verify};
use packrat_token_issuer::configuration::Configuration;
use packrat_token_issuer::endpoint::{Decision, Endpoint, Request};

/// Time of the first request, since 1970.
const BEGINNING: Duration = Duration::from_secs(1_800_000_000);

/// Runs an input. Panics when the endpoint accepts a configuration out of range, shows a secret,
/// gives a client more tokens than permitted, or issues a token that no gateway accepts.
pub(crate) fn token_filter(data: &[u8]) {
    let (text, requests) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[][..]),
    };
    let configuration = match Configuration::from_json(text) {
        Ok(configuration) => {
            check(&configuration);
            configuration
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let (secret, public) = ("0f".repeat(32), "ab".repeat(32));
            let plain = format!(
                r#"{{"route":"web","token_keys":["1:{secret}"],"udp":{{"port":443}},"gateway_key":"{public}"}}"#
            );
            Configuration::from_json(plain.as_bytes()).expect("a plain configuration")
        }
    };
    ask(configuration, requests);
}

fn check(configuration: &Configuration) {
    let config = &configuration.endpoint;
    assert!(!config.route.is_empty() && (1..=2).contains(&config.token_keys.len()));
    assert!((1..=65_535).contains(&config.udp.port) && config.gateway_key.len() == 64);
    assert!((10..=86_400).contains(&config.lifetime_seconds));
    assert!(config.maximum_hold_ms <= 10_000 && config.rate.clients > 0);
    // The log does not show a secret: neither as it was written, nor as bytes.
    let shown = format!("{configuration:?}");
    let longest_run =
        shown.split(|character: char| !character.is_ascii_hexdigit()).filter(|run| run.len() >= 64);
    let public = [&config.gateway_key, &config.route];
    assert!(
        longest_run.into_iter().all(|run| public.iter().any(|known| known.contains(run))),
        "{shown}"
    );
}

fn ask(configuration: Configuration, requests: &[u8]) {
    let keys = Keys { current: configuration.key.clone(), previous: None };
    let config = &configuration.endpoint;
    let route = RouteHash::of(&config.route);
    let (rate, clients) = (config.rate, u64::from(config.rate.clients));
    let (others, lifetime) = (config.other_paths, u64::from(config.lifetime_seconds));
    let mut endpoint = Endpoint::new(configuration);
    let mut issued: HashMap<String, u64> = HashMap::new();
    let mut now = BEGINNING;
    for (nonce, line) in String::from_utf8_lossy(requests).lines().take(500).enumerate() {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        now += Duration::from_secs(word().parse::<u16>().unwrap_or_default().into());
        let request = Request { method: word(), path: word(), client: word() };
        let Decision::Answer(answer) = endpoint.decide(request, now, nonce as u64) else {
            assert!(
                !request.path.starts_with(WELL_KNOWN_PATH)
                    || request.path.len() > WELL_KNOWN_PATH.len()
            );
            assert_eq!(others, OtherPaths::Continue);
            continue;
        };
        let document: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        if answer.status != 200 {
            assert!(matches!(answer.status, 404 | 405 | 429), "{}", answer.status);
            assert!(document["error"].is_string() && document.get("token").is_none());
            continue;
        }
        assert!(matches!(request.method, "GET" | "HEAD"));
        let token = from_text(document["token"].as_str().expect("a text")).expect("a token");
        let client: Option<IpAddr> = request
            .client
            .parse()
            .map(|client: SocketAddr| client.ip())
            .or_else(|_| request.client.parse())
            .ok();
        let from = client.unwrap_or(IpAddr::from([192, 0, 2, 1]));
        verify(&token, &keys, now.as_secs(), from, route).expect("accepted by the gateway");
        assert_eq!(document["expires"], now.as_secs() + lifetime);
        assert!(
            verify(&token, &keys, now.as_secs() + lifetime + 3600, from, route).is_err(),
            "for ever"
        );
        // Up to the number of remembered clients, no client can push another out.
        let count = issued.entry(request.client.to_owned()).or_default();
        *count += 1;
        let most = u64::from(rate.burst)
            + (now - BEGINNING).as_secs() * u64::from(rate.per_minute) / 60
            + 1;
        let is_remembered = (issued.len() as u64) < clients;
        let count = issued[request.client];
        assert!(!is_remembered || count <= most, "{count} tokens of {most}");
    }
}
