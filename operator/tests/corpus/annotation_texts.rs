//! Annotations with any names and any texts: each is a value that its own writing gives again, or
//! one problem that names it. The oracle for settings is the text of docs/CONFIGURATION.md.
//!
//! Input: a byte for the object (bit 0: a Namespace), then annotations: a byte for the name, behind
//! some a length and the rest of the name; a length byte and the value.

use std::collections::BTreeMap;

use packrat_api::knobs::{self, ClusterValues};
use packrat_fuzz_entry::take;

use super::annotations::{Annotations, Carrier, Mode, PortChoice, TcpChoice};
use super::names::{
    ANNOTATION_PREFIX, ASSIST_ANNOTATION, CERTIFICATE_ANNOTATION, CONFIG_PREFIX,
    GATEWAY_ANNOTATION, MODE_ANNOTATION, MULTICAST_ANNOTATION, PORT_ANNOTATION, QUIC_LB,
    TCP_ANNOTATION,
};
use super::overrides::Overrides;
use super::problem::Reason;

/// Reads annotations, one by one and all at once; panics when a promise is broken.
pub(crate) fn annotations(data: &[u8]) {
    let (&settings, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let carrier = if settings & 1 == 0 { Carrier::Service } else { Carrier::Namespace };
    let mut all = BTreeMap::new();
    while let Some((&name, tail)) = rest.split_first() {
        rest = tail;
        let name = name_of(name, &mut rest);
        all.insert(name, String::from_utf8_lossy(take(&mut rest)).into_owned());
    }
    let borrowed = |(name, value): (&'_ String, &'_ String)| (name.clone(), value.clone());
    let pairs: Vec<(String, String)> = all.iter().map(borrowed).collect();
    let together = read(carrier, &pairs);
    let mut problems = Vec::new();
    let mut overrides = Overrides::default();
    for pair in &pairs {
        let alone = read(carrier, std::slice::from_ref(pair));
        check(carrier, &pair.0, &pair.1, &alone);
        problems.extend(alone.problems);
        let multicast = overrides.multicast.or(alone.overrides.multicast);
        overrides = alone.overrides.or(overrides).with_multicast(multicast);
    }
    assert_eq!(together.problems, problems, "one annotation says something about another");
    assert_eq!(together.overrides, overrides);
}

fn name_of(name: u8, rest: &mut &[u8]) -> String {
    let settings: Vec<&str> = knobs::in_cluster().map(|(_, knob)| knob.annotation).collect();
    let named = [ASSIST_ANNOTATION, GATEWAY_ANNOTATION, PORT_ANNOTATION, MULTICAST_ANNOTATION];
    match usize::from(name & 31) {
        at if at < named.len() => named[at].to_owned(),
        4 => format!("{ANNOTATION_PREFIX}{}", String::from_utf8_lossy(take(rest))),
        5 => format!("{CONFIG_PREFIX}{}", String::from_utf8_lossy(take(rest))),
        6 => String::from_utf8_lossy(take(rest)).into_owned(),
        at => format!("{CONFIG_PREFIX}{}", settings[at % settings.len()]),
    }
}

fn read(carrier: Carrier, pairs: &[(String, String)]) -> Annotations {
    Annotations::read(carrier, pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

fn check(carrier: Carrier, name: &str, value: &str, alone: &Annotations) {
    assert!(alone.problems.len() <= 1, "{:?}", alone.problems);
    for problem in &alone.problems {
        assert!(problem.message.contains(ANNOTATION_PREFIX) && problem.message.len() < 2000);
        // Names that Kubernetes lets in have no control characters either.
        assert!(name.contains(char::is_control) || !problem.message.contains(char::is_control));
    }
    let reason = alone.problems.first().map(|problem| problem.reason);
    let invalid = Some(Reason::InvalidAnnotation);
    match name {
        ASSIST_ANNOTATION => {
            assert_eq!(alone.assist, Some(value == "enabled"));
            assert_eq!(reason.is_none(), matches!(value, "enabled" | "disabled"));
        }
        GATEWAY_ANNOTATION => match alone.gateway.as_ref().expect("it is said") {
            Ok((namespace, gateway)) => {
                let namespace = namespace.as_ref().map(|name| format!("{name}/"));
                assert_eq!(format!("{}{gateway}", namespace.unwrap_or_default()), value);
                assert_eq!(reason, None);
            }
            Err(()) => assert_eq!(reason, invalid),
        },
        PORT_ANNOTATION
        | TCP_ANNOTATION
        | MODE_ANNOTATION
        | CERTIFICATE_ANNOTATION
        | QUIC_LB
        | MULTICAST_ANNOTATION => check_of_service(carrier, name, value, alone),
        _ => match name.strip_prefix(CONFIG_PREFIX) {
            Some(setting) => check_setting(setting, value, alone),
            None => {
                let is_ours = name.starts_with(ANNOTATION_PREFIX) && name != "packrat.dev/inject";
                assert_eq!(reason, is_ours.then_some(Reason::UnknownAnnotation));
                assert_eq!(alone.overrides, Overrides::default());
            }
        },
    }
}

/// Annotations that are a Service's only.
fn check_of_service(carrier: Carrier, name: &str, value: &str, alone: &Annotations) {
    let reason = alone.problems.first().map(|problem| problem.reason);
    let invalid = Some(Reason::InvalidAnnotation);
    if carrier != Carrier::Service {
        assert_eq!(reason, Some(Reason::UnknownAnnotation));
        assert_eq!((&alone.ports, &alone.overrides), (&None, &Overrides::default()));
        assert_eq!((alone.tcp, alone.mode, &alone.certificate), (None, None, &None));
        assert_eq!(alone.quic_lb, None);
        return;
    }
    match name {
        PORT_ANNOTATION => match alone.ports.as_ref().expect("it is said") {
            Ok(ports) => {
                let again = read(carrier, &[(name.to_owned(), ports_text(ports))]);
                assert_eq!(again.ports.as_ref(), Some(&Ok(ports.clone())));
                assert_eq!(reason, None);
            }
            Err(()) => assert_eq!(reason, invalid),
        },
        TCP_ANNOTATION => match alone.tcp {
            Some(TcpChoice::Passthrough) => assert_eq!(value, "passthrough"),
            Some(TcpChoice::ProxyProtocol) => assert_eq!(value, "proxy-protocol"),
            Some(TcpChoice::Off) => assert_eq!(value, "off"),
            None => assert_eq!(reason, invalid),
        },
        MODE_ANNOTATION => match alone.mode.expect("it is said") {
            Ok(mode) => {
                let terminates = mode == Mode::Terminate;
                assert_eq!(value, if terminates { "terminate" } else { "assist" });
                assert_eq!((alone.terminates(), reason), (terminates, None));
            }
            Err(()) => assert_eq!((alone.terminates(), reason), (false, invalid)),
        },
        CERTIFICATE_ANNOTATION | QUIC_LB => {
            match alone.certificate.as_ref().or(alone.quic_lb.as_ref()) {
                // Never one of another namespace.
                Some(name) => assert!(name == value && !name.contains('/') && reason.is_none()),
                None => assert_eq!(reason, invalid),
            }
        }
        _ => match alone.overrides.multicast {
            Some(stream) => {
                let group = stream.group.map(|group| format!(",{group}")).unwrap_or_default();
                assert!(stream.group.is_none_or(|group| group.ip().is_multicast()));
                let text = format!("{}{group}", stream.upstream);
                let again = read(carrier, &[(name.to_owned(), text)]);
                assert_eq!((again.overrides.multicast, reason), (Some(stream), None));
            }
            None => assert_eq!(reason, invalid),
        },
    }
}

fn ports_text(ports: &[PortChoice]) -> String {
    let text = |port: &PortChoice| match port.listener {
        Some(listener) => format!("{listener}:{}", port.service),
        None => port.service.to_string(),
    };
    ports.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn check_setting(setting: &str, value: &str, alone: &Annotations) {
    let reason = alone.problems.first().map(|problem| problem.reason);
    let known = knobs::in_cluster().map(|(_, knob)| knob).find(|knob| knob.annotation == setting);
    let Some(knob) = known else {
        assert_eq!(reason, Some(Reason::UnknownAnnotation));
        assert_eq!(alone.overrides, Overrides::default());
        return;
    };
    let expected = documented(setting, knob.values, value);
    let set = alone.overrides.get(setting).map(|setting| setting.to_string());
    assert_eq!(set, expected, "{setting}: {value:?}");
    assert_eq!(reason.is_some(), expected.is_none(), "{setting}: {value:?}");
    if let Some(mut expected) = expected {
        // Sizes have 15 digits at most, so that this one was written with a unit.
        if expected.len() > 15 {
            let bytes: u64 = expected.parse().expect("bytes");
            let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
            let largest = units.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
            let (unit, shift) = largest.expect("a unit");
            expected = format!("{}{unit}", bytes >> shift);
        }
        let again = read(Carrier::Service, &[(format!("{CONFIG_PREFIX}{setting}"), expected)]);
        assert_eq!(again.overrides, alone.overrides, "{setting} is not what it says");
    }
}

/// A value as its documentation has it: bytes or a number as digits, a policy by its name.
fn documented(setting: &str, values: ClusterValues, value: &str) -> Option<String> {
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u128>().ok()).flatten()
    };
    let number = match values {
        ClusterValues::Bytes => {
            let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
            let unit = units.iter().find(|(unit, _)| value.ends_with(unit));
            let digits = unit.map_or(value, |(unit, _)| &value[..value.len() - unit.len()]);
            let bytes = number(digits).filter(|_| digits.len() <= 15)?;
            Some(bytes << unit.map_or(0, |(_, shift)| *shift))
                .filter(|bytes| (1..=u128::from(u64::MAX)).contains(bytes))
        }
        ClusterValues::Numbers { least, most } => {
            number(value).filter(|number| (u128::from(least)..=u128::from(most)).contains(number))
        }
        ClusterValues::Words(_) => {
            let words: &[&str] = match setting {
                "tokens" => &["off", "optional", "required"],
                "sender" => &["any", "loss-based", "bbr", "bbr1"],
                "affinity" => &["address", "port"],
                other => panic!("{other} has no words"),
            };
            return words.contains(&value).then(|| value.to_owned());
        }
        ClusterValues::Switch => {
            return ["on", "off"].contains(&value).then(|| value.to_owned());
        }
    };
    number.map(|number| number.to_string())
}
