//! The annotations of Services and Namespaces: what they mean, and what is said about wrong ones.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::resource::{TokenPolicy, parse_size};

/// `enabled` or `disabled`, on a Service or on a Namespace for all of its Services.
pub const ASSIST: &str = "packrat.dev/assist";
/// The EdgeGateway, `name` or `namespace/name`.
pub const GATEWAY: &str = "packrat.dev/gateway";
/// UDP ports of the Service: names or numbers, each with the gateway's port in front where it is another one.
pub const PORT: &str = "packrat.dev/port";
/// The Service's UDP port is one live stream for everybody who subscribes: where it arrives at the gateway, and after a comma the group that
/// it is sent to, if there is one.
pub const MULTICAST: &str = "packrat.dev/multicast";
/// What the names of overrides begin with.
pub const CONFIG_PREFIX: &str = "packrat.dev/config.";
/// What all annotations of Packrat begin with.
pub const PREFIX: &str = "packrat.dev/";
/// The name of the EdgeGateway that is meant when none is named.
pub const DEFAULT_GATEWAY: &str = "default";

/// Something that is wrong with an object; says what, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// One word in CamelCase, for machines.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// Kinds of problems; their names are the reasons of Events and conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// An annotation has a value that is not understood.
    InvalidAnnotation,
    /// An annotation that does not exist, or is of no use on this kind of object.
    UnknownAnnotation,
    /// The EdgeGateway does not exist.
    GatewayNotFound,
    /// The EdgeGateway does not take routes of this namespace.
    NotAllowed,
    /// The Service has no such port, or no UDP port.
    NoSuchPort,
    /// An older Service has the port of the gateway.
    PortConflict,
    /// There is nothing to forward to.
    NoEndpoints,
}

impl Reason {
    /// As in Events and conditions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidAnnotation => "InvalidAnnotation",
            Self::UnknownAnnotation => "UnknownAnnotation",
            Self::GatewayNotFound => "GatewayNotFound",
            Self::NotAllowed => "NotAllowed",
            Self::NoSuchPort => "NoSuchPort",
            Self::PortConflict => "PortConflict",
            Self::NoEndpoints => "NoEndpoints",
        }
    }
}

/// A namespace and a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Which port of a Service, and where the gateway listens for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortChoice {
    /// The gateway's port; the Service's number when there is none.
    pub listener: Option<u16>,
    /// The Service's port.
    pub service: PortName,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortName {
    /// By its number.
    Number(u16),
    /// By its name.
    Name(String),
}

impl std::fmt::Display for PortName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Name(name) => name.fmt(formatter),
        }
    }
}

/// A live stream with many receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multicast {
    /// Where it arrives at the gateway: a multicast group, or an address of the gateway's.
    pub upstream: SocketAddr,
    /// The group that it is sent to; without one each subscriber gets a copy.
    pub group: Option<SocketAddr>,
}

impl Multicast {
    /// Whether it needs IP multicast, and with it the host's network.
    pub fn has_group(&self) -> bool {
        self.upstream.ip().is_multicast() || self.group.is_some()
    }
}

/// What a Service overrides of its gateway's settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// Bytes of the cache per session.
    pub cache_bytes_per_session: Option<u64>,
    /// Bytes of the cache of all sessions.
    pub cache_bytes_total: Option<u64>,
    /// Repairs in percent of the forwarded bytes.
    pub repair_budget_percent: Option<u32>,
    /// Datagrams of a million that may still be missing after their repair.
    pub residual_loss_per_million: Option<u32>,
    /// Seconds without a datagram after which a session ends.
    pub idle_timeout_seconds: Option<u64>,
    /// Sessions at once.
    pub maximum_sessions: Option<u64>,
    /// Assisted sessions of one client address.
    pub sessions_per_source: Option<u32>,
    /// Assisted sessions that one client address may begin per second.
    pub handshakes_per_second_per_source: Option<u32>,
    /// Whether clients need a token.
    pub tokens: Option<TokenPolicy>,
    /// The port is a live stream; only Services have it.
    pub multicast: Option<Multicast>,
}

impl Overrides {
    /// These, and where they say nothing those.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cache_bytes_per_session: self.cache_bytes_per_session.or(other.cache_bytes_per_session),
            cache_bytes_total: self.cache_bytes_total.or(other.cache_bytes_total),
            repair_budget_percent: self.repair_budget_percent.or(other.repair_budget_percent),
            residual_loss_per_million: self.residual_loss_per_million.or(other.residual_loss_per_million),
            idle_timeout_seconds: self.idle_timeout_seconds.or(other.idle_timeout_seconds),
            maximum_sessions: self.maximum_sessions.or(other.maximum_sessions),
            sessions_per_source: self.sessions_per_source.or(other.sessions_per_source),
            handshakes_per_second_per_source: self
                .handshakes_per_second_per_source
                .or(other.handshakes_per_second_per_source),
            tokens: self.tokens.or(other.tokens),
            multicast: self.multicast,
        }
    }
}

/// What the annotations of one object say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    /// Whether assistance is wanted; `None` when nothing is said. Unreadable: not wanted.
    pub assist: Option<bool>,
    /// The EdgeGateway: namespace if there is one, and name. The inner error: it cannot be read, nothing may be assumed.
    pub gateway: Option<Result<(Option<String>, String), ()>>,
    /// The ports. The inner error: they cannot be read.
    pub ports: Option<Result<Vec<PortChoice>, ()>>,
    /// Settings; those that cannot be read are left out.
    pub overrides: Overrides,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Which kind of object carries the annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A Service.
    Service,
    /// A Namespace.
    Namespace,
}

impl Annotations {
    /// Reads the annotations of an object; other people's are ignored.
    pub fn read<'a>(carrier: Carrier, all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut read = Self::default();
        // Sorted, so that problems have an order of their own.
        let ours: BTreeMap<&str, &str> =
            all.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        for (name, value) in ours {
            read.read_one(carrier, name, value);
        }
        read
    }

    fn read_one(&mut self, carrier: Carrier, name: &str, value: &str) {
        match name {
            ASSIST => match value {
                "enabled" => self.assist = Some(true),
                "disabled" => self.assist = Some(false),
                _ => {
                    self.assist = Some(false);
                    self.invalid(name, value, "write enabled or disabled");
                }
            },
            GATEWAY => {
                let gateway = read_gateway(value);
                if gateway.is_err() {
                    self.invalid(name, value, "write the name of an EdgeGateway, or namespace/name");
                }
                self.gateway = Some(gateway);
            }
            PORT | MULTICAST if carrier == Carrier::Namespace => {
                self.problem(
                    Reason::UnknownAnnotation,
                    format!("{name} has no effect on a Namespace; put it on the Service"),
                );
            }
            PORT => {
                let ports: Result<Vec<_>, _> = value.split(',').map(|part| read_port(part.trim())).collect();
                if ports.is_err() {
                    self.invalid(
                        name,
                        value,
                        "write names or numbers of the Service's UDP ports, separated by commas, each with the gateway's port and a colon in front where it is another one, for example 443:quic",
                    );
                }
                self.ports = Some(ports);
            }
            MULTICAST => match read_multicast(value) {
                Some(multicast) => self.overrides.multicast = Some(multicast),
                None => self.invalid(
                    name,
                    value,
                    "write address:port where the stream arrives, a multicast group or 0.0.0.0, and after a comma the group that it is sent to, if there is one, for example 239.1.2.3:5004,239.9.9.9:5006; the port is served without it meanwhile",
                ),
            },
            _ => match name.strip_prefix(CONFIG_PREFIX) {
                Some(setting) => self.read_setting(name, setting, value),
                None if reserved(name) => {}
                None => self.problem(
                    Reason::UnknownAnnotation,
                    format!(
                        "{name} does not exist; there are {ASSIST}, {GATEWAY}, {PORT}, {MULTICAST} and {CONFIG_PREFIX}*"
                    ),
                ),
            },
        }
    }

    fn read_setting(&mut self, name: &str, setting: &str, value: &str) {
        let overrides = &mut self.overrides;
        let result = match setting {
            "cache-bytes-per-session" => {
                size(value).map(|read| overrides.cache_bytes_per_session = Some(read))
            }
            "cache-bytes-total" => size(value).map(|read| overrides.cache_bytes_total = Some(read)),
            "repair-budget-percent" => {
                number(value, 0, 1000).map(|read| overrides.repair_budget_percent = Some(read))
            }
            "residual-loss-per-million" => {
                number(value, 1, 500_000).map(|read| overrides.residual_loss_per_million = Some(read))
            }
            "idle-timeout-seconds" => {
                number(value, 1, 86_400).map(|read| overrides.idle_timeout_seconds = Some(read.into()))
            }
            "maximum-sessions" => {
                number(value, 1, 10_000_000).map(|read| overrides.maximum_sessions = Some(read.into()))
            }
            "sessions-per-source" => {
                number(value, 1, 10_000_000).map(|read| overrides.sessions_per_source = Some(read))
            }
            "handshakes-per-second-per-source" => number(value, 1, 10_000_000)
                .map(|read| overrides.handshakes_per_second_per_source = Some(read)),
            "tokens" => match value {
                "off" => Ok(TokenPolicy::Off),
                "optional" => Ok(TokenPolicy::Optional),
                "required" => Ok(TokenPolicy::Required),
                _ => Err("write off, optional or required".to_owned()),
            }
            .map(|read| overrides.tokens = Some(read)),
            _ => {
                let known = SETTINGS.join(", ");
                return self.problem(
                    Reason::UnknownAnnotation,
                    format!("{name} does not exist; after {CONFIG_PREFIX} there can be {known}"),
                );
            }
        };
        if let Err(remedy) = result {
            self.invalid(name, value, &format!("{remedy}; the gateway's setting is used meanwhile"));
        }
    }

    fn invalid(&mut self, name: &str, value: &str, remedy: &str) {
        self.problem(
            Reason::InvalidAnnotation,
            format!("{name}: \"{}\" is not understood; {remedy}", shown(value)),
        );
    }

    fn problem(&mut self, reason: Reason, message: String) {
        self.problems.push(Problem { reason, message });
    }
}

/// Names of the settings.
pub const SETTINGS: [&str; 9] = [
    "cache-bytes-per-session",
    "cache-bytes-total",
    "repair-budget-percent",
    "residual-loss-per-million",
    "idle-timeout-seconds",
    "maximum-sessions",
    "sessions-per-source",
    "handshakes-per-second-per-source",
    "tokens",
];

/// Annotations of ours that are not written by users.
fn reserved(name: &str) -> bool {
    matches!(name, "packrat.dev/inject" | "packrat.dev/injected")
}

/// A value as it can be shown: not too long, without control characters.
fn shown(value: &str) -> String {
    let mut text: String = value.chars().filter(|character| !character.is_control()).take(64).collect();
    if text.len() < value.len() {
        text.push('…');
    }
    text
}

fn read_multicast(value: &str) -> Option<Multicast> {
    let mut parts = value.split(',').map(|part| part.trim().parse::<SocketAddr>());
    let upstream = parts.next()?.ok()?;
    let group = parts.next().transpose().ok()?;
    let is_group = group.is_none_or(|group| group.ip().is_multicast() && group.port() != 0);
    let whole = parts.next().is_none() && upstream.port() >= 1024 && group != Some(upstream);
    (is_group && whole).then_some(Multicast { upstream, group })
}

fn size(value: &str) -> Result<u64, String> {
    match parse_size(value) {
        Ok(0) | Err(_) => {
            Err("write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi".to_owned())
        }
        Ok(size) => Ok(size),
    }
}

fn number(value: &str, least: u32, most: u32) -> Result<u32, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str(value)
        .ok()
        .filter(|number| digits && (least..=most).contains(number))
        .ok_or_else(|| format!("write a whole number from {least} to {most}"))
}

/// Whether Kubernetes takes it for the name of a namespace or of an EdgeGateway.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

fn read_gateway(value: &str) -> Result<(Option<String>, String), ()> {
    let (namespace, name) = match value.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, value),
    };
    if !is_name(name) || namespace.is_some_and(|namespace| !is_name(namespace)) {
        return Err(());
    }
    Ok((namespace.map(str::to_owned), name.to_owned()))
}

fn read_port(text: &str) -> Result<PortChoice, ()> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { u16::from_str(text).ok().filter(|&number| number > 0).ok_or(()) } else { Err(()) }
    };
    let (listener, service) = match text.split_once(':') {
        Some((listener, service)) => (Some(number(listener)?), service),
        None => (None, text),
    };
    let service = if service.bytes().all(|byte| byte.is_ascii_digit()) {
        PortName::Number(number(service)?)
    } else if is_name(service) && service.len() <= 63 {
        PortName::Name(service.to_owned())
    } else {
        return Err(());
    };
    Ok(PortChoice { listener, service })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn service(name: &str, value: &str) -> Annotations {
        Annotations::read(Carrier::Service, [(name, value)])
    }

    #[test]
    fn what_is_understood() {
        assert_eq!(service(ASSIST, "enabled").assist, Some(true));
        assert_eq!(service(ASSIST, "disabled").assist, Some(false));
        assert_eq!(service(GATEWAY, "edge").gateway, Some(Ok((None, "edge".to_owned()))));
        assert_eq!(
            service(GATEWAY, "infra/edge").gateway,
            Some(Ok((Some("infra".to_owned()), "edge".to_owned())))
        );
        let choice = |listener, service| PortChoice { listener, service };
        assert_eq!(
            service(PORT, "443, quic,8443:h3, 8444:444").ports,
            Some(Ok(vec![
                choice(None, PortName::Number(443)),
                choice(None, PortName::Name("quic".to_owned())),
                choice(Some(8443), PortName::Name("h3".to_owned())),
                choice(Some(8444), PortName::Number(444)),
            ]))
        );
        let all = Annotations::read(
            Carrier::Namespace,
            [
                ("packrat.dev/config.cache-bytes-per-session", "2Mi"),
                ("packrat.dev/config.cache-bytes-total", "1Gi"),
                ("packrat.dev/config.repair-budget-percent", "50"),
                ("packrat.dev/config.residual-loss-per-million", "1"),
                ("packrat.dev/config.idle-timeout-seconds", "30"),
                ("packrat.dev/config.maximum-sessions", "1000"),
                ("packrat.dev/config.sessions-per-source", "8"),
                ("packrat.dev/config.handshakes-per-second-per-source", "2"),
                ("packrat.dev/config.tokens", "required"),
                ("example.org/other", "anything"),
            ],
        );
        assert_eq!(all.problems, []);
        assert_eq!(
            all.overrides,
            Overrides {
                cache_bytes_per_session: Some(2 << 20),
                cache_bytes_total: Some(1 << 30),
                repair_budget_percent: Some(50),
                residual_loss_per_million: Some(1),
                idle_timeout_seconds: Some(30),
                maximum_sessions: Some(1000),
                sessions_per_source: Some(8),
                handshakes_per_second_per_source: Some(2),
                tokens: Some(TokenPolicy::Required),
                multicast: None,
            }
        );
        let stream = |value| service(MULTICAST, value).overrides.multicast;
        let (upstream, group) = ("239.1.2.3:5004".parse().unwrap(), "239.9.9.9:5006".parse().unwrap());
        assert_eq!(stream("239.1.2.3:5004"), Some(Multicast { upstream, group: None }));
        let both = Multicast { upstream, group: Some(group) };
        assert_eq!(stream("239.1.2.3:5004, 239.9.9.9:5006"), Some(both));
        assert!(both.has_group() && !stream("0.0.0.0:5004").unwrap().has_group());
        for wrong in [
            "",
            "enabled",
            "239.1.2.3",
            "0.0.0.0:80",
            "0.0.0.0:5004,192.0.2.1:5",
            "239.9.9.9:5006,239.9.9.9:5006",
        ] {
            assert_eq!(stream(wrong), None, "{wrong}");
            assert_eq!(service(MULTICAST, wrong).problems.len(), 1, "{wrong}");
        }
    }

    /// Each wrong annotation, and exactly what is said about it.
    #[test]
    fn what_is_said_about_wrong_ones() {
        let port = "write names or numbers of the Service's UDP ports, separated by commas, each with the gateway's port and a colon in front where it is another one, for example 443:quic";
        let meanwhile = "the gateway's setting is used meanwhile";
        let bytes =
            format!("write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi; {meanwhile}");
        let range = |least, most| format!("write a whole number from {least} to {most}; {meanwhile}");
        let name = "write the name of an EdgeGateway, or namespace/name".to_owned();
        for (annotation, value, remedy) in [
            ("assist", "true", "write enabled or disabled".to_owned()),
            ("assist", "Enabled", "write enabled or disabled".to_owned()),
            ("assist", "", "write enabled or disabled".to_owned()),
            ("gateway", "", name.clone()),
            ("gateway", "Edge", name.clone()),
            ("gateway", "a/b/c", name.clone()),
            ("gateway", "/edge", name.clone()),
            ("gateway", "infra/", name),
            ("port", "", port.to_owned()),
            ("port", "0", port.to_owned()),
            ("port", "65536", port.to_owned()),
            ("port", "443,", port.to_owned()),
            ("port", "quic:443", port.to_owned()),
            ("port", "443:", port.to_owned()),
            ("port", "443:444:445", port.to_owned()),
            ("port", "+443", port.to_owned()),
            ("port", "Quic", port.to_owned()),
            ("config.cache-bytes-per-session", "0", bytes.clone()),
            ("config.cache-bytes-per-session", "1M", bytes.clone()),
            ("config.cache-bytes-total", "lots", bytes),
            ("config.repair-budget-percent", "25%", range(0, 1000)),
            ("config.repair-budget-percent", "-1", range(0, 1000)),
            ("config.repair-budget-percent", "1001", range(0, 1000)),
            ("config.residual-loss-per-million", "0", range(1, 500_000)),
            ("config.idle-timeout-seconds", "2m", range(1, 86_400)),
            ("config.maximum-sessions", "0", range(1, 10_000_000)),
            ("config.sessions-per-source", "many", range(1, 10_000_000)),
            ("config.handshakes-per-second-per-source", "+5", range(1, 10_000_000)),
            ("config.tokens", "Required", format!("write off, optional or required; {meanwhile}")),
        ] {
            let annotation = format!("{PREFIX}{annotation}");
            let read = service(&annotation, value);
            let message = format!("{annotation}: \"{value}\" is not understood; {remedy}");
            assert_eq!(read.problems, [Problem { reason: Reason::InvalidAnnotation, message }]);
            assert_eq!(read.overrides, Overrides::default(), "nothing is made of {annotation}: {value}");
            assert!(read.assist != Some(true) && !matches!(read.gateway, Some(Ok(_))));
            assert!(!matches!(read.ports, Some(Ok(_))));
        }
        let unknown = |read: Annotations| {
            assert_eq!(read.problems.len(), 1);
            assert_eq!(read.problems[0].reason, Reason::UnknownAnnotation);
            read.problems[0].message.clone()
        };
        assert_eq!(
            unknown(service("packrat.dev/asist", "enabled")),
            "packrat.dev/asist does not exist; there are packrat.dev/assist, packrat.dev/gateway, packrat.dev/port, packrat.dev/multicast and packrat.dev/config.*"
        );
        assert_eq!(
            unknown(service("packrat.dev/config.cache", "1Mi")),
            "packrat.dev/config.cache does not exist; after packrat.dev/config. there can be cache-bytes-per-session, cache-bytes-total, repair-budget-percent, residual-loss-per-million, idle-timeout-seconds, maximum-sessions, sessions-per-source, handshakes-per-second-per-source, tokens"
        );
        assert_eq!(
            unknown(Annotations::read(Carrier::Namespace, [(PORT, "443")])),
            "packrat.dev/port has no effect on a Namespace; put it on the Service"
        );
    }

    proptest! {
        #[test]
        fn any_text_gives_a_value_or_a_problem(name in "(assist|gateway|port|config\\.[a-z-]{0,12}|\\PC{0,8})", value in "\\PC{0,80}") {
            let read = service(&format!("{PREFIX}{name}"), &value);
            let understood = read.assist == Some(true) || value == "disabled"
                || matches!(read.gateway, Some(Ok(_))) || matches!(read.ports, Some(Ok(_)))
                || read.overrides != Overrides::default() || reserved(&format!("{PREFIX}{name}"));
            prop_assert!(understood != (read.problems.len() == 1));
            for problem in &read.problems {
                prop_assert!(problem.message.len() < 700 && !problem.message.contains(char::is_control));
            }
        }
    }
}
