//! Summary that `packrat get` and `packrat put` print at the end.

use crate::http3::{KnownKey, Report};
use packrat_s2n_quic::{AssistState, AssistanceStats, RefusalReason};
use packrat_wire::hexadecimal;
use serde_json::{Value, json};

/// The report for people, on the standard error.
pub(crate) fn text(report: &Report, file: &str) -> String {
    let mut text = format!(
        "{file}: {} in {:.3} s ({:.2} Mbit/s), connected in {:.3} s to {}\nsha256 {}",
        bytes(report.bytes),
        report.seconds(),
        report.goodput_mbps(),
        report.connect_time.as_secs_f64(),
        report.remote,
        report.sha256,
    );
    if report.resumed_from > 0 {
        text += &format!("\nresumed after {}", bytes(report.resumed_from));
    }
    if let Some(location) = &report.location {
        text += &format!("\nstored at {location}");
    }
    text += "\nassistance: ";
    text += &assistance(report);
    text
}

fn assistance(report: &Report) -> String {
    if report.protocol != "h3" {
        let reason = match &report.proxy {
            Some(proxy) => format!("the proxy {proxy} passes no UDP"),
            None => "UDP brought no answer, or not all of it".to_owned(),
        };
        return format!("none: {reason}; the transfer went over TCP ({})", report.protocol);
    }
    let Some(stats) = &report.assist else { return "off".to_owned() };
    if stats.failed {
        return "broke down; the transfer went on without it (please report this)".to_owned();
    }
    let assist = &stats.assist;
    if assist.sessions == 0 {
        return without_session(stats, report);
    }
    let mut text = format!(
        "the gateway repaired {} datagrams; of {} holes {} were filled in time, {} too late, {} not at all\n            \
         {} datagrams recovered by code, {} held back briefly; {} eACKs with {}, {} Resets",
        assist.gateway.repaired,
        assist.holes,
        assist.filled_in_time,
        assist.filled_late,
        assist.holes.saturating_sub(assist.filled_in_time + assist.filled_late),
        stats.shim.recovered,
        stats.shim.kept,
        assist.eacks,
        bytes(assist.eack_bytes),
        assist.gateway.resets,
    );
    if let Some(round_trip) = assist.round_trip {
        text += &format!(", last-mile round trip {:.1} ms", round_trip.as_secs_f64() * 1e3);
    }
    if assist.upward_numbered > 0 {
        text += &format!(
            "\n            of {} datagrams towards the server {} were missing at the gateway; {} were sent again",
            assist.upward_numbered, assist.upward_missing, assist.upward_repairs
        );
    }
    match (&assist.gateway_key, report.gateway_key) {
        (Some(key), None) => {
            text += &format!(
                "\n            the gateway was trusted on first use; --gateway-key {} pins it",
                hexadecimal::encode(key)
            );
        }
        (Some(_), Some(KnownKey::Dns)) => {
            text += "\n            the gateway's key is the one in the host's HTTPS record";
        }
        _ => {}
    }
    text
}

fn without_session(stats: &AssistanceStats, report: &Report) -> String {
    let has_answered = stats.control_datagrams_received > 0;
    match stats.assist.state {
        AssistState::Refused => return refused(stats.assist.refusal, report.with_token),
        _ if has_answered && report.gateway_key.is_some() => {
            "the gateway on the path is not the one whose key is known; it was not trusted"
        }
        _ if has_answered => "the gateway on the path did not finish its handshake",
        _ => "no gateway on the path",
    }
    .to_owned()
}

fn refused(reason: Option<RefusalReason>, with_token: bool) -> String {
    let what_to_do = match reason {
        Some(RefusalReason::Token) if with_token => {
            "; the token may be for another gateway or route, or have expired"
        }
        Some(RefusalReason::Token) => "; --assist-token-from fetches one",
        _ => "",
    };
    match reason {
        Some(reason) => format!("the gateway on the path refused: {reason}{what_to_do}"),
        None => "the gateway on the path refused".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// The report for machines on a finished transfer. `role` of the file: `output` or `input`.
pub(crate) fn json(url: &str, report: &Report, role: &str, file: &str) -> Value {
    json!({
        "url": url,
        role: file,
        "remote": report.remote.to_string(),
        "status": report.status,
        "protocol": report.protocol,
        "proxy": report.proxy,
        "bytes": report.bytes,
        "expected_bytes": report.expected_bytes,
        "resumed_from": report.resumed_from,
        "partial": report.partial,
        "location": report.location,
        "connect_seconds": report.connect_time.as_secs_f64(),
        "seconds": report.seconds(),
        "goodput_mbps": report.goodput_mbps(),
        "sha256": report.sha256,
        "assist": report.assist.as_ref().map(|stats| json_assistance(stats, report)),
        "declared_lost": report.connection.declared_lost,
        "round_trip_seconds": report.connection.round_trip.map(|round_trip| round_trip.as_secs_f64()),
        "received_packet_numbers": report.connection.received_packet_numbers,
        "error": null,
    })
}

fn json_assistance(stats: &AssistanceStats, report: &Report) -> Value {
    let assist = &stats.assist;
    let state = match assist.state {
        AssistState::Discovering => "discovering",
        AssistState::Initiating => "initiating",
        AssistState::Established => "established",
        AssistState::NoGateway => "no-gateway",
        AssistState::Refused => "refused",
        _ => "unknown",
    };
    json!({
        "gateway": assist.sessions > 0,
        "state": state,
        "refusal": assist.refusal.map(RefusalReason::name),
        "gateway_key": assist.gateway_key.map(|key| hexadecimal::encode(&key)),
        "gateway_pinned": report.gateway_key.is_some(),
        "gateway_key_from_dns": report.gateway_key == Some(KnownKey::Dns),
        "with_token": report.with_token,
        "failed": stats.failed,
        "sessions": assist.sessions,
        "datagrams": stats.base_datagrams_received,
        "duplicates": assist.duplicates,
        "eacks": assist.eacks,
        "eack_bytes": assist.eack_bytes,
        "control_datagrams_sent": stats.control_datagrams_sent,
        "control_datagrams_received": stats.control_datagrams_received,
        "control_bytes_sent": assist.control_bytes_sent,
        "control_bytes_received": assist.control_bytes_received,
        "control_dropped": assist.control_dropped,
        "control_send_failures": stats.control_send_failures,
        "holes": assist.holes,
        "filled_in_time": assist.filled_in_time,
        "filled_late": assist.filled_late,
        "expired": assist.expired,
        "settled": assist.settled,
        "numbered": stats.shim.numbered,
        "kept": stats.shim.kept,
        "recovered": stats.shim.recovered,
        "upward_numbered": assist.upward_numbered,
        "upward_missing": assist.upward_missing,
        "upward_repairs": assist.upward_repairs,
        "upward_repair_bytes": assist.upward_repair_bytes,
        "round_trip_seconds": assist.round_trip.map(|round_trip| round_trip.as_secs_f64()),
        "repaired": assist.gateway.repaired,
        "repair_transmissions": assist.gateway.repair_transmissions,
        "unrepairable": assist.gateway.unrepairable,
        "decode_failures": assist.gateway.decode_failures,
        "resets": assist.gateway.resets,
        "cache_high_water_bytes": assist.gateway.cache_high_water,
    })
}

/// The report for machines on a failed transfer.
pub(crate) fn json_error(url: &str, exit_code: u8, kind: &str, message: &str) -> Value {
    json!({ "url": url, "error": { "exit_code": exit_code, "kind": kind, "message": message } })
}
