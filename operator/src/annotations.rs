//! The annotations of Services and Namespaces: their meaning, and the messages about wrong ones.

use std::collections::BTreeMap;
use std::str::FromStr;

use packrat_api::knobs;

use crate::names::{
    ANNOTATION_PREFIX, ASSIST_ANNOTATION, CERTIFICATE_ANNOTATION, CONFIG_PREFIX,
    GATEWAY_ANNOTATION, INJECT_ANNOTATION, MODE_ANNOTATION, MULTICAST_ANNOTATION, PORT_ANNOTATION,
    QUIC_LB, TCP_ANNOTATION,
};
use crate::overrides::{Multicast, Overrides, knob};
use crate::problem::{Problem, Reason};

/// Name of the EdgeGateway that applies by default.
pub const DEFAULT_GATEWAY: &str = "default";
/// The text to write instead of ports that are not understood.
const PORT_REMEDY: &str = "write names or numbers of the Service's ports, separated by commas, each with the gateway's port and a colon in front where it is another one, for example 443:quic";
/// The text to write instead of a live stream that is not understood.
const MULTICAST_REMEDY: &str = "write address:port where the stream arrives, a multicast group or 0.0.0.0, and after a comma the group that it is sent to, if there is one, for example 239.1.2.3:5004,239.9.9.9:5006; the port is served without it meanwhile";

/// A port of a Service, and the port at which the gateway listens for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortChoice {
    /// The gateway's port; by default the Service's number.
    pub listener: Option<u16>,
    /// The Service's port.
    pub service: PortName,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortName {
    /// Port chosen by its number.
    Number(u16),
    /// Port chosen by its name.
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

/// Parsed annotations of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    /// True if assistance is wanted; `None` without the annotation. An unreadable value counts as
    /// false.
    pub assist: Option<bool>,
    /// Namespace, if there is one, and name of the EdgeGateway. The inner error: the annotation
    /// cannot be read, so that no default may be assumed.
    pub gateway: Option<Result<(Option<String>, String), ()>>,
    /// The ports. The inner error: they cannot be read.
    pub ports: Option<Result<Vec<PortChoice>, ()>>,
    /// The fate of TCP connections.
    pub tcp: Option<TcpChoice>,
    /// The work of the gateway. The inner error: the annotation cannot be read, so that no default
    /// may be assumed.
    pub mode: Option<Result<Mode, ()>>,
    /// The name of the Secret with the certificate.
    pub certificate: Option<String>,
    /// The name of the Secret by which connection IDs name servers.
    pub quic_lb: Option<String>,
    /// Settings; unreadable ones are left out.
    pub overrides: Overrides,
    /// Problems of the annotations.
    pub problems: Vec<Problem>,
}

/// The fate of TCP connections to the port of a route, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpChoice {
    /// The port takes no TCP connections.
    Off,
    /// TCP connections are passed through.
    Passthrough,
    /// TCP connections are passed through, and the server reads the client's address in front of
    /// each (PROXY protocol, version 2).
    ProxyProtocol,
}

/// The work of a gateway for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The gateway forwards datagrams, and repairs the last mile's losses.
    Assist,
    /// Connections of clients end at the gateway, over HTTP/3, HTTP/2 or HTTP/1.1.
    Terminate,
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
    /// True if clients' connections are to end at the gateway.
    pub fn terminates(&self) -> bool {
        self.mode == Some(Ok(Mode::Terminate))
    }

    /// Reads the annotations of an object; other people's are ignored.
    pub fn read<'a>(carrier: Carrier, all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut read = Self::default();
        // Sorted, so that problems have an order of their own.
        let ours: BTreeMap<&str, &str> =
            all.into_iter().filter(|(name, _)| name.starts_with(ANNOTATION_PREFIX)).collect();
        for (name, value) in ours {
            read.read_one(carrier, name, value);
        }
        read
    }

    fn read_one(&mut self, carrier: Carrier, name: &str, value: &str) {
        match name {
            ASSIST_ANNOTATION => match value {
                "enabled" => self.assist = Some(true),
                "disabled" => self.assist = Some(false),
                _ => {
                    self.assist = Some(false);
                    self.invalid(name, value, "write enabled or disabled");
                }
            },
            GATEWAY_ANNOTATION => {
                let gateway = read_gateway(value);
                if gateway.is_err() {
                    self.invalid(
                        name,
                        value,
                        "write the name of an EdgeGateway, or namespace/name",
                    );
                }
                self.gateway = Some(gateway);
            }
            PORT_ANNOTATION
            | MULTICAST_ANNOTATION
            | TCP_ANNOTATION
            | MODE_ANNOTATION
            | CERTIFICATE_ANNOTATION
            | QUIC_LB => match carrier {
                Carrier::Service => self.read_of_service(name, value),
                Carrier::Namespace => self.problem(
                    Reason::UnknownAnnotation,
                    format!("{name} has no effect on a Namespace; put it on the Service"),
                ),
            },
            _ => match name.strip_prefix(CONFIG_PREFIX) {
                Some(setting) => self.read_setting(name, setting, value),
                None if reserved(name) => {}
                None => self.problem(Reason::UnknownAnnotation, unknown(name)),
            },
        }
    }

    /// Reads an annotation that only Services have.
    fn read_of_service(&mut self, name: &str, value: &str) {
        match name {
            PORT_ANNOTATION => {
                let ports: Result<Vec<_>, _> =
                    value.split(',').map(|part| read_port(part.trim())).collect();
                if ports.is_err() {
                    self.invalid(name, value, PORT_REMEDY);
                }
                self.ports = Some(ports);
            }
            TCP_ANNOTATION => match read_tcp(value) {
                Ok(tcp) => self.tcp = Some(tcp),
                Err(remedy) => self.invalid(name, value, remedy),
            },
            MODE_ANNOTATION => {
                self.mode = Some(match value {
                    "assist" => Ok(Mode::Assist),
                    "terminate" => Ok(Mode::Terminate),
                    _ => {
                        self.invalid(
                            name,
                            value,
                            "write assist or terminate; the port is not served meanwhile",
                        );
                        Err(())
                    }
                });
            }
            CERTIFICATE_ANNOTATION | QUIC_LB if !is_name(value) => {
                self.invalid(name, value, "write the name of a Secret of the Service's namespace");
            }
            CERTIFICATE_ANNOTATION => self.certificate = Some(value.to_owned()),
            QUIC_LB => self.quic_lb = Some(value.to_owned()),
            MULTICAST_ANNOTATION => match Multicast::read(value) {
                Some(multicast) => self.overrides.multicast = Some(multicast),
                None => self.invalid(name, value, MULTICAST_REMEDY),
            },
            _ => {}
        }
    }

    fn read_setting(&mut self, name: &str, setting: &str, value: &str) {
        let Some(knob) = knob(setting) else {
            let known: Vec<_> = knobs::in_cluster().map(|(_, knob)| knob.annotation).collect();
            return self.problem(
                Reason::UnknownAnnotation,
                format!(
                    "{name} does not exist; after {CONFIG_PREFIX} there can be {}",
                    known.join(", ")
                ),
            );
        };
        if let Err(remedy) = self.overrides.read(knob, value) {
            self.invalid(
                name,
                value,
                &format!("{remedy}; the gateway's setting is used meanwhile"),
            );
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

/// The message about an annotation of ours that does not exist.
fn unknown(name: &str) -> String {
    format!(
        "{name} does not exist; there are {ASSIST_ANNOTATION}, {GATEWAY_ANNOTATION}, {PORT_ANNOTATION}, {TCP_ANNOTATION}, {MODE_ANNOTATION}, {CERTIFICATE_ANNOTATION}, {QUIC_LB}, {MULTICAST_ANNOTATION} and {CONFIG_PREFIX}*"
    )
}

/// True if an annotation of ours is for other objects and does no harm on this one.
fn reserved(name: &str) -> bool {
    name == INJECT_ANNOTATION
}

/// A value as it can be shown: not too long, without control characters.
fn shown(value: &str) -> String {
    let mut text: String =
        value.chars().filter(|character| !character.is_control()).take(64).collect();
    if text.len() < value.len() {
        text.push('…');
    }
    text
}

/// True if Kubernetes accepts the text as the name of a namespace, of an EdgeGateway or of a Secret.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    (1..=253).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

/// The meaning of [`TCP_ANNOTATION`].
///
/// # Errors
/// The text to write instead.
pub(crate) fn read_tcp(value: &str) -> Result<TcpChoice, &'static str> {
    match value {
        "passthrough" => Ok(TcpChoice::Passthrough),
        "proxy-protocol" => Ok(TcpChoice::ProxyProtocol),
        "off" => Ok(TcpChoice::Off),
        _ => Err("write passthrough, proxy-protocol or off"),
    }
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
        if digits {
            u16::from_str(text).ok().filter(|&number| number > 0).ok_or(())
        } else {
            Err(())
        }
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
    use packrat_api::knobs::Setting;
    use proptest::prelude::*;

    use super::*;

    fn service(name: &str, value: &str) -> Annotations {
        Annotations::read(Carrier::Service, [(name, value)])
    }

    #[test]
    fn what_is_understood() {
        assert_eq!(service(ASSIST_ANNOTATION, "enabled").assist, Some(true));
        assert_eq!(service(ASSIST_ANNOTATION, "disabled").assist, Some(false));
        assert_eq!(
            service(GATEWAY_ANNOTATION, "edge").gateway,
            Some(Ok((None, "edge".to_owned())))
        );
        assert_eq!(
            service(GATEWAY_ANNOTATION, "infra/edge").gateway,
            Some(Ok((Some("infra".to_owned()), "edge".to_owned())))
        );
        let choice = |listener, service| PortChoice { listener, service };
        assert_eq!(
            service(PORT_ANNOTATION, "443, quic,8443:h3, 8444:444").ports,
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
                ("packrat.dev/config.assist", "off"),
                ("packrat.dev/config.cache-bytes-per-session", "2Mi"),
                ("packrat.dev/config.cache-bytes-total", "1Gi"),
                ("packrat.dev/config.repair-budget-percent", "50"),
                ("packrat.dev/config.sparse-copies", "on"),
                ("packrat.dev/config.affinity", "port"),
                ("packrat.dev/config.holdout-percent", "5"),
                ("packrat.dev/config.sender", "bbr"),
                ("packrat.dev/config.idle-timeout-seconds", "30"),
                ("packrat.dev/config.maximum-sessions", "1000"),
                ("packrat.dev/config.sessions-per-source", "8"),
                ("packrat.dev/config.tokens", "required"),
                ("example.org/other", "anything"),
            ],
        );
        assert_eq!(all.problems, []);
        let word = |text: &'static str| Setting::Word(text);
        assert_eq!(
            all.overrides.settings().collect::<Vec<_>>(),
            [
                ("affinity", word("port")),
                ("assist", Setting::Switch(false)),
                ("cache-bytes-per-session", Setting::Number(2 << 20)),
                ("cache-bytes-total", Setting::Number(1 << 30)),
                ("holdout-percent", Setting::Number(5)),
                ("idle-timeout-seconds", Setting::Number(30)),
                ("maximum-sessions", Setting::Number(1000)),
                ("repair-budget-percent", Setting::Number(50)),
                ("sender", word("bbr")),
                ("sessions-per-source", Setting::Number(8)),
                ("sparse-copies", Setting::Switch(true)),
                ("tokens", word("required")),
            ]
        );
        assert_eq!(all.overrides.multicast, None);
        let stream = |value| service(MULTICAST_ANNOTATION, value).overrides.multicast;
        let (upstream, group) =
            ("239.1.2.3:5004".parse().unwrap(), "239.9.9.9:5006".parse().unwrap());
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
            assert_eq!(service(MULTICAST_ANNOTATION, wrong).problems.len(), 1, "{wrong}");
        }
    }

    /// Each wrong annotation, and its exact message.
    #[test]
    fn what_is_said_about_wrong_ones() {
        let port = "write names or numbers of the Service's ports, separated by commas, each with the gateway's port and a colon in front where it is another one, for example 443:quic";
        let meanwhile = "the gateway's setting is used meanwhile";
        let bytes = format!(
            "write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi; {meanwhile}"
        );
        let range =
            |least, most| format!("write a whole number from {least} to {most}; {meanwhile}");
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
            ("tcp", "Passthrough", "write passthrough, proxy-protocol or off".to_owned()),
            (
                "mode",
                "Terminate",
                "write assist or terminate; the port is not served meanwhile".to_owned(),
            ),
            (
                "certificate",
                "other/web-tls",
                "write the name of a Secret of the Service's namespace".to_owned(),
            ),
            ("quic-lb", "Keys", "write the name of a Secret of the Service's namespace".to_owned()),
            ("config.cache-bytes-per-session", "0", bytes.clone()),
            ("config.cache-bytes-per-session", "1M", bytes.clone()),
            ("config.cache-bytes-total", "lots", bytes),
            ("config.repair-budget-percent", "25%", range(0, 1000)),
            ("config.repair-budget-percent", "-1", range(0, 1000)),
            ("config.repair-budget-percent", "1001", range(0, 1000)),
            ("config.idle-timeout-seconds", "2m", range(1, 86_400)),
            ("config.maximum-sessions", "0", range(1, 10_000_000)),
            ("config.sessions-per-source", "many", range(1, 10_000_000)),
            ("config.sessions-per-source", "+5", range(1, 10_000_000)),
            ("config.tokens", "Required", format!("write off, optional or required; {meanwhile}")),
        ] {
            let annotation = format!("{ANNOTATION_PREFIX}{annotation}");
            let read = service(&annotation, value);
            let message = format!("{annotation}: \"{value}\" is not understood; {remedy}");
            assert_eq!(read.problems, [Problem { reason: Reason::InvalidAnnotation, message }]);
            assert_eq!(
                read.overrides,
                Overrides::default(),
                "nothing is made of {annotation}: {value}"
            );
            assert!(read.assist != Some(true) && !matches!(read.gateway, Some(Ok(_))));
            assert!(!matches!(read.ports, Some(Ok(_))) && read.tcp.is_none());
        }
        let unknown = |read: Annotations| {
            assert_eq!(read.problems.len(), 1);
            assert_eq!(read.problems[0].reason, Reason::UnknownAnnotation);
            read.problems[0].message.clone()
        };
        assert_eq!(
            unknown(service("packrat.dev/asist", "enabled")),
            "packrat.dev/asist does not exist; there are packrat.dev/assist, packrat.dev/gateway, packrat.dev/port, packrat.dev/tcp, packrat.dev/mode, packrat.dev/certificate, packrat.dev/quic-lb, packrat.dev/multicast and packrat.dev/config.*"
        );
        assert_eq!(
            unknown(service("packrat.dev/config.cache", "1Mi")),
            "packrat.dev/config.cache does not exist; after packrat.dev/config. there can be affinity, assist, cache-bytes-per-session, cache-bytes-total, repair-budget-percent, sparse-copies, idle-timeout-seconds, maximum-sessions, sessions-per-source, sender, holdout-percent, tokens"
        );
        assert_eq!(
            unknown(Annotations::read(Carrier::Namespace, [(PORT_ANNOTATION, "443")])),
            "packrat.dev/port has no effect on a Namespace; put it on the Service"
        );
    }

    proptest! {
        #[test]
        fn any_text_gives_a_value_or_a_problem(name in "(assist|gateway|port|tcp|mode|certificate|quic-lb|config\\.[a-z-]{0,12}|\\PC{0,8})", value in "\\PC{0,80}") {
            let read = service(&format!("{ANNOTATION_PREFIX}{name}"), &value);
            let understood = read.assist == Some(true) || value == "disabled"
                || matches!(read.gateway, Some(Ok(_))) || matches!(read.ports, Some(Ok(_)))
                || read.tcp.is_some() || matches!(read.mode, Some(Ok(_))) || read.certificate.is_some() || read.quic_lb.is_some()
                || read.overrides != Overrides::default() || reserved(&format!("{ANNOTATION_PREFIX}{name}"));
            prop_assert!(understood != (read.problems.len() == 1));
            for problem in &read.problems {
                prop_assert!(problem.message.len() < 700 && !problem.message.contains(char::is_control));
            }
        }
    }
}
